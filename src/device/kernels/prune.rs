//! A list in, its best out. A cube looks for a number just below the K-th greatest product of a query, bit by
//! bit from the highest on: floats are ordered as integers of their bits are, once the sign is turned round.

use cubecl::prelude::*;

/// Units of a cube.
pub(super) const UNITS: usize = 128;

/// The count of a crowded list: what is added to it later leaves it below 0.
const CROWDED: i32 = i32::MIN;

/// Bits of the K-th greatest product that are looked for. Those left out are 2⁻¹¹ of it.
const BITS: u32 = 20;

#[cube(launch)]
#[allow(clippy::too_many_arguments, reason = "the arguments of a kernel are bound one by one")]
#[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "lists fit 31 bits")]
#[allow(clippy::cast_sign_loss, reason = "nothing is counted below 0")]
pub(super) fn prune(
    counts: &Tensor<i32>,
    actions: &Tensor<i32>,
    products: &Tensor<f32>,
    rounding: &Tensor<f32>,
    thresholds: &mut Tensor<f32>,
    kept: &mut Tensor<i32>,
    kept_actions: &mut Tensor<i32>,
    kept_products: &mut Tensor<f32>,
    slate_size: usize,
    room: usize,
    kept_room: usize,
) {
    let row = CUBE_POS_X as usize;
    let unit = UNIT_POS as usize;
    // A crowded list has more than any room as a number without a sign.
    let counted = counts[row] as usize;
    let mut count = counted;
    if count > room {
        count = room;
    }
    let first = row * room;
    // How many products reach a number, for each bit, and how many are kept.
    let reach = Shared::<[Atomic<u32>]>::new_slice(comptime!(BITS as usize));
    let taken = Shared::<[Atomic<u32>]>::new_slice(1usize);
    if unit < comptime!(BITS as usize) {
        reach[unit].store(0);
    }
    if unit == 0 {
        taken[0].store(0);
    }
    sync_cube();

    let mut low = 0_u32;
    for bit in 0..BITS {
        let tried = low | (1_u32 << (31 - bit));
        let mut own = 0_u32;
        let mut at = unit;
        while at < count {
            if ordered(products[first + at]) >= tried {
                own += 1;
            }
            at += UNITS;
        }
        reach[bit as usize].fetch_add(own);
        sync_cube();
        if reach[bit as usize].load() as usize >= slate_size {
            low = tried;
        }
    }
    let mut threshold = thresholds[row];
    sync_cube();
    if count >= slate_size {
        let higher = unordered(low) - rounding[row];
        if higher > threshold {
            threshold = higher;
        }
    }

    let mut at = unit;
    while at < count {
        let product = products[first + at];
        if count < slate_size || product > threshold {
            let slot = taken[0].fetch_add(1) as usize;
            if slot < kept_room {
                kept_actions[row * kept_room + slot] = actions[first + at];
                kept_products[row * kept_room + slot] = product;
            }
        }
        at += UNITS;
    }
    sync_cube();
    if unit == 0 {
        let mut all = taken[0].load() as i32;
        if all as usize > kept_room || counted > room {
            all = CROWDED;
        }
        kept[row] = all;
        thresholds[row] = threshold;
    }
}

#[cube(launch)]
#[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "lists fit 31 bits")]
#[allow(clippy::cast_sign_loss, reason = "only what is not below 0")]
pub(super) fn pack(
    counts: &Tensor<i32>,
    actions: &Tensor<i32>,
    cursor: &mut Tensor<Atomic<i32>>,
    packed: &mut Tensor<i32>,
    rows: usize,
    room: usize,
    capacity: usize,
) {
    let row = CUBE_POS_X as usize;
    let unit = UNIT_POS as usize;
    let mut count = counts[row];
    if count < 0 {
        count = 0;
    }
    let mut place = Shared::<[i32]>::new_slice(1usize);
    if unit == 0 {
        place[0] = cursor[0].fetch_add(count);
    }
    sync_cube();
    let mut start = place[0] as usize;
    if count == 0 {
        start = 0;
    }
    let fits = start + count as usize <= capacity;
    if fits {
        let mut at = unit;
        while at < count as usize {
            packed[2 * rows + start + at] = actions[row * room + at];
            at += UNITS;
        }
    }
    if unit == 0 {
        let mut all = counts[row];
        if !fits {
            all = CROWDED;
        }
        packed[row] = all;
        packed[rows + row] = start as i32;
    }
}

/// A number that ascends as floats do.
#[cube]
fn ordered(product: f32) -> u32 {
    let bits = u32::reinterpret(product);
    let mut number = bits | 0x8000_0000_u32;
    if bits >> 31 == 1 {
        number = !bits;
    }
    number
}

/// The float of such a number.
#[cube]
fn unordered(number: u32) -> f32 {
    let mut bits = !number;
    if number >> 31 == 1 {
        bits = number ^ 0x8000_0000_u32;
    }
    f32::reinterpret(bits)
}
