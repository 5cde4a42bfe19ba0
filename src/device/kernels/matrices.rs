//! Tiles of products of numbers in f16, summed up in f32, by the matrix units that some GPUs have (tensor cores,
//! cooperative matrices). The units of a plane multiply 16 × 16 numbers at a time and do not tell which
//! of them holds what, so sums go through shared memory before they are looked at.

use cubecl::client::Client;
use cubecl::features::MmaConfig;
use cubecl::ir::{ElemType, FloatKind};
use cubecl::prelude::{CubeCount, CubeDim};

use super::super::lists::{Asked, Lists, Part};
use super::{GROUP, Order, client, real, whole};

/// Rows, columns and depth of a product of matrix units.
const SIDE: usize = 16;

/// Units of a plane.
const PLANE: u32 = 32;

/// The most planes of a shape.
const MOST_PLANES: u32 = 16;

/// The shared memory that the larger shape takes, in bytes.
const SHARED: usize = 45 << 10;

/// How a cube shares its tile among planes.
#[derive(Debug)]
pub(super) struct Shape {
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
    /// The one that was the fastest for so many queries, of twenty on an H200.
    pub(super) fn of(rows: usize) -> Self {
        if rows <= 2 * SIDE {
            Self { planes: [1, 4], each: [2, 2], depth: 32, together: 2 }
        } else {
            Self { planes: [4, 4], each: [2, 4], depth: 16, together: 1 }
        }
    }

    /// Queries and actions of a tile.
    pub(super) fn tile(&self) -> [usize; 2] {
        [0, 1].map(|at| self.planes[at] * self.each[at] * SIDE)
    }
}

/// True if the device has such units.
pub(super) fn runs_on(client: &Client) -> bool {
    let (half, single) = (ElemType::Float(FloatKind::F16), ElemType::Float(FloatKind::F32));
    let properties = client.properties();
    let side = u32::try_from(SIDE).unwrap_or(u32::MAX);
    let wanted =
        MmaConfig { a_type: half, b_type: half, cd_type: single, m: side, n: side, k: side };
    let hardware = &properties.hardware;
    properties.features.matmul.cmma.contains(&wanted)
        && (hardware.plane_size_min, hardware.plane_size_max) == (PLANE, PLANE)
        && hardware.max_shared_memory_size >= SHARED
        && hardware.max_units_per_cube >= MOST_PLANES * PLANE
}

/// Starts the kernel on the cubes of some tiles.
pub(super) fn launch(
    shape: &Shape,
    cubes: CubeCount,
    asked: &Asked,
    part: &Part<'_>,
    lists: &Lists,
    order: &Order,
) -> Option<()> {
    let ([rows, width], [actions, _]) = (asked.queries.dims(), part.beta.dims());
    let planes = u32::try_from(shape.planes[0] * shape.planes[1]).ok()?;
    kernel::sweep::launch(
        &client(&lists.counts)?,
        cubes,
        CubeDim::new_1d(PLANE * planes),
        GROUP,
        real(&asked.queries)?,
        real(part.beta)?,
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
        shape.planes[0],
        shape.planes[1],
        shape.each[0],
        shape.each[1],
        shape.depth,
        shape.together,
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
    use super::super::tile::{copy, keep};
    use super::{PLANE, SIDE};

    #[cube(launch)]
    #[allow(clippy::too_many_arguments, reason = "the arguments of a kernel are bound one by one")]
    pub(super) fn sweep<N: Size>(
        queries: &Tensor<Vector<f16, N>>,
        beta: &Tensor<Vector<f16, N>>,
        thresholds: &Tensor<f32>,
        spans: &Tensor<i32>,
        excluded: &Tensor<i32>,
        counts: &mut Tensor<Atomic<i32>>,
        actions: &mut Tensor<i32>,
        products: &mut Tensor<f32>,
        rows: usize,
        end: usize,
        width: usize,
        offset: usize,
        stride_of_actions: usize,
        first_visit: usize,
        shift: u32,
        tiles: usize,
        room: usize,
        #[comptime] planes_y: usize,
        #[comptime] planes_x: usize,
        #[comptime] each_y: usize,
        #[comptime] each_x: usize,
        #[comptime] depth: usize,
        #[comptime] together: usize,
    ) {
        let height = comptime!(planes_y * each_y * SIDE);
        let breadth = comptime!(planes_x * each_x * SIDE);
        let units = comptime!(planes_y * planes_x * PLANE as usize);
        // Two groups more than a line needs, so that the rows of a matrix lie in different banks.
        let line = comptime!(depth / GROUP + 2);
        let stride = comptime!((depth + 2 * GROUP) as u32);
        let sum_line = comptime!(together * SIDE / GROUP + 2);
        let sum_stride = comptime!((together * SIDE + 2 * GROUP) as u32);
        let sum_size = comptime!(SIDE * (together * SIDE / GROUP + 2));
        let visit = first_visit as u32 + CUBE_POS_Y;
        let tile = (visit.reverse_bits() >> shift) as usize;
        if tile >= tiles {
            terminate!();
        }
        let mut of_queries = Shared::<[Vector<f16, N>]>::new_aligned_slice(height * line, 16usize);
        let mut of_beta = Shared::<[Vector<f16, N>]>::new_aligned_slice(breadth * line, 16usize);
        let mut limits = Shared::<[f32]>::new_slice(height);
        let mut seen = Shared::<[Vector<f32, N>]>::new_aligned_slice(
            comptime!(planes_y * planes_x * sum_size),
            16usize,
        );

        let unit = UNIT_POS as usize;
        let (plane, lane) = (unit / PLANE as usize, unit % PLANE as usize);
        let (plane_y, plane_x) = (plane / planes_x, plane % planes_x);
        let first_row = CUBE_POS_X as usize * height;
        let first_column = tile * breadth;
        if unit < height {
            // Rows behind the last query pass nothing.
            let mut limit = 3.0e38_f32;
            if first_row + unit < rows {
                limit = thresholds[first_row + unit];
            }
            limits[unit] = limit;
        }

        let mut sums = Sequence::<cmma::Matrix<f32>>::new();
        #[unroll]
        for _ in 0..each_y * each_x {
            sums.push(cmma::Matrix::<f32>::from_value(
                cmma::MatrixIdent::Accumulator,
                SIDE,
                SIDE,
                SIDE,
                cmma::MatrixLayout::Undefined,
                0.0,
            ));
        }
        let steps = width.div_ceil(depth);
        for step in 0..steps {
            copy::<f16, f16, N>(
                queries,
                &mut of_queries,
                first_row,
                rows,
                step,
                width,
                height,
                depth,
                line,
                units,
            );
            copy::<f16, f16, N>(
                beta,
                &mut of_beta,
                first_column,
                end,
                step,
                width,
                breadth,
                depth,
                line,
                units,
            );
            sync_cube();
            #[unroll]
            for at in 0..comptime!(depth / SIDE) {
                let mut left = Sequence::<cmma::Matrix<Vector<f16, N>>>::new();
                #[unroll]
                for y in 0..each_y {
                    let start = (plane_y * each_y + y) * SIDE * line + at * (SIDE / GROUP);
                    let all = comptime!(height * line);
                    left.push(cmma::Matrix::<Vector<f16, N>>::from_slice(
                        cmma::MatrixIdent::A,
                        SIDE,
                        SIDE,
                        SIDE,
                        cmma::MatrixLayout::RowMajor,
                        &of_queries[start..all],
                        stride,
                    ));
                }
                #[unroll]
                for x in 0..each_x {
                    let start = (plane_x * each_x + x) * SIDE * line + at * (SIDE / GROUP);
                    let all = comptime!(breadth * line);
                    let right = cmma::Matrix::<Vector<f16, N>>::from_slice(
                        cmma::MatrixIdent::B,
                        SIDE,
                        SIDE,
                        SIDE,
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
                        &mut seen[own + x * (SIDE / GROUP)..all],
                        sums.index(y * each_x + part * together + x),
                        sum_stride,
                        cmma::MatrixLayout::RowMajor,
                    );
                }
                sync_plane();
                for at in 0..comptime!(2 * together) {
                    // A unit looks at a group of columns of one row.
                    let groups = comptime!(together * SIDE / GROUP);
                    let row = at * comptime!(8 / together) + lane / groups;
                    let group = lane % groups;
                    let four = seen[own + row * sum_line + group];
                    let row = (plane_y * each_y + y) * SIDE + row;
                    let limit = limits[row];
                    let greatest = max(
                        max(four.extract(0usize), four.extract(1usize)),
                        max(four.extract(2usize), four.extract(3usize)),
                    );
                    if greatest > limit {
                        let column = (plane_x * each_x + part * together) * SIDE + group * GROUP;
                        #[unroll]
                        for k in 0..GROUP {
                            let product = four.extract(k);
                            let place = first_column + column + k;
                            if product > limit && place < end {
                                keep(
                                    first_row + row,
                                    offset + place * stride_of_actions % end,
                                    product,
                                    spans,
                                    excluded,
                                    counts,
                                    actions,
                                    products,
                                    room,
                                );
                            }
                        }
                    }
                }
                sync_plane();
            }
        }
    }
}
