//! Takes a block of many rows and few columns and returns an orthonormal basis of its columns'
//! span, by Cholesky-QR: `BᵀB = LLᵀ`, so the columns of `B L⁻ᵀ` are orthonormal. All work on the many
//! rows is matrix products, several times as fast as Householder's QR. Parts of rows are added in a
//! fixed order, so the number of threads changes nothing.

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt::factor::{
    LltRegularization, cholesky_in_place, cholesky_in_place_scratch,
};
use faer::linalg::matmul::matmul;
use faer::linalg::triangular_solve::solve_lower_triangular_in_place;
use faer::{Accum, Mat, MatMut, MatRef, Par, Spec};
use rayon::prelude::*;

use crate::embedding::fold_in::gram;
use crate::error::{Error, Result};
use crate::matrix::Matrix;

/// Rows of a panel.
const PANEL: usize = 512;
/// Added to the Gram matrix of columns of length 1, so that dependent columns have a factor too. The
/// part of a column that is independent of those before, where below √`SHIFT` of its length, is rounding
/// in f32.
const SHIFT: f64 = 1e-12;

/// Makes the columns of `block` orthonormal, each within the span of itself and those before. A column
/// that depends on those before becomes short instead. A block of condition κ is orthonormal
/// to about 1e-7 κ, so a second call leaves only the rounding.
///
/// # Errors
/// [`Error::Library`] on numbers that are not finite.
#[allow(clippy::cast_possible_truncation, reason = "blocks are f32")]
pub(super) fn orthonormalise(block: &mut Matrix) -> Result<()> {
    let width = block.cols();
    let mut lower = gram(block);
    let length = |i: usize| Some(lower[(i, i)].sqrt()).filter(|length| *length > 0.0);
    let lengths: Vec<f64> = (0..width).map(|i| length(i).unwrap_or(1.0)).collect();
    for j in 0..width {
        (j..width).for_each(|i| lower[(i, j)] /= lengths[i] * lengths[j]);
        lower[(j, j)] += SHIFT;
    }
    let mut memory =
        MemBuffer::new(cholesky_in_place_scratch::<f64>(width, Par::Seq, Spec::default()));
    let stack = MemStack::new(&mut memory);
    let exactly = LltRegularization::default();
    cholesky_in_place(lower.as_mut(), exactly, Par::Seq, stack, Spec::default())
        .map_err(|error| Error::library("Cholesky factorisation", format!("{error:?}")))?;
    let lower = Mat::from_fn(width, width, |i, j| (lengths[i] * lower[(i, j)]) as f32);
    block.as_mut_slice().par_chunks_mut(PANEL * width).for_each(|panel| {
        let rows = panel.len() / width;
        let columns = MatMut::from_column_major_slice_mut(panel, width, rows);
        solve_lower_triangular_in_place(lower.as_ref(), columns, Par::Seq);
    });
    Ok(())
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
