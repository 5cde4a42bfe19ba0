#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "small sizes")]
#![allow(clippy::cast_sign_loss, reason = "small sizes")]

use burn::tensor::{Device, TensorData};
use half::f16;

use super::*;
use crate::device::{choose, list_to_device, rows_to_device};
use crate::matrix::{Matrix, dot};
use crate::seed::{Purpose, Seed, Stream};

/// Numbers behind the end of what may be written, and rows of NaN behind the factors.
const GUARD: usize = 3;

fn adapter() -> Option<Device> {
    choose(Some("wgpu"))
        .map_err(|error| eprintln!("skipped wgpu: {error}"))
        .ok()
        .map(|of| of.device)
}

fn normals(stream: &mut Stream, rows: usize, cols: usize) -> Matrix {
    let mut matrix = Matrix::zeros(rows, cols);
    stream.fill_normals(matrix.as_mut_slice());
    matrix
}

/// Queries and actions.
type Places = Vec<[i32; 2]>;

/// What of a block passes 0.5 according to the host, and how much and what according to the device whose lists
/// have so much room, when the block is swept over in `shares`.
fn both(
    [rows, width, actions]: [usize; 3],
    room: usize,
    shares: &[f64],
    half: bool,
    device: &Device,
) -> (Places, (Vec<i32>, Places)) {
    let mut stream = Seed(3).stream(Purpose::Synthetic, 4, (rows * actions) as u64);
    let [mut latent, mut own] = [rows, actions].map(|count| normals(&mut stream, count, width));
    if half {
        let rounded = |number: &mut f32| *number = f16::from_f32(*number).to_f32();
        latent.as_mut_slice().iter_mut().for_each(rounded);
        own.as_mut_slice().iter_mut().for_each(rounded);
    }
    let (offset, stride) = (1000, if actions.is_multiple_of(7) { 1 } else { 7 });
    let excluded: Vec<i32> = (0..actions).step_by(3).map(|at| (offset + at) as i32).collect();
    // Every second query leaves the excluded actions out.
    let starts: Vec<i32> = (0..=rows).map(|row| ((row / 2) * excluded.len()) as i32).collect();
    let lists = excluded.repeat(rows / 2 + 1);
    let mut expected = Vec::new();
    for row in 0..rows {
        let list = &lists[starts[row] as usize..starts[row + 1] as usize];
        for at in 0..actions {
            let action = (offset + at * stride % actions) as i32;
            let passes = dot(latent.row(row), own.row(at)) > 0.5;
            if passes && list.binary_search(&action).is_err() {
                expected.push([row as i32, action]);
            }
        }
    }
    // A tensor of rows that are followed by NaN in the memory that they are a part of.
    let guarded = |matrix: &Matrix| {
        let guard = vec![f32::NAN; GUARD * width];
        let all = rows_to_device(&[matrix.as_slice(), &guard].concat(), width, device);
        let all = if half { all.cast(DType::F16) } else { all };
        all.narrow(0, 0, matrix.rows())
    };
    let (queries, beta) = (guarded(&latent), guarded(&own));
    let asked = Asked {
        queries,
        rounding: Tensor::zeros([rows], device),
        spans: list_to_device(&starts.windows(2).flatten().copied().collect::<Vec<_>>(), device),
        excluded: list_to_device(&lists, device),
        slate_size: 1,
        thresholds: Tensor::full([rows], 0.5, device),
    };
    let all = rows * room + GUARD;
    let lists = Lists {
        counts: Tensor::zeros([rows], device),
        actions: list_to_device(&vec![-7; all], device),
        products: Tensor::full([all], f32::NAN, device),
        room,
    };
    for share in shares.windows(2) {
        let share = share[0]..share[1];
        let part = Part { beta: &beta, offset, stride, share, turn: 0.3 };
        super::sweep(&asked, &part, &lists).expect("the adapter runs kernels");
    }
    let list = |of: Tensor<1, Int>| of.into_data().convert::<i32>().try_into_vec::<i32>().unwrap();
    let (counts, found) = (list(lists.counts), list(lists.actions));
    let products: Vec<f32> = lists.products.into_data().try_into_vec().unwrap();
    let mut places = Vec::new();
    for (at, (action, product)) in found.iter().zip(&products).enumerate() {
        let row = at / room;
        if row < rows && at % room < counts[row] as usize {
            assert!(*product > 0.5);
            places.push([row as i32, *action]);
        } else {
            assert!(*action == -7 && product.is_nan(), "written behind the end of a list");
        }
    }
    places.sort_unstable();
    expected.sort_unstable();
    (expected, (counts, places))
}

#[test]
fn a_sweep_stays_within_its_bounds_and_misses_nothing() {
    let Some(device) = adapter() else { return };
    for half in [false, true] {
        if half && !device.supports_dtype(DType::F16) {
            return eprintln!("skipped wgpu with f16, which this adapter does not have");
        }
        for sizes in
            [[1, 16, 1], [5, 16, 130], [33, 32, 127], [70, 48, 300], [150, 16, 129], [64, 64, 64]]
        {
            for shares in [&[0.0, 1.0][..], &[0.0, 0.1, 0.6, 1.0]] {
                let (expected, (counts, found)) = both(sizes, sizes[2], shares, half, &device);
                assert_eq!(found, expected, "{half}, {sizes:?}");
                assert_eq!(counts.iter().sum::<i32>() as usize, expected.len());
            }
        }
        let (expected, (counts, found)) = both([40, 16, 200], 30, &[0.0, 1.0], half, &device);
        assert_eq!(counts.iter().sum::<i32>() as usize, expected.len(), "all are counted");
        let kept: usize = counts.iter().map(|count| (*count as usize).min(30)).sum();
        assert!(found.len() == kept && kept < expected.len());
        assert!(found.iter().all(|place| expected.contains(place)));
    }
    // Rows of 20 and of 100 numbers are read in slices of 20.
    for width in [20, 100] {
        let (expected, (_, found)) = both([9, width, 140], 140, &[0.0, 1.0], false, &device);
        assert_eq!(found, expected);
    }
}

#[test]
fn pruning_keeps_what_may_be_among_the_best() {
    let Some(device) = adapter() else { return };
    let (rows, room, kept_room, slate_size, rounding) = (7, 300, 40, 7, 0.25);
    // Lists of no, of few, of many, of equal, and of more products than there is room for, of which one was
    // crowded before.
    let counts = [0, 3, 250, 300, 20, 310, i32::MIN + 5];
    let mut stream = Seed(4).stream(Purpose::Synthetic, 4, 0);
    let mut products = normals(&mut stream, rows, room);
    products.row_mut(4).fill(-1.5);
    let list = |of: &[i32]| list_to_device(of, &device);
    let reals = |of: &[f32]| Tensor::<1>::from_data(TensorData::from(of), &device);
    let asked = Asked {
        queries: Tensor::zeros([1, 4], &device),
        rounding: Tensor::full([rows], rounding, &device),
        spans: list(&[0]),
        excluded: list(&[0]),
        slate_size,
        thresholds: Tensor::full([rows], -9.0, &device),
    };
    let actions: Vec<i32> = (0..(rows * room) as i32).collect();
    let from = Lists {
        counts: list(&counts),
        actions: list(&actions),
        products: reals(products.as_slice()),
        room,
    };
    let to = Lists {
        actions: list(&vec![-7; rows * kept_room]),
        ..Lists::with_room(kept_room, rows, &device)
    };
    super::prune(&asked, &from, &to).expect("the adapter runs kernels");
    let list = |of: Tensor<1, Int>| of.into_data().convert::<i32>().try_into_vec::<i32>().unwrap();
    let (kept, found) = (list(to.counts), list(to.actions));
    let thresholds: Vec<f32> = asked.thresholds.into_data().try_into_vec().unwrap();
    assert_eq!(kept.iter().map(|count| *count < 0).collect::<Vec<_>>()[4..], [false, true, true]);
    for (row, count) in counts.into_iter().enumerate() {
        if kept[row] < 0 {
            continue;
        }
        let count = count as usize;
        let mut best: Vec<f32> = products.row(row)[..count].to_vec();
        best.sort_unstable_by(|a, b| b.total_cmp(a));
        if count < slate_size {
            assert!(kept[row] as usize == count && thresholds[row] == -9.0);
            continue;
        }
        let exact = best[slate_size - 1] - rounding;
        assert!(thresholds[row] <= exact && exact - thresholds[row] < 2e-3, "{row}");
        let expected = products.row(row)[..count].iter().enumerate();
        let expected = expected.filter(|(_, product)| **product > thresholds[row]);
        let expected: Vec<i32> = expected.map(|(at, _)| (row * room + at) as i32).collect();
        let first = row * kept_room;
        let mut found = found[first..first + kept[row] as usize].to_vec();
        found.sort_unstable();
        assert_eq!(found, expected, "{row}");
    }
}

#[test]
fn packing_puts_lists_one_after_the_other() {
    let Some(device) = adapter() else { return };
    let counts = [2, 0, -5, 4, 3];
    let actions: Vec<i32> = (0..20).collect();
    for (capacity, left_out) in [(9, 0), (20, 0), (8, 1)] {
        let lists = Lists {
            counts: list_to_device(&counts, &device),
            actions: list_to_device(&actions, &device),
            products: Tensor::zeros([20], &device),
            room: 4,
        };
        let packed = list_to_device(&vec![-7; 2 * counts.len() + capacity], &device);
        super::pack(&lists, &packed).expect("the adapter runs kernels");
        let packed = packed.into_data().convert::<i32>().try_into_vec::<i32>().unwrap();
        let (found, rest) = packed.split_at(counts.len());
        let (starts, packed) = rest.split_at(counts.len());
        let mut missing = 0;
        for (row, count) in counts.into_iter().enumerate() {
            if found[row] < 0 {
                missing += usize::from(count >= 0);
                continue;
            }
            assert_eq!(found[row], count);
            let expected: Vec<i32> = (0..count).map(|at| 4 * row as i32 + at).collect();
            assert_eq!(packed[starts[row] as usize..][..count as usize], expected);
        }
        assert_eq!(missing, left_out);
    }
}
