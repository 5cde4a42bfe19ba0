//! Takes both sides of a factorisation, users and items, and improves one of them given the other, by
//! conjugate gradients on blocks of rows.

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use crate::dataset::ActionSets;
use crate::embedding::FoldInOptions;
use crate::embedding::fold_in::gram;
use crate::matrix::{Matrix, dot};

/// Numbers in a vector register; rows of factors are padded with zeros to whole ones.
pub(super) const LANES: usize = 8;
/// Rows in a block; their products with the Gram matrix are one matrix product, which reads all of that matrix.
const BLOCK: usize = 128;
/// Steps of conjugate gradients in a sweep.
pub(super) const STEPS: usize = 3;

/// What λ is multiplied with for each row x in λ‖x‖².
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Penalty {
    /// 1.
    Same,
    /// The size of the row's set, over the mean of those that are not empty (Zhou et al., *Large-scale Parallel
    /// Collaborative Filtering for the Netflix Prize*, 2008; Rendle et al., *Revisiting the Performance of iALS
    /// on Item Recommendation Benchmarks*, 2022).
    BySize,
}

impl Penalty {
    /// λ for each of so many `rows`.
    #[allow(clippy::cast_possible_truncation, reason = "f32 is the precision of the factors")]
    fn of_rows(self, sets: &ActionSets, rows: usize, lambda: f64) -> Vec<f32> {
        if self == Self::Same {
            return vec![lambda as f32; rows];
        }
        let sizes: Vec<usize> = (0..u32::MAX).take(rows).map(|row| sets.of(row).len()).collect();
        let (sum, used) = (sizes.iter().sum::<usize>(), sizes.iter().filter(|size| **size > 0));
        let mean = sum as f64 / used.count().max(1) as f64;
        sizes.into_iter().map(|size| (lambda * size as f64 / mean) as f32).collect()
    }
}

/// Improves each row of `near` by [`STEPS`] steps towards the least squares solution for the rows of
/// `far` in its set.
#[allow(clippy::cast_possible_truncation, reason = "f32 is the precision of the factors")]
pub(super) fn improve(
    sets: &ActionSets,
    near: &mut Matrix,
    far: &Matrix,
    options: FoldInOptions,
    penalty: Penalty,
) {
    let width = far.cols();
    let lower = gram(far);
    let mut normal = Matrix::zeros(width, width); // FᵀF
    for i in 0..width {
        for (j, value) in normal.row_mut(i).iter_mut().enumerate() {
            *value = lower[(i.max(j), i.min(j))] as f32;
        }
    }
    let ridges = penalty.of_rows(sets, near.rows(), options.regularization);
    let descent = Descent { sets, far, normal, ridges, confidence: options.confidence as f32 };
    let arch = Arch::new();
    let blocks = near.as_mut_slice().par_chunks_mut(BLOCK * width).zip(0_u32..u32::MAX);
    blocks.for_each(|(rows, block)| {
        arch.dispatch(Block { descent: &descent, rows, first: block * BLOCK as u32 });
    });
}

/// Conjugate gradients on `(FᵀF + λI + α Σ f fᵀ) x = (1 + α) Σ f`, the sums over the rows f of a set.
struct Descent<'a> {
    sets: &'a ActionSets,
    far: &'a Matrix,
    normal: Matrix,
    /// λ of each row.
    ridges: Vec<f32>,
    confidence: f32,
}

impl Descent<'_> {
    /// Improves `rows`, which belong to the sets from `first` on.
    #[allow(clippy::inline_always, reason = "must be compiled into the dispatch")]
    #[inline(always)]
    fn improve(&self, rows: &mut [f32], first: u32) {
        let width = self.far.cols();
        let of_rows = || (first..).map(|row| (self.sets.of(row), self.ridges[row as usize]));
        let mut image = vec![0.0; rows.len()];
        self.times_normal(rows, &mut image);
        let mut residuals = vec![0.0; rows.len()];
        let mut energies = vec![0.0; rows.len() / width];
        let each = rows.chunks_exact_mut(width).zip(image.chunks_exact(width));
        let each = each.zip(residuals.chunks_exact_mut(width)).zip(&mut energies);
        for ((((row, image), residual), energy), (set, ridge)) in each.zip(of_rows()) {
            if set.is_empty() {
                // Zero is the solution, and the residual stays 0.
                row.fill(0.0);
                continue;
            }
            residual.iter_mut().zip(image).for_each(|(residual, image)| *residual = -image);
            add_scaled(residual, -ridge, row);
            add_weighted(set, self.far, row, [1.0 + self.confidence, -self.confidence], residual);
            *energy = dot(residual, residual);
        }
        let mut directions = residuals.clone();
        for _ in 0..STEPS {
            self.times_normal(&directions, &mut image);
            let each = rows.chunks_exact_mut(width).zip(image.chunks_exact_mut(width));
            let each = each.zip(residuals.chunks_exact_mut(width));
            let each = each.zip(directions.chunks_exact_mut(width)).zip(&mut energies);
            for (((((row, image), residual), direction), energy), (set, ridge)) in
                each.zip(of_rows())
            {
                add_scaled(image, ridge, direction);
                add_weighted(set, self.far, direction, [0.0, self.confidence], image);
                let curvature = dot(direction, image);
                // At the solution, or so close that the squares underflow.
                if *energy < f32::MIN_POSITIVE || curvature < f32::MIN_POSITIVE {
                    direction.fill(0.0);
                    continue;
                }
                let step = *energy / curvature;
                add_scaled(row, step, direction);
                add_scaled(residual, -step, image);
                let left = dot(residual, residual);
                let keep = left / *energy;
                *energy = left;
                direction.iter_mut().zip(&*residual).for_each(|(direction, residual)| {
                    *direction = keep * *direction + residual;
                });
            }
        }
    }

    /// `image = rows · FᵀF`.
    fn times_normal(&self, rows: &[f32], image: &mut [f32]) {
        let width = self.far.cols();
        let rows = MatRef::from_row_major_slice(rows, rows.len() / width, width);
        let image = MatMut::from_row_major_slice_mut(image, rows.nrows(), width);
        matmul(image, Accum::Replace, rows, self.normal.view(0, width), 1.0, Par::Seq);
    }
}

/// The arguments of [`Descent::improve`]. A closure would be compiled without the instructions of the
/// dispatch.
struct Block<'a> {
    descent: &'a Descent<'a>,
    rows: &'a mut [f32],
    first: u32,
}

impl WithSimd for Block<'_> {
    type Output = ();

    #[allow(clippy::inline_always, reason = "must be compiled into the dispatch")]
    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        self.descent.improve(self.rows, self.first);
    }
}

/// Adds `Σ (constant + slope · fᵀx) f` over the rows f of `factors` in `set` to `sum`.
#[allow(clippy::inline_always, reason = "must be compiled into the dispatch")]
#[inline(always)]
fn add_weighted(set: &[u32], factors: &Matrix, x: &[f32], weight: [f32; 2], sum: &mut [f32]) {
    // Four rows at a time share the loads of x and the sum, and their products run side by side.
    let (groups, rest) = set.as_chunks::<4>();
    for group in groups {
        add_group(group.map(|at| factors.row(at as usize)), x, weight, sum);
    }
    for &at in rest {
        add_group([factors.row(at as usize)], x, weight, sum);
    }
}

#[allow(clippy::inline_always, reason = "must be compiled into the dispatch")]
#[inline(always)]
fn add_group<const N: usize>(
    rows: [&[f32]; N],
    x: &[f32],
    [constant, slope]: [f32; 2],
    sum: &mut [f32],
) {
    // Slices of the length of x need no bounds checks in the loops.
    let (x, _) = x.as_chunks::<LANES>();
    let rows = rows.map(|row| &row.as_chunks::<LANES>().0[..x.len()]);
    let sum = &mut sum.as_chunks_mut::<LANES>().0[..x.len()];
    let mut products = [[0.0; LANES]; N];
    for (at, x) in x.iter().enumerate() {
        for (product, row) in products.iter_mut().zip(rows) {
            for lane in 0..LANES {
                product[lane] += x[lane] * row[at][lane];
            }
        }
    }
    let weights = products.map(|[a, b, c, d, e, f, g, h]| {
        constant + slope * (((a + e) + (c + g)) + ((b + f) + (d + h)))
    });
    for (at, sum) in sum.iter_mut().enumerate() {
        for (weight, row) in weights.into_iter().zip(rows) {
            for lane in 0..LANES {
                sum[lane] += weight * row[at][lane];
            }
        }
    }
}

#[allow(clippy::inline_always, reason = "must be compiled into the dispatch")]
#[inline(always)]
fn add_scaled(sum: &mut [f32], scale: f32, row: &[f32]) {
    sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += scale * value);
}
