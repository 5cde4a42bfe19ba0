//! What the kernels of tiles have in common: a slice of a factor goes to shared memory, and a product that
//! passes into the list of its query.

use cubecl::prelude::*;

use super::super::lists::{Asked, Lists, Part};
use super::{GROUP, Order, real, whole};

/// What a kernel is given beside the two factors of its products.
#[derive(CubeType, CubeLaunch)]
pub(super) struct Tiles {
    thresholds: OwnedTensor<f32>,
    spans: OwnedTensor<i32>,
    excluded: OwnedTensor<i32>,
    counts: OwnedTensor<Atomic<i32>>,
    actions: OwnedTensor<i32>,
    products: OwnedTensor<f32>,
    /// Queries.
    pub(super) rows: usize,
    /// Actions of the block.
    pub(super) end: usize,
    /// Numbers of a vector.
    pub(super) width: usize,
    offset: usize,
    stride: usize,
    first_visit: usize,
    shift: u32,
    count: usize,
    room: usize,
}

/// The tiles of a launch, for either kernel; none where their lists do not lie where kernels run.
pub(super) fn tiles(
    asked: &Asked,
    part: &Part<'_>,
    lists: &Lists,
    order: &Order,
) -> Option<TilesLaunch> {
    let ([rows, width], [actions, _]) = (asked.queries.dims(), part.beta.dims());
    Some(TilesLaunch::new(
        real(&asked.thresholds)?,
        whole(&asked.spans)?,
        whole(&asked.excluded)?,
        whole(&lists.counts)?,
        whole(&lists.actions)?,
        real(&lists.products)?,
        rows,
        actions,
        width,
        part.offset,
        part.stride,
        order.first,
        order.shift,
        order.tiles,
        lists.room,
    ))
}

#[cube]
impl Tiles {
    /// The tile of a cube; the cube of one behind the last ends here.
    #[allow(clippy::cast_possible_truncation, reason = "visits fit 32 bits")]
    pub(super) fn own(&self) -> usize {
        let visit = self.first_visit as u32 + CUBE_POS_Y;
        let tile = (visit.reverse_bits() >> self.shift) as usize;
        if tile >= self.count {
            terminate!();
        }
        tile
    }

    /// What a product of a query must exceed.
    pub(super) fn threshold(&self, row: usize) -> f32 {
        self.thresholds[row]
    }

    /// Counts the product of a query and of the row `place` of the block, and puts it into the list of the
    /// query, if it has room, unless its action is excluded.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        reason = "actions fit 31 bits"
    )]
    #[allow(clippy::cast_sign_loss, clippy::manual_midpoint, reason = "numbers from 0, of 31 bits")]
    pub(super) fn keep(&mut self, row: usize, place: usize, product: f32) {
        let action = (self.offset + place * self.stride % self.end) as i32;
        let (mut low, mut high) = (self.spans[2 * row], self.spans[2 * row + 1]);
        let end = high;
        while low < high {
            let middle = (low + high) / 2;
            if self.excluded[middle as usize] < action {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let mut shown = true;
        if low < end {
            shown = self.excluded[low as usize] != action;
        }
        if shown {
            let slot = self.counts[row].fetch_add(1) as usize;
            if slot < self.room {
                self.actions[row * self.room + slot] = action;
                self.products[row * self.room + slot] = product;
            }
        }
    }
}

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
