//! Tiles of products in f32, by the units of any GPU. A unit holds the sums of 8 rows and 4 columns in
//! registers; slices of both factors go through shared memory.

use burn::tensor::DType;
use cubecl::prelude::{CubeCount, CubeDim};
use half::f16;

use super::super::lists::{Asked, Lists, Part};
use super::tile::tiles;
use super::{GROUP, Order, client, real};

/// Units of a cube: across queries and across actions.
const UNITS: [usize; 2] = [8, 16];
/// Rows and columns of a unit.
const EACH: [usize; 2] = [8, 4];

/// Queries and actions of a tile.
pub(super) const TILE: [usize; 2] = [UNITS[0] * EACH[0], UNITS[1] * EACH[1]];

/// Starts the kernel on the cubes of some tiles.
pub(super) fn launch(
    cubes: CubeCount,
    asked: &Asked,
    part: &Part<'_>,
    lists: &Lists,
    order: &Order,
) -> Option<()> {
    let [_, width] = part.beta.dims();
    let sweep = match part.beta.dtype() {
        DType::F16 => kernel::sweep::launch::<f16>,
        _ => kernel::sweep::launch::<f32>,
    };
    // Whole slices where the usual lengths of vectors allow them: 100 is five times 20.
    let depth = if !width.is_multiple_of(16) && width.is_multiple_of(20) { 20 } else { 16 };
    let [high, wide] = UNITS.map(|units| u32::try_from(units).unwrap_or(u32::MAX));
    sweep(
        &client(&lists.counts)?,
        cubes,
        CubeDim::new_2d(wide, high),
        GROUP,
        real(&asked.queries)?,
        real(part.beta)?,
        tiles(asked, part, lists, order)?,
        depth,
    );
    Some(())
}

#[allow(clippy::cast_possible_truncation, reason = "tiles fit 32 bits")]
mod kernel {
    use cubecl::prelude::*;

    use super::super::GROUP;
    use super::super::tile::{Tiles, copy};
    use super::{EACH, TILE, UNITS};

    #[cube(launch)]
    pub(super) fn sweep<F: Float, N: Size>(
        queries: &Tensor<Vector<F, N>>,
        beta: &Tensor<Vector<F, N>>,
        tiles: &mut Tiles,
        #[comptime] depth: usize,
    ) {
        let [units_y, units_x] = comptime!(UNITS);
        let [each_y, each_x] = comptime!(EACH);
        let [height, breadth] = comptime!(TILE);
        let units = comptime!(units_y * units_x);
        let groups = comptime!(depth / GROUP);
        // An odd number of groups in a line, so that units read from different banks.
        let line = comptime!(depth / GROUP + 1 - (depth / GROUP) % 2);
        let tile = tiles.own();
        let mut of_queries = Shared::<[Vector<f32, N>]>::new_aligned_slice(height * line, 16usize);
        let mut of_beta = Shared::<[Vector<f32, N>]>::new_aligned_slice(breadth * line, 16usize);
        let mut sums = Array::<f32>::new(each_y * each_x);
        #[unroll]
        for at in 0..each_y * each_x {
            sums[at] = 0.0;
        }
        let unit = UNIT_POS as usize;
        let (x, y) = (unit % units_x, unit / units_x);
        let first_row = CUBE_POS_X as usize * height;
        let first_column = tile * breadth;
        let steps = tiles.width.div_ceil(depth);
        for step in 0..steps {
            copy::<F, f32, N>(
                queries,
                &mut of_queries,
                first_row,
                tiles.rows,
                step,
                tiles.width,
                height,
                depth,
                line,
                units,
            );
            copy::<F, f32, N>(
                beta,
                &mut of_beta,
                first_column,
                tiles.end,
                step,
                tiles.width,
                breadth,
                depth,
                line,
                units,
            );
            sync_cube();
            #[unroll]
            for group in 0..groups {
                let mut of_rows = Array::<Vector<f32, N>>::new(each_y);
                #[unroll]
                for row in 0..each_y {
                    of_rows[row] = of_queries[(y + row * units_y) * line + group];
                }
                #[unroll]
                for column in 0..each_x {
                    let of_column = of_beta[(x + column * units_x) * line + group];
                    #[unroll]
                    for row in 0..each_y {
                        #[unroll]
                        for at in 0..GROUP {
                            sums[row * each_x + column] = fma(
                                of_rows[row].extract(at),
                                of_column.extract(at),
                                sums[row * each_x + column],
                            );
                        }
                    }
                }
            }
            sync_cube();
        }
        #[unroll]
        for row in 0..each_y {
            let query = first_row + y + row * units_y;
            if query < tiles.rows {
                let threshold = tiles.threshold(query);
                #[unroll]
                for column in 0..each_x {
                    let product = sums[row * each_x + column];
                    let place = first_column + x + column * units_x;
                    if product > threshold && place < tiles.end {
                        tiles.keep(query, place, product);
                    }
                }
            }
        }
    }
}
