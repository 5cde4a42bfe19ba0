//! Tiles of products of numbers in f16, summed up in f32, by the matrix units that some GPUs have (tensor cores,
//! cooperative matrices). The units of a plane multiply square matrices of 16 or 8 rows and do not tell which
//! of them holds what, so sums go through shared memory before they are looked at.

use cubecl::client::Client;
use cubecl::features::MmaConfig;
use cubecl::ir::{ElemType, FloatKind};
use cubecl::prelude::{CubeCount, CubeDim};

use super::super::lists::{Asked, Lists, Part};
use super::tile::tiles;
use super::{GROUP, Order, client, real};

/// Rows, columns and depth of the products of matrix units, the faster ones first.
const SIDES: [usize; 2] = [16, 8];

/// How a cube shares its tile among planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    /// Units of a plane.
    plane: usize,
    /// Rows, columns and depth of a product of matrix units.
    side: usize,
    /// Planes across queries and across actions.
    planes: [usize; 2],
    /// Matrices of a plane across both.
    each: [usize; 2],
    /// Numbers of a vector in shared memory at a time.
    depth: usize,
    /// Matrices of a plane that are looked at together.
    together: usize,
}

impl Shape {
    /// The one for so many queries; none if the device has no such matrix units.
    pub(super) fn on(client: &Client, rows: usize) -> Option<Self> {
        let properties = client.properties();
        let hardware = &properties.hardware;
        let has = |side: &usize| {
            let side = u32::try_from(*side).unwrap_or(u32::MAX);
            let (half, single) = (ElemType::Float(FloatKind::F16), ElemType::Float(FloatKind::F32));
            let wanted = MmaConfig {
                a_type: half,
                b_type: half,
                cd_type: single,
                m: side,
                n: side,
                k: side,
            };
            properties.features.matmul.cmma.contains(&wanted)
        };
        let plane = usize::try_from(hardware.plane_size_min).ok()?;
        let shape = Self::of(rows, plane, SIDES.into_iter().find(has)?);
        let fits = hardware.plane_size_max == hardware.plane_size_min
            && shape.shared() <= hardware.max_shared_memory_size
            && shape.units() <= hardware.max_units_per_cube as usize;
        fits.then_some(shape)
    }

    /// The one that was the fastest for so many queries, of twenty on an H200, which has planes of 32 units and
    /// sides of 16.
    fn of(rows: usize, plane: usize, side: usize) -> Self {
        if rows <= 32 {
            Self { plane, side, planes: [1, 4], each: [2, 2], depth: 32, together: 2 }
        } else {
            Self { plane, side, planes: [4, 4], each: [2, 4], depth: 16, together: 1 }
        }
    }

    /// Queries and actions of a tile.
    pub(super) fn tile(&self) -> [usize; 2] {
        [0, 1].map(|at| self.planes[at] * self.each[at] * self.side)
    }

    /// Units of a cube.
    fn units(&self) -> usize {
        self.planes[0] * self.planes[1] * self.plane
    }

    /// Groups of numbers in a line of a factor: two more than it needs, so that the rows of a matrix lie in
    /// different banks.
    fn line(&self) -> usize {
        self.depth / GROUP + 2
    }

    /// Groups of numbers in a line of the sums that a plane looks at together.
    fn sum_line(&self) -> usize {
        self.together * self.side / GROUP + 2
    }

    /// Bytes of shared memory: slices of both factors, thresholds, and the sums that are looked at.
    fn shared(&self) -> usize {
        let [height, breadth] = self.tile();
        let factors = 2 * GROUP * (height + breadth) * self.line();
        let sums = 4 * GROUP * self.planes[0] * self.planes[1] * self.side * self.sum_line();
        factors + sums + 4 * height
    }
}

/// Starts the kernel on the cubes of some tiles.
pub(super) fn launch(
    shape: Shape,
    cubes: CubeCount,
    asked: &Asked,
    part: &Part<'_>,
    lists: &Lists,
    order: &Order,
) -> Option<()> {
    kernel::sweep::launch(
        &client(&lists.counts)?,
        cubes,
        CubeDim::new_1d(u32::try_from(shape.units()).ok()?),
        GROUP,
        real(&asked.queries)?,
        real(part.beta)?,
        tiles(asked, part, lists, order)?,
        shape,
    );
    Some(())
}

#[allow(clippy::cast_possible_truncation, reason = "tiles fit 32 bits")]
#[allow(clippy::too_many_lines, reason = "a kernel is one function")]
#[allow(clippy::similar_names, reason = "across queries, y, and across actions, x")]
mod kernel {
    use cubecl::cmma;
    use cubecl::prelude::*;
    use half::f16;

    use super::super::GROUP;
    use super::super::tile::{Tiles, copy};
    use super::Shape;

    #[cube(launch)]
    pub(super) fn sweep<N: Size>(
        queries: &Tensor<Vector<f16, N>>,
        beta: &Tensor<Vector<f16, N>>,
        tiles: &mut Tiles,
        #[comptime] shape: Shape,
    ) {
        let (side, depth, together) = comptime!((shape.side, shape.depth, shape.together));
        let plane_size = comptime!(shape.plane);
        let [planes_y, planes_x] = comptime!(shape.planes);
        let [each_y, each_x] = comptime!(shape.each);
        let [height, breadth] = comptime!(shape.tile());
        let (units, line, sum_line) = comptime!((shape.units(), shape.line(), shape.sum_line()));
        let (stride, sum_stride) = comptime!(((line * GROUP) as u32, (sum_line * GROUP) as u32));
        let sum_size = comptime!(side * sum_line);
        let tile = tiles.own();
        let mut of_queries = Shared::<[Vector<f16, N>]>::new_aligned_slice(height * line, 16usize);
        let mut of_beta = Shared::<[Vector<f16, N>]>::new_aligned_slice(breadth * line, 16usize);
        let mut limits = Shared::<[f32]>::new_slice(height);
        let mut seen = Shared::<[Vector<f32, N>]>::new_aligned_slice(
            comptime!(planes_y * planes_x * sum_size),
            16usize,
        );

        let unit = UNIT_POS as usize;
        let (plane, lane) = (unit / plane_size, unit % plane_size);
        let (plane_y, plane_x) = (plane / planes_x, plane % planes_x);
        let first_row = CUBE_POS_X as usize * height;
        let first_column = tile * breadth;
        #[unroll]
        for at in 0..comptime!(height.div_ceil(units)) {
            let row = at * units + unit;
            if row < height {
                // Rows behind the last query pass nothing.
                let mut limit = 3.0e38_f32;
                if first_row + row < tiles.rows {
                    limit = tiles.threshold(first_row + row);
                }
                limits[row] = limit;
            }
        }

        let mut sums = Sequence::<cmma::Matrix<f32>>::new();
        #[unroll]
        for _ in 0..each_y * each_x {
            sums.push(cmma::Matrix::<f32>::from_value(
                cmma::MatrixIdent::Accumulator,
                side,
                side,
                side,
                cmma::MatrixLayout::Undefined,
                0.0,
            ));
        }
        let steps = tiles.width.div_ceil(depth);
        for step in 0..steps {
            copy::<f16, f16, N>(
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
            copy::<f16, f16, N>(
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
            for at in 0..comptime!(depth / side) {
                let mut left = Sequence::<cmma::Matrix<Vector<f16, N>>>::new();
                #[unroll]
                for y in 0..each_y {
                    let start = (plane_y * each_y + y) * side * line + at * (side / GROUP);
                    let all = comptime!(height * line);
                    left.push(cmma::Matrix::<Vector<f16, N>>::from_slice(
                        cmma::MatrixIdent::A,
                        side,
                        side,
                        side,
                        cmma::MatrixLayout::RowMajor,
                        &of_queries[start..all],
                        stride,
                    ));
                }
                #[unroll]
                for x in 0..each_x {
                    let start = (plane_x * each_x + x) * side * line + at * (side / GROUP);
                    let all = comptime!(breadth * line);
                    let right = cmma::Matrix::<Vector<f16, N>>::from_slice(
                        cmma::MatrixIdent::B,
                        side,
                        side,
                        side,
                        cmma::MatrixLayout::ColMajor,
                        &of_beta[start..all],
                        stride,
                    );
                    #[unroll]
                    for y in 0..each_y {
                        let sum = sums.index(y * each_x + x);
                        cmma::execute(left.index(y), &right, sum, sum);
                    }
                }
            }
            sync_cube();
        }

        let own = plane * sum_size;
        let all = comptime!(planes_y * planes_x * sum_size);
        #[unroll]
        for y in 0..each_y {
            #[unroll]
            for part in 0..comptime!(each_x / together) {
                #[unroll]
                for x in 0..together {
                    cmma::store(
                        &mut seen[own + x * (side / GROUP)..all],
                        sums.index(y * each_x + part * together + x),
                        sum_stride,
                        cmma::MatrixLayout::RowMajor,
                    );
                }
                sync_plane();
                // A unit looks at a group of columns of one row.
                let groups = comptime!(together * side / GROUP);
                let at_once = comptime!(plane_size / groups);
                for at in 0..comptime!(side.div_ceil(at_once)) {
                    let row = at * at_once + lane / groups;
                    let group = lane % groups;
                    if comptime!(at_once <= side) || row < side {
                        let four = seen[own + row * sum_line + group];
                        let row = (plane_y * each_y + y) * side + row;
                        let limit = limits[row];
                        let greatest = max(
                            max(four.extract(0usize), four.extract(1usize)),
                            max(four.extract(2usize), four.extract(3usize)),
                        );
                        if greatest > limit {
                            let column =
                                (plane_x * each_x + part * together) * side + group * GROUP;
                            #[unroll]
                            for k in 0..GROUP {
                                let product = four.extract(k);
                                let place = first_column + column + k;
                                if product > limit && place < tiles.end {
                                    tiles.keep(first_row + row, place, product);
                                }
                            }
                        }
                    }
                }
                sync_plane();
            }
        }
    }
}
