//! Queries, a block of β and a threshold for each query in, the products above it out, in no order: a
//! kernel that looks through products, and one that multiplies tile by tile and keeps nothing of a tile
//! but what passes.
//!
//! A cube of 16 × 16 units makes a tile of products. Slices of both factors go through shared memory, 16
//! numbers of each row at a time; a unit holds the sums of its 8 columns and up to 8 rows in registers.

use burn::tensor::{DType, Tensor};
use cubecl::prelude::{CubeCount, CubeDim};
use half::f16;

use super::{Cube, Over, Passed};

/// Units of a cube on each side.
const SIDE: usize = 16;
/// Columns of a unit: actions.
const COLUMNS: usize = 8;
/// Numbers of a row that are in shared memory at a time.
const DEPTH: usize = 16;

/// Units of a cube that looks through products.
const LINE: usize = 256;

/// Starts the kernel, which adds what passes to `passed`; none on a device that runs none.
pub(super) fn launch(over: &Over<'_>, passed: &Passed) -> Option<()> {
    let [rows, dim] = over.queries.dims();
    let float = |tensor: &Tensor<2>| tensor.clone().try_into_primitive::<Cube>().ok();
    let thresholds = over.thresholds.clone().try_into_primitive::<Cube>().ok()?;
    let starts = over.starts.clone().try_into_primitive::<Cube>().ok()?;
    let excluded = over.excluded.clone().try_into_primitive::<Cube>().ok()?;
    let count = passed.count.clone().try_into_primitive::<Cube>().ok()?;
    let places = passed.places.clone().try_into_primitive::<Cube>().ok()?;
    let scores = passed.scores.clone().try_into_primitive::<Cube>().ok()?;
    let client = count.client.clone();
    let tiles = |count: usize, size: usize| u32::try_from(count.div_ceil(size)).ok();
    if let Some(products) = over.products {
        kernel::pick::launch(
            &client,
            CubeCount::Static(tiles(over.part.len(), LINE)?, tiles(rows, 1)?, 1),
            CubeDim::new_1d(u32::try_from(LINE).ok()?),
            float(products)?.into_tensor_arg(),
            thresholds.into_tensor_arg(),
            starts.into_tensor_arg(),
            excluded.into_tensor_arg(),
            count.into_tensor_arg(),
            places.into_tensor_arg(),
            scores.into_tensor_arg(),
            over.part.len(),
            over.offset + over.part.start,
            over.capacity,
        );
        return Some(());
    }
    // A few queries get tiles that are not mostly empty.
    let each = [2, 4].into_iter().find(|each| rows <= SIDE * each).unwrap_or(8);
    let units = u32::try_from(SIDE).ok()?;
    let sweep = match over.beta.dtype() {
        DType::F16 => kernel::sweep::launch::<f16>,
        _ => kernel::sweep::launch::<f32>,
    };
    sweep(
        &client,
        CubeCount::Static(tiles(over.part.len(), SIDE * COLUMNS)?, tiles(rows, SIDE * each)?, 1),
        CubeDim::new_2d(units, units),
        float(over.queries)?.into_tensor_arg(),
        float(over.beta)?.into_tensor_arg(),
        thresholds.into_tensor_arg(),
        starts.into_tensor_arg(),
        excluded.into_tensor_arg(),
        count.into_tensor_arg(),
        places.into_tensor_arg(),
        scores.into_tensor_arg(),
        rows,
        dim,
        over.part.start,
        over.part.end,
        over.offset,
        over.capacity,
        each,
    );
    Some(())
}

/// The kernels. Here a tensor is one of CubeCL.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "actions fit 31 bits"
)]
#[allow(clippy::cast_sign_loss, clippy::manual_midpoint, reason = "numbers from 0, of 31 bits")]
mod kernel {
    use cubecl::prelude::*;

    use super::{COLUMNS, DEPTH, LINE, SIDE};

    #[cube(launch)]
    #[allow(clippy::too_many_arguments, reason = "the arguments of a kernel are bound one by one")]
    pub(super) fn sweep<B: Float>(
        queries: &Tensor<f32>,
        beta: &Tensor<B>,
        thresholds: &Tensor<f32>,
        starts: &Tensor<i32>,
        excluded: &Tensor<i32>,
        count: &mut Tensor<Atomic<i32>>,
        places: &mut Tensor<i32>,
        scores: &mut Tensor<f32>,
        rows: usize,
        dim: usize,
        first: usize,
        end: usize,
        offset: usize,
        capacity: usize,
        #[comptime] each: usize,
    ) {
        // One number more in a row of shared memory, so that units write to different banks.
        let width = comptime!(SIDE * each + 1);
        let height = comptime!(SIDE * COLUMNS + 1);
        let mut slice_of_queries = Shared::<[f32]>::new_slice(DEPTH * width);
        let mut slice_of_beta = Shared::<[f32]>::new_slice(DEPTH * height);
        let mut sums = Array::<f32>::new(each * COLUMNS);
        #[unroll]
        for at in 0..each * COLUMNS {
            sums[at] = 0.0;
        }

        let unit = UNIT_POS as usize;
        let (x, y) = (unit % SIDE, unit / SIDE);
        let first_row = CUBE_POS_Y as usize * SIDE * each;
        let first_column = first + CUBE_POS_X as usize * SIDE * COLUMNS;
        let (query_stride, beta_stride) = (queries.stride(0), beta.stride(0));

        let steps = dim.div_ceil(DEPTH);
        for step in 0..steps {
            // Units 0 to 15 read the same row, 16 to 31 the next, and so on.
            let number = step * DEPTH + x;
            #[unroll]
            for at in 0..each {
                let row = y + at * SIDE;
                let mut value = 0.0_f32;
                if first_row + row < rows && number < dim {
                    value = queries[(first_row + row) * query_stride + number];
                }
                slice_of_queries[x * width + row] = value;
            }
            #[unroll]
            for at in 0..COLUMNS {
                let column = y + at * SIDE;
                let mut value = 0.0_f32;
                if first_column + column < end && number < dim {
                    value = f32::cast_from(beta[(first_column + column) * beta_stride + number]);
                }
                slice_of_beta[x * height + column] = value;
            }
            sync_cube();
            #[unroll]
            for number in 0..DEPTH {
                let mut of_queries = Array::<f32>::new(each);
                #[unroll]
                for at in 0..each {
                    of_queries[at] = slice_of_queries[number * width + y + at * SIDE];
                }
                #[unroll]
                for column in 0..COLUMNS {
                    let of_beta = slice_of_beta[number * height + x + column * SIDE];
                    #[unroll]
                    for row in 0..each {
                        sums[row * COLUMNS + column] += of_queries[row] * of_beta;
                    }
                }
            }
            sync_cube();
        }

        #[unroll]
        for at in 0..each {
            let row = first_row + y + at * SIDE;
            if row < rows {
                let threshold = thresholds[row];
                #[unroll]
                for column in 0..COLUMNS {
                    let score = sums[at * COLUMNS + column];
                    let place = first_column + x + column * SIDE;
                    if place < end && score > threshold {
                        keep(
                            row,
                            (offset + place) as i32,
                            score,
                            starts,
                            excluded,
                            count,
                            places,
                            scores,
                            capacity,
                        );
                    }
                }
            }
        }
    }

    #[cube(launch)]
    #[allow(clippy::too_many_arguments, reason = "the arguments of a kernel are bound one by one")]
    pub(super) fn pick(
        products: &Tensor<f32>,
        thresholds: &Tensor<f32>,
        starts: &Tensor<i32>,
        excluded: &Tensor<i32>,
        count: &mut Tensor<Atomic<i32>>,
        places: &mut Tensor<i32>,
        scores: &mut Tensor<f32>,
        columns: usize,
        offset: usize,
        capacity: usize,
    ) {
        let row = CUBE_POS_Y as usize;
        let column = CUBE_POS_X as usize * LINE + UNIT_POS as usize;
        if column < columns {
            let score = products[row * products.stride(0) + column];
            if score > thresholds[row] {
                let action = (offset + column) as i32;
                keep(row, action, score, starts, excluded, count, places, scores, capacity);
            }
        }
    }

    /// Writes and counts a product unless its action is excluded. The first ones for which there is no room are
    /// counted, too; were all of them, the count would run over.
    #[cube]
    #[allow(clippy::too_many_arguments, reason = "the buffers of a kernel are bound one by one")]
    fn keep(
        row: usize,
        action: i32,
        score: f32,
        starts: &Tensor<i32>,
        excluded: &Tensor<i32>,
        count: &mut Tensor<Atomic<i32>>,
        places: &mut Tensor<i32>,
        scores: &mut Tensor<f32>,
        capacity: usize,
    ) {
        let (mut low, mut high) = (starts[row], starts[row + 1]);
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
        if shown && count[0].load() as usize <= capacity {
            let slot = count[0].fetch_add(1) as usize;
            if slot < capacity {
                places[2 * slot] = row as i32;
                places[2 * slot + 1] = action;
                scores[slot] = score;
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "small sizes")]
#[allow(clippy::cast_sign_loss, reason = "small sizes")]
mod tests {
    use burn::tensor::{Device, Int, TensorData};

    use super::*;
    use crate::device::{choose, rows_to_device, to_device};
    use crate::matrix::{Matrix, dot};
    use crate::seed::{Purpose, Seed, Stream};

    /// A row of NaN before and after what is used of a factor, and after what may be written.
    const GUARD: usize = 3;

    fn normals(stream: &mut Stream, rows: usize, cols: usize) -> Matrix {
        let mut matrix = Matrix::zeros(rows, cols);
        stream.fill_normals(matrix.as_mut_slice());
        matrix
    }

    /// Queries and actions.
    type Places = Vec<[i32; 2]>;

    /// What the kernel is given.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Given {
        Products,
        Beta,
        BetaInHalf,
    }

    /// What passes according to the host, and how much and what according to the device with room for
    /// `capacity`.
    fn both(
        [rows, dim, part]: [usize; 3],
        capacity: usize,
        given: Given,
        device: &Device,
    ) -> (Places, (usize, Places)) {
        let mut stream = Seed(3).stream(Purpose::Synthetic, 4, (rows * part) as u64);
        let (queries, mut own) = (normals(&mut stream, rows, dim), normals(&mut stream, part, dim));
        if given == Given::BetaInHalf {
            let rounded = |number: &mut f32| *number = f16::from_f32(*number).to_f32();
            own.as_mut_slice().iter_mut().for_each(rounded);
        }
        let offset = 1000;
        let excluded: Vec<i32> =
            (0..part).step_by(3).map(|at| (offset + GUARD + at) as i32).collect();
        // Every second query leaves the excluded actions out.
        let starts = (0..=rows).map(|row| ((row / 2) * excluded.len()) as i32).collect::<Vec<_>>();
        let lists = excluded.repeat(rows / 2 + 1);
        let mut expected = Vec::new();
        for row in 0..rows {
            let list = &lists[starts[row] as usize..starts[row + 1] as usize];
            for at in 0..part {
                let action = (offset + GUARD + at) as i32;
                let passes = dot(queries.row(row), own.row(at)) > 0.5;
                if passes && list.binary_search(&action).is_err() {
                    expected.push([row as i32, action]);
                }
            }
        }

        let guard = vec![f32::NAN; GUARD * dim];
        let beta = rows_to_device(&[&guard, own.as_slice(), &guard].concat(), dim, device);
        let beta = if given == Given::BetaInHalf { beta.cast(DType::F16) } else { beta };
        let integers = |list: &[i32]| Tensor::<1, Int>::from_data(TensorData::from(list), device);
        let room = capacity + GUARD;
        let passed = Passed {
            count: Tensor::zeros([1], device),
            places: integers(&vec![-7; 2 * room]),
            scores: Tensor::full([room], f32::NAN, device),
        };
        let latent = to_device(&queries, device);
        let products = (given == Given::Products)
            .then(|| latent.clone().matmul(beta.clone().narrow(0, GUARD, part).transpose()));
        let over = Over {
            queries: &latent,
            beta: &beta,
            products: products.as_ref(),
            part: GUARD..GUARD + part,
            offset,
            thresholds: &Tensor::full([rows], 0.5, device),
            starts: &integers(&starts),
            excluded: &integers(&lists),
            capacity,
        };
        launch(&over, &passed).expect("the adapter runs kernels");
        let count: i32 = passed.count.into_scalar();
        let places: Vec<i32> = passed.places.into_data().convert::<i32>().try_into_vec().unwrap();
        let scores: Vec<f32> = passed.scores.into_data().try_into_vec().unwrap();
        let kept = (count as usize).min(capacity);
        assert!(scores[..kept].iter().all(|score| *score > 0.5));
        assert!(scores[kept..].iter().all(|score| score.is_nan()), "written behind the end");
        assert!(places[2 * kept..].iter().all(|place| *place == -7), "written behind the end");
        let mut found = places[..2 * kept].as_chunks::<2>().0.to_vec();
        found.sort_unstable();
        (expected, (count as usize, found))
    }

    #[test]
    fn a_sweep_stays_within_its_bounds_and_misses_nothing() {
        let device = match choose(Some("wgpu")) {
            Ok(chosen) => chosen.device,
            Err(error) => return eprintln!("skipped wgpu: {error}"),
        };
        for given in [Given::Products, Given::Beta, Given::BetaInHalf] {
            if given == Given::BetaInHalf && !device.supports_dtype(DType::F16) {
                return eprintln!("skipped wgpu with f16, which this adapter does not have");
            }
            for sizes in [[1, 1, 1], [5, 3, 130], [33, 17, 127], [70, 40, 300], [150, 16, 129]] {
                let (expected, (count, found)) = both(sizes, sizes[0] * sizes[2], given, &device);
                assert_eq!((count, found), (expected.len(), expected), "{given:?}, {sizes:?}");
            }
            let (expected, (count, found)) = both([40, 8, 200], 100, given, &device);
            assert!((101..=expected.len()).contains(&count), "{count}");
            assert!(found.len() == 100 && found.iter().all(|place| expected.contains(place)));
        }
    }
}
