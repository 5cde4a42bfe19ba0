//! A few actions' vectors in, the products that Gaussian noise has with them and their score function out.
//!
//! A slate that is chosen among M actions depends on the noise ε `[L]` of a query through its products
//! `B ε` with the M vectors alone. They are normal with covariance `B Bᵀ = C Cᵀ`, so `C z` with M
//! independent normals z takes their place, and L numbers are never drawn. The score function of these
//! products with respect to the query, `Bᵀ C⁻ᵀ z`, is the mean of ε given the products: the gradient
//! keeps its mean and has the noise of M dimensions in place of L (Rao–Blackwell).

use faer::linalg::matmul::matmul;
use faer::linalg::matmul::triangular::{self, BlockStructure};
use faer::linalg::triangular_solve::solve_upper_triangular_in_place;
use faer::{Accum, Mat, MatMut, MatRef, Par};

use crate::error::Result;
use crate::matrix::{Matrix, cholesky};

/// Added to the squared lengths of the vectors, taken as 1: every product has noise of its own, a hundredth
/// of the common one, so that dependent vectors have a C too.
const OWN: f64 = 1e-4;

/// The span of the vectors of the M actions of which a row's slates are made.
#[derive(Clone, Debug)]
pub struct Span {
    vectors: Matrix,   // B [M, L]
    lengths: Vec<f32>, // of the vectors, [M]
    factor: Mat<f64>,  // C of the vectors at length 1, [M, M]
}

impl Span {
    /// The span of the rows of `vectors` `[M, L]`.
    pub(super) fn of(vectors: Matrix) -> Result<Self> {
        let count = vectors.rows();
        let mut gram: Mat<f32> = Mat::zeros(count, count); // B Bᵀ, its lower triangle
        let (lower, whole) = (BlockStructure::TriangularLower, BlockStructure::Rectangular);
        let (out, rows) = (gram.as_mut(), vectors.view(0, count));
        let columns = rows.transpose();
        triangular::matmul(out, lower, Accum::Replace, rows, whole, columns, whole, 1.0, Par::Seq);
        let lengths: Vec<f32> = (0..count).map(|at| gram[(at, at)].sqrt()).collect();
        let unit = Mat::from_fn(count, count, |i, j| {
            let own = if i == j { OWN } else { 0.0 };
            // Vectors of length 0 have products of 0, whatever stands here.
            f64::from(inverse(lengths[i]) * inverse(lengths[j]) * gram[(i, j)]) + own
        });
        Ok(Self { vectors, lengths, factor: cholesky(unit)? })
    }

    /// Writes the products of noise with the M vectors to `out` `[S, M]`, from `normals` `[S, M]`.
    pub(super) fn products(&self, normals: &[f32], out: &mut [f32]) {
        let count = self.lengths.len();
        #[allow(clippy::cast_possible_truncation, reason = "f32 is the precision of scores")]
        let factor = Mat::from_fn(count, count, |i, j| {
            // What a factorisation leaves above the diagonal is no part of it.
            if j > i { 0.0 } else { self.lengths[i] * self.factor[(i, j)] as f32 }
        });
        let samples = out.len() / count;
        let normals = MatRef::from_row_major_slice(normals, samples, count);
        let out = MatMut::from_row_major_slice_mut(out, samples, count);
        matmul(out, Accum::Replace, normals, factor.transpose(), 1.0, Par::Seq);
    }

    /// The weighted sum of score functions `[L]`, from that of the normals `[M]`.
    pub(super) fn gradient(&self, sum: &[f32]) -> Vec<f32> {
        let mut weights = Mat::from_fn(sum.len(), 1, |at, _| f64::from(sum[at]));
        solve_upper_triangular_in_place(self.factor.transpose(), weights.as_mut(), Par::Seq);
        let mut g = vec![0.0; self.vectors.cols()];
        for (at, vector) in self.vectors.iter_rows().enumerate() {
            #[allow(clippy::cast_possible_truncation, reason = "f32 is the precision of gradients")]
            let weight = inverse(self.lengths[at]) * weights[(at, 0)] as f32;
            g.iter_mut().zip(vector).for_each(|(g, value)| *g += weight * value);
        }
        g
    }
}

/// 1 / `length`; 0 for none.
fn inverse(length: f32) -> f32 {
    if length > 0.0 { length.recip() } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::{dot, norm};
    use crate::seed::{Purpose, Seed};

    const L: usize = 60;
    const M: usize = 20;

    /// Vectors of which one is long, one is there twice, and one is zero.
    fn vectors() -> Matrix {
        let mut matrix = Matrix::zeros(M, L);
        Seed(1).stream(Purpose::Synthetic, 0, 0).fill_normals(matrix.as_mut_slice());
        matrix.row_mut(3).iter_mut().for_each(|value| *value *= 100.0);
        let twin = matrix.row(4).to_vec();
        matrix.row_mut(5).copy_from_slice(&twin);
        matrix.row_mut(6).fill(0.0);
        matrix
    }

    /// What each of M normals alone gives: products `[M, M]` and gradients `[M, L]`.
    fn alone(span: &Span) -> (Matrix, Matrix) {
        let mut identity = Matrix::zeros(M, M);
        (0..M).for_each(|at| identity.row_mut(at)[at] = 1.0);
        let mut products = Matrix::zeros(M, M);
        span.products(identity.as_slice(), products.as_mut_slice());
        let gradients = identity.iter_rows().flat_map(|normal| span.gradient(normal)).collect();
        (products, Matrix::new(gradients, L).unwrap())
    }

    /// `Σ_z x(z)_i y(z)_j`, the covariance of a number of the products with one of the products or gradients.
    fn covariance(x: &Matrix, i: usize, y: &Matrix, j: usize) -> f32 {
        x.iter_rows().zip(y.iter_rows()).map(|(x, y)| x[i] * y[j]).sum()
    }

    #[test]
    fn products_vary_as_those_of_noise() {
        let vectors = vectors();
        let (products, _) = alone(&Span::of(vectors.clone()).unwrap());
        for i in 0..M {
            for j in 0..M {
                let expected = dot(vectors.row(i), vectors.row(j));
                let scale = norm(vectors.row(i)) * norm(vectors.row(j));
                let found = covariance(&products, i, &products, j);
                assert!((found - expected).abs() <= 2e-4 * scale, "{i}, {j}: {found}, {expected}");
            }
        }
    }

    /// `E[g (C z)ᵀ] = Bᵀ` makes the gradient of a linear function of the products right.
    #[test]
    fn gradients_vary_with_products_as_noise_does() {
        let vectors = vectors();
        let (products, gradients) = alone(&Span::of(vectors.clone()).unwrap());
        for i in 0..M {
            for j in 0..L {
                let (expected, scale) = (vectors.row(i)[j], norm(vectors.row(i)));
                let found = covariance(&products, i, &gradients, j);
                assert!((found - expected).abs() <= 1e-3 * scale, "{i}, {j}: {found}, {expected}");
            }
        }
    }

    #[test]
    fn a_gradient_has_no_more_noise_than_there_are_directions() {
        let (_, gradients) = alone(&Span::of(vectors()).unwrap());
        let variance: f32 = gradients.as_slice().iter().map(|g| g * g).sum();
        assert!(
            (variance - (M - 2) as f32).abs() < 0.1,
            "{variance}: a twin and a zero add nothing"
        );
    }
}
