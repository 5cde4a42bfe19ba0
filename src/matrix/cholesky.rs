//! Symmetric positive definite matrices in, their Cholesky factors and the solutions of their equations
//! out, on one thread: who needs many runs them in parallel.

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt::factor::{
    LltRegularization, cholesky_in_place, cholesky_in_place_scratch,
};
use faer::linalg::cholesky::llt::solve;
use faer::{Mat, MatMut, Par, Spec};

use crate::error::{Error, Result};

/// L of `L Lᵀ`, in the lower triangle of the matrix whose lower triangle is given; above it is no zero.
///
/// # Errors
/// [`Error::Library`] unless the matrix is positive definite.
pub(crate) fn cholesky(mut matrix: Mat<f64>) -> Result<Mat<f64>> {
    let scratch = cholesky_in_place_scratch::<f64>(matrix.nrows(), Par::Seq, Spec::default());
    let mut memory = MemBuffer::new(scratch);
    let stack = MemStack::new(&mut memory);
    let as_is = LltRegularization::default();
    cholesky_in_place(matrix.as_mut(), as_is, Par::Seq, stack, Spec::default())
        .map_err(|error| Error::library("Cholesky factorisation", format!("{error:?}")))?;
    Ok(matrix)
}

/// Replaces each column b of `right` by the x of `matrix · x = b`, where the lower triangle of the matrix
/// is given.
///
/// # Errors
/// [`Error::Library`] unless the matrix is positive definite; `right` is as it was then.
pub(crate) fn solve(matrix: Mat<f64>, right: MatMut<'_, f64>) -> Result<()> {
    let factor = cholesky(matrix)?;
    let scratch = solve::solve_in_place_scratch::<f64>(factor.nrows(), right.ncols(), Par::Seq);
    let mut memory = MemBuffer::new(scratch);
    solve::solve_in_place(factor.as_ref(), right, Par::Seq, MemStack::new(&mut memory));
    Ok(())
}
