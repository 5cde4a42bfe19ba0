//! Takes a sparse matrix A with scaled rows and columns and returns a subspace that nearly contains its
//! leading singular vectors, by randomised subspace iteration (Halko, Martinsson & Tropp, *Finding
//! structure with randomness*, 2011) with Chebyshev polynomials for powers (Zhou & Saad, *A
//! Chebyshev–Davidson algorithm for large symmetric eigenproblems*, 2007). Singular values of
//! interactions lie close together: where powers need 16 products with A Aᵀ, polynomials need 8.

use std::mem;

use rayon::prelude::*;

use crate::dataset::ActionSets;
use crate::embedding::orthonormal::orthonormalise;
use crate::error::Result;
use crate::interrupt;
use crate::matrix::Matrix;

/// The highest degree of a polynomial.
const MAX_DEGREE: f64 = 4.0;
/// The most that a polynomial may raise the largest singular value above the least of the block, so
/// that the latter keeps digits in f32.
const MAX_GAIN: f64 = 4e7;

/// A or Aᵀ: entry (i, j) is `scale_i · scale_j` where set i has j. The scale of j belongs to the other
/// side.
pub(super) struct Side<'a> {
    sets: &'a ActionSets,
    scales: Vec<f32>,
}

impl<'a> Side<'a> {
    /// The scale of a set of n is `n^−η`; η is `normalization`.
    pub(super) fn new(sets: &'a ActionSets, normalization: f32) -> Self {
        let scale = |set| (sets.of(set).len().max(1) as f32).powf(-normalization);
        Self { sets, scales: sets.contexts().map(scale).collect() }
    }

    /// With these scales.
    pub(super) fn scaled(sets: &'a ActionSets, scales: Vec<f32>) -> Self {
        Self { sets, scales }
    }

    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        self.sets.len()
    }

    /// Writes the product with `block`, which has a row for each row of `other`, over `out`.
    pub(super) fn times(&self, other: &Self, block: &Matrix, out: &mut Matrix) {
        let scales = [&self.scales[..], &other.scales];
        self.sets.scaled_times(scales, block.as_slice(), block.cols(), out.as_mut_slice());
    }

    /// The sum of the squared entries.
    pub(super) fn energy(&self, other: &Self) -> f64 {
        let square = |scale: f32| f64::from(scale).powi(2);
        let row = |(set, scale): (u32, &f32)| {
            let squares = self.sets.of(set).iter().map(|at| square(other.scales[*at as usize]));
            square(*scale) * squares.sum::<f64>()
        };
        self.sets.contexts().zip(&self.scales).map(row).sum()
    }
}

/// C, symmetric, whose eigenvectors are looked for: A Aᵀ or AᵀA, as an operator. It may be somewhere
/// else, in parts.
pub trait Gram {
    /// Writes `C · block` over `out`, which has the same shape.
    ///
    /// # Errors
    /// Fails if a part of it does not answer.
    fn times(&mut self, block: &Matrix, out: &mut Matrix) -> Result<()>;

    /// `bᵀCb` of each column b of `block`, whose product is `product`, the last that was asked for.
    fn lengths(&self, block: &Matrix, product: &Matrix) -> Vec<f64> {
        let mut sums = vec![0.0; block.cols()];
        for (row, product) in block.iter_rows().zip(product.iter_rows()) {
            let products = row.iter().zip(product).map(|(b, cb)| f64::from(*b) * f64::from(*cb));
            sums.iter_mut().zip(products).for_each(|(sum, product)| *sum += product);
        }
        sums
    }
}

/// `A Aᵀ` of a matrix in memory, whose sides are A and Aᵀ.
pub(super) struct Sides<'a> {
    near: &'a Side<'a>,
    far: &'a Side<'a>,
    /// `Aᵀ · block`; it stays where it is, because fresh memory costs as much as a product.
    image: Matrix,
}

impl<'a> Sides<'a> {
    /// For blocks of `width` columns.
    pub(super) fn new(near: &'a Side<'a>, far: &'a Side<'a>, width: usize) -> Self {
        Self { near, far, image: Matrix::zeros(far.len(), width) }
    }
}

impl Gram for Sides<'_> {
    fn times(&mut self, block: &Matrix, out: &mut Matrix) -> Result<()> {
        self.far.times(self.near, block, &mut self.image);
        self.near.times(self.far, &self.image, out);
        Ok(())
    }

    fn lengths(&self, _block: &Matrix, _product: &Matrix) -> Vec<f64> {
        squared_lengths(&self.image)
    }
}

/// An orthonormal Q `[rows, width]` whose span nearly contains the leading eigenvectors of C, and C·Q.
/// `start` is a random block, or better a random combination of A's columns; without passes one product more
/// makes Q of it.
pub(super) fn leading(gram: &mut dyn Gram, start: Matrix, passes: usize) -> Result<[Matrix; 2]> {
    // Blocks stay where they are, because fresh memory costs as much as a product.
    let (rows, width) = (start.rows(), start.cols());
    let mut blocks = [start, Matrix::zeros(rows, width), Matrix::zeros(rows, width)];
    if passes > 0 {
        let [current, _, next] = &mut blocks;
        gram.times(current, next)?;
        mem::swap(current, next);
        orthonormalise(&mut blocks[0])?;
    }
    for _ in 0..passes {
        interrupt::check()?;
        filter(gram, &mut blocks)?;
        orthonormalise(&mut blocks[0])?;
    }
    // The gain of a polynomial costs the smaller singular vectors digits; a plain product gives them
    // back.
    let [filtered, mut q, mut product] = blocks;
    gram.times(&filtered, &mut q)?;
    orthonormalise(&mut q)?;
    // Once more, because singular values are taken from CQ as if Q were orthonormal to the last digit.
    orthonormalise(&mut q)?;
    gram.times(&q, &mut product)?;
    Ok([q, product])
}

/// Replaces Q, the first of `blocks`, by `T_d(2C/b − I) Q` for the Chebyshev polynomial T_d. It is at most
/// 1 on the eigenvalues below b, and above grows faster than any other polynomial of degree d. b is the
/// least that Q has found. The other blocks are memory.
fn filter(gram: &mut dyn Gram, blocks: &mut [Matrix; 3]) -> Result<()> {
    let [current, previous, next] = blocks;
    gram.times(current, next)?;
    let found = gram.lengths(current, next); // qᵀCq
    let largest = found.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    // The least of an exhausted rank is rounding.
    let bound = found.iter().copied().fold(largest, f64::min).max(1e-6 * largest);
    // T_d(x) = cosh(d acosh x), so the gain is nearly half of e^(d acosh x).
    let degree = (2.0 * MAX_GAIN).ln() / (2.0 * largest / bound - 1.0).acosh();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to MAX_DEGREE")]
    let degree = degree.clamp(1.0, MAX_DEGREE) as usize;
    #[allow(clippy::cast_possible_truncation, reason = "blocks are f32")]
    let factor = (2.0 / bound) as f32;
    combine(next, current, |image, q| factor * image - q);
    for _ in 1..degree {
        mem::swap(previous, current);
        mem::swap(current, next);
        // T_{k+1}(x) = 2x T_k(x) − T_{k−1}(x)
        gram.times(current, next)?;
        combine(next, current, |image, current| 2.0 * (factor * image - current));
        combine(next, previous, |next, previous| next - previous);
    }
    mem::swap(current, next);
    Ok(())
}

/// `each(x, y)` in the place of each x.
fn combine(xs: &mut Matrix, ys: &Matrix, each: impl Fn(f32, f32) -> f32 + Sync) {
    let rows = xs.as_mut_slice().par_chunks_mut(1 << 14).zip(ys.as_slice().par_chunks(1 << 14));
    rows.for_each(|(xs, ys)| xs.iter_mut().zip(ys).for_each(|(x, y)| *x = each(*x, *y)));
}

/// `‖b‖²` of each column b.
fn squared_lengths(block: &Matrix) -> Vec<f64> {
    let mut sums = vec![0.0; block.cols()];
    for row in block.iter_rows() {
        sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += f64::from(value * value));
    }
    sums
}
