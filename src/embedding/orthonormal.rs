//! Takes a block of many rows and few columns and returns an orthonormal basis of its columns'
//! span, by Cholesky-QR: `BᵀB = LLᵀ`, so the columns of `B L⁻ᵀ` are orthonormal. All work on the many
//! rows is matrix products, several times as fast as Householder's QR; what it takes, the inverse of a
//! factor times a block and the product with a small matrix, serves other modules too. Parts of rows are
//! added in a fixed order, so the number of threads changes nothing.

use faer::linalg::matmul::matmul;
use faer::linalg::triangular_solve::solve_lower_triangular_in_place;
use faer::{Accum, Mat, MatMut, MatRef, Par};
use rayon::prelude::*;

use crate::embedding::fold_in::gram;
use crate::error::Result;
use crate::matrix::{Matrix, cholesky};

/// Rows of a panel.
const PANEL: usize = 512;
/// Added to the Gram matrix of columns of length 1, so that dependent columns have a factor too. What
/// is left of a column outside the span of those before is rounding in f32 if it is below √`SHIFT`.
const SHIFT: f64 = 1e-12;

/// Makes the columns of `block` orthonormal, each within the span of itself and those before. A column
/// that depends on those before becomes short instead. The result of a block of condition κ is
/// orthonormal to about 1e-7 κ, so a second call leaves only rounding.
///
/// # Errors
/// [`Error::Library`] on numbers that are not finite.
pub(super) fn orthonormalise(block: &mut Matrix) -> Result<()> {
    let width = block.cols();
    let mut gram = gram(block);
    let length = |i| Some(gram[(i, i)].sqrt()).filter(|length| *length > 0.0);
    let lengths: Vec<f64> = (0..width).map(|i| length(i).unwrap_or(1.0)).collect();
    for j in 0..width {
        (j..width).for_each(|i| gram[(i, j)] /= lengths[i] * lengths[j]);
        gram[(j, j)] += SHIFT;
    }
    let gram = cholesky(gram)?;
    #[allow(clippy::cast_possible_truncation, reason = "blocks are f32")]
    let lower = Mat::from_fn(width, width, |i, j| (lengths[i] * gram[(i, j)]) as f32);
    divide(block, lower.as_ref());
    Ok(())
}

/// `block · L⁻ᵀ` over `block`, L being the lower triangle of `lower`.
pub(super) fn divide(block: &mut Matrix, lower: MatRef<'_, f32>) {
    let width = block.cols();
    block.as_mut_slice().par_chunks_mut(PANEL * width).for_each(|panel| {
        let rows = panel.len() / width;
        let transposed = MatMut::from_column_major_slice_mut(panel, width, rows);
        solve_lower_triangular_in_place(lower, transposed, Par::Seq);
    });
}

/// `block · right`.
pub(super) fn times(block: &Matrix, right: MatRef<'_, f32>) -> Matrix {
    let mut out = Matrix::zeros(block.rows(), right.ncols());
    let panels = block.as_slice().par_chunks(PANEL * block.cols());
    let out_panels = out.as_mut_slice().par_chunks_mut(PANEL * right.ncols());
    panels.zip(out_panels).for_each(|(panel, out)| {
        let rows = panel.len() / block.cols();
        let panel = MatRef::from_row_major_slice(panel, rows, block.cols());
        let out = MatMut::from_row_major_slice_mut(out, rows, right.ncols());
        matmul(out, Accum::Replace, panel, right, 1.0, Par::Seq);
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::{Purpose, Seed};

    const WIDTH: usize = 8;

    fn wide(block: &Matrix) -> Mat<f64> {
        Mat::from_fn(block.rows(), block.cols(), |i, j| f64::from(block.row(i)[j]))
    }

    fn off_identity(block: &Matrix) -> f64 {
        let block = wide(block);
        let gram = block.transpose() * &block;
        (&gram - Mat::<f64>::identity(gram.nrows(), gram.ncols())).norm_max()
    }

    /// Columns that differ by `difference` from the first, at lengths from 1 to 1e-7.
    fn block(rows: usize, difference: f32) -> Matrix {
        let mut block = Matrix::zeros(rows, WIDTH);
        block.par_rows_mut().enumerate().for_each(|(i, row)| {
            Seed(1).stream(Purpose::Synthetic, 2, i as u64).fill_normals(row);
            for j in (0..WIDTH).rev() {
                let first = if j > 0 { row[0] } else { 0.0 };
                row[j] = (first + difference * row[j]) * 0.1_f32.powi(j.try_into().unwrap());
            }
        });
        block
    }

    #[test]
    fn columns_become_orthonormal_within_the_span_of_those_before() {
        for rows in [40, 3 * PANEL + 5] {
            let original = block(rows, 1e-2);
            let mut basis = original.clone();
            orthonormalise(&mut basis).unwrap();
            assert!(off_identity(&basis) < 1e-4);
            orthonormalise(&mut basis).unwrap();
            assert!(off_identity(&basis) < 1e-6);
            let (b, q) = (wide(&original), wide(&basis));
            let triangle = q.transpose() * &b;
            for j in 0..WIDTH {
                let length = b.col(j).norm_l2();
                for i in j + 1..WIDTH {
                    assert!(triangle[(i, j)].abs() < 1e-5 * length, "{i}, {j} of {rows} rows");
                }
            }
            assert!((&b - &q * &triangle).norm_l2() < 1e-5 * b.norm_l2());
        }
    }

    #[test]
    fn dependent_columns_leave_the_others_orthonormal() {
        let mut dependent = block(900, 0.0); // Columns of one direction.
        for (i, row) in dependent.as_mut_slice().chunks_exact_mut(WIDTH).enumerate() {
            row[0] = 0.0;
            row[4] = (i % 7) as f32;
        }
        orthonormalise(&mut dependent).unwrap();
        assert!(dependent.as_slice().iter().all(|value| value.is_finite()));
        let own: Vec<f32> = dependent.iter_rows().flat_map(|row| [row[1], row[4]]).collect();
        assert!(off_identity(&Matrix::new(own, 2).unwrap()) < 1e-3);
        let mut zeros = Matrix::zeros(30, 3);
        orthonormalise(&mut zeros).unwrap();
        assert_eq!(zeros, Matrix::zeros(30, 3));
    }

    #[test]
    fn a_product_is_that_of_every_row() {
        let block = block(2 * PANEL + 3, 1.0);
        let right = Mat::from_fn(WIDTH, 2, |i, j| (i + j) as f32);
        let product = times(&block, right.as_ref());
        for (row, out) in block.iter_rows().zip(product.iter_rows()) {
            let expected: f32 = row.iter().zip(1_u8..).map(|(x, w)| x * f32::from(w)).sum();
            assert!((out[1] - expected).abs() < 1e-4 * expected.abs().max(1.0));
        }
    }
}
