//! What the kernels of tiles have in common: a slice of a factor goes to shared memory, and a product that
//! passes into the list of its query.

use cubecl::prelude::*;

use super::GROUP;

/// Copies `depth` numbers, from the number `step · depth` on, of `tall` rows, from the row `first` on, into
/// `line` groups for each; zeros behind the last row, `end`, and behind the last number, `width`.
#[cube]
#[allow(clippy::too_many_arguments, reason = "a kernel inlines it")]
pub(super) fn copy<F: Float, T: Float, N: Size>(
    from: &Tensor<Vector<F, N>>,
    into: &mut Shared<[Vector<T, N>]>,
    first: usize,
    end: usize,
    step: usize,
    width: usize,
    #[comptime] tall: usize,
    #[comptime] depth: usize,
    #[comptime] line: usize,
    #[comptime] units: usize,
) {
    let groups = comptime!(depth / GROUP);
    let stride = from.stride(0) / GROUP;
    #[unroll]
    for at in 0..comptime!((tall * groups).div_ceil(units)) {
        let place = at * units + UNIT_POS as usize;
        let (row, own) = (place / groups, place % groups);
        let group = step * groups + own;
        if comptime!((tall * groups).is_multiple_of(units)) || place < tall * groups {
            let mut value = Vector::<T, N>::cast_from(0.0_f32);
            if first + row < end && group * GROUP < width {
                value = Vector::<T, N>::cast_from(from[(first + row) * stride + group]);
            }
            into[row * line + own] = value;
        }
    }
}

/// Counts a product and puts it into the list of its query, if it has room, unless its action is excluded.
#[cube]
#[allow(clippy::too_many_arguments, reason = "the buffers of a kernel are bound one by one")]
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "actions fit 31 bits"
)]
#[allow(clippy::cast_sign_loss, clippy::manual_midpoint, reason = "numbers from 0, of 31 bits")]
pub(super) fn keep(
    row: usize,
    action: usize,
    product: f32,
    spans: &Tensor<i32>,
    excluded: &Tensor<i32>,
    counts: &mut Tensor<Atomic<i32>>,
    actions: &mut Tensor<i32>,
    products: &mut Tensor<f32>,
    room: usize,
) {
    let action = action as i32;
    let (mut low, mut high) = (spans[2 * row], spans[2 * row + 1]);
    let end = high;
    while low < high {
        let middle = (low + high) / 2;
        if excluded[middle as usize] < action {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    let mut shown = true;
    if low < end {
        shown = excluded[low as usize] != action;
    }
    if shown {
        let slot = counts[row].fetch_add(1) as usize;
        if slot < room {
            actions[row * room + slot] = action;
            products[row * room + slot] = product;
        }
    }
}
