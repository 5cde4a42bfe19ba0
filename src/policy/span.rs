//! A gradient in, its part in the span of a few actions' vectors out.
//!
//! A slate that is chosen among M actions depends on the noise ε `[L]` of a query through its products
//! with the M vectors alone. The rest of a Gaussian ε is independent of these products and 0 on average,
//! so to a score-function gradient it only adds variance. The gradient's expectation given the products is
//! its orthogonal projection on the span of the M vectors: the same mean, and the noise of M dimensions
//! in place of L (Rao–Blackwell).

use faer::linalg::matmul::matmul;
use faer::linalg::matmul::triangular::{self, BlockStructure};
use faer::{Accum, Mat, MatMut, MatRef, Par};

use crate::matrix::{Matrix, norm, solve};

/// Added to the squared lengths of the vectors, which are made 1, so that dependent vectors have a solution
/// too. A direction in which they differ by 1e-4 loses a hundredth.
const SHIFT: f64 = 1e-10;

/// Replaces `g` `[L]` by its orthogonal projection on the span of the rows of `vectors` `[M, L]`.
pub(super) fn project(vectors: &Matrix, g: &mut [f32]) {
    let dim = vectors.cols();
    // Of length 1, since a span does not depend on lengths; zeros add nothing to one.
    let unit: Vec<f64> = vectors
        .iter_rows()
        .map(|vector| (vector, f64::from(norm(vector))))
        .filter(|(_, length)| *length > 0.0)
        .flat_map(|(vector, length)| vector.iter().map(move |value| f64::from(*value) / length))
        .collect();
    let count = unit.len() / dim;
    let unit = MatRef::from_row_major_slice(&unit, count, dim); // U
    let mut gram = Mat::zeros(count, count); // U Uᵀ, its lower triangle
    let (lower, whole) = (BlockStructure::TriangularLower, BlockStructure::Rectangular);
    let (out, turned) = (gram.as_mut(), unit.transpose());
    triangular::matmul(out, lower, Accum::Replace, unit, whole, turned, whole, 1.0, Par::Seq);
    (0..count).for_each(|at| gram[(at, at)] += SHIFT);

    let mut inside: Vec<f64> = g.iter().map(|value| f64::from(*value)).collect();
    let mut weights = Mat::zeros(count, 1);
    let column = MatRef::from_column_major_slice(&inside, dim, 1);
    matmul(weights.as_mut(), Accum::Replace, unit, column, 1.0, Par::Seq);
    // (U Uᵀ)⁻¹ U g. What has no solution is not finite, as who uses g will find.
    if solve(gram, weights.as_mut()).is_ok() {
        let column = MatMut::from_column_major_slice_mut(&mut inside, dim, 1);
        matmul(column, Accum::Replace, turned, weights.as_ref(), 1.0, Par::Seq);
        #[allow(clippy::cast_possible_truncation, reason = "f32 is the precision of gradients")]
        g.iter_mut().zip(inside).for_each(|(g, inside)| *g = inside as f32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::dot;
    use crate::seed::{Purpose, Seed};

    const L: usize = 60;

    fn normals(rows: usize, seed: u64) -> Matrix {
        let mut matrix = Matrix::zeros(rows, L);
        Seed(seed).stream(Purpose::Synthetic, 0, 0).fill_normals(matrix.as_mut_slice());
        matrix
    }

    fn projected(vectors: &Matrix, g: &[f32]) -> Vec<f32> {
        let mut g = g.to_vec();
        project(vectors, &mut g);
        g
    }

    fn difference(x: &[f32], y: &[f32]) -> Vec<f32> {
        x.iter().zip(y).map(|(x, y)| x - y).collect()
    }

    #[test]
    fn what_is_left_out_is_orthogonal_to_every_vector() {
        let (mut vectors, g) = (normals(20, 1), normals(1, 2).into_vec());
        // Whatever their lengths are.
        vectors.row_mut(3).iter_mut().for_each(|value| *value *= 1e-4);
        let inside = projected(&vectors, &g);
        let rest = difference(&g, &inside);
        for vector in vectors.iter_rows() {
            assert!(dot(vector, &rest).abs() < 1e-5 * norm(vector) * norm(&g));
        }
        assert!((0.3..0.9).contains(&(norm(&inside) / norm(&g))), "√(20/60) of it on average");
    }

    #[test]
    fn what_vectors_differ_by_stays() {
        // Two that differ little, one that is there twice, and one of zeros.
        let mut vectors = normals(20, 1).select(&[0, 1, 2, 3, 4, 4, 5]);
        let near: Vec<f32> = vectors.row(0).iter().map(|value| value * 1.01).collect();
        vectors.row_mut(1).copy_from_slice(&near);
        vectors.row_mut(1)[7] += 0.01;
        vectors.row_mut(6).fill(0.0);
        for (a, b) in [(0, 1), (2, 3), (3, 4)] {
            let g = difference(vectors.row(a), vectors.row(b));
            assert!(norm(&difference(&projected(&vectors, &g), &g)) < 1e-3 * norm(&g));
        }
    }

    #[test]
    fn zeros_span_nothing_and_enough_vectors_everything() {
        let g = normals(1, 2).into_vec();
        assert_eq!(projected(&Matrix::zeros(5, L), &g), [0.0; L]);
        assert!(norm(&difference(&projected(&normals(L, 1), &g), &g)) < 1e-3 * norm(&g));
    }
}
