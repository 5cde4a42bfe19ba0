//! A dense symmetric positive definite matrix goes in; its inverse comes out, in f32 on all cores. The
//! tiles of the work do not depend on the number of threads, so neither does the result.

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt::factor::{
    LltError, LltRegularization, cholesky_in_place, cholesky_in_place_scratch,
};
use faer::linalg::matmul::matmul;
use faer::linalg::triangular_solve::{
    solve_lower_triangular_in_place, solve_upper_triangular_in_place,
};
use faer::prelude::{IntoConst as _, ReborrowMut as _};
use faer::{Accum, MatMut, MatRef, Par, Spec};
use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::matrix::Matrix;

/// Rows and columns of a tile, the work of one thread.
const TILE: usize = 256;

/// The inverse of `matrix` `[N, N]`, in about N³ multiplications and additions.
///
/// # Errors
/// [`Error::Library`] if rounding makes the matrix indefinite.
pub(super) fn inverse(mut matrix: Matrix) -> Result<Matrix> {
    let size = matrix.rows();
    factorise(MatMut::from_column_major_slice_mut(matrix.as_mut_slice(), size, size)).map_err(
        |error| Error::library("inverting a Gram matrix", format!("{error:?}; raise the ridge")),
    )?;
    let factor = MatRef::from_column_major_slice(matrix.as_slice(), size, size);
    let mut inverse = Matrix::zeros(size, size);
    // Columns of the lower triangle: L Lᵀ X = I needs only the part of L below their top.
    let columns = MatMut::from_column_major_slice_mut(inverse.as_mut_slice(), size, size);
    columns.par_col_chunks_mut(TILE).enumerate().for_each(|(tile, columns)| {
        let first = tile * TILE;
        let factor = factor.submatrix(first, first, size - first, size - first);
        let mut columns = columns.subrows_mut(first, size - first);
        columns.rb_mut().diagonal_mut().fill(1.0);
        solve_lower_triangular_in_place(factor, columns.rb_mut(), Par::Seq);
        solve_upper_triangular_in_place(factor.transpose(), columns, Par::Seq);
    });
    mirror(&mut inverse);
    Ok(inverse)
}

/// Puts L of A = L Lᵀ into the lower triangle of A, tile by tile of columns, right-looking.
fn factorise(mut a: MatMut<'_, f32>) -> Result<(), LltError> {
    while a.ncols() > 0 {
        let width = a.ncols().min(TILE);
        let (mut diagonal, _, mut below, mut rest) = a.split_at_mut(width, width);
        let mut memory =
            MemBuffer::new(cholesky_in_place_scratch::<f32>(width, Par::Seq, Spec::default()));
        let regularization = LltRegularization::default();
        let stack = MemStack::new(&mut memory);
        cholesky_in_place(diagonal.rb_mut(), regularization, Par::Seq, stack, Spec::default())?;
        let diagonal = diagonal.into_const();
        below.rb_mut().par_row_chunks_mut(TILE).for_each(|rows| {
            solve_lower_triangular_in_place(diagonal, rows.transpose_mut(), Par::Seq);
        });
        let below = below.into_const();
        rest.rb_mut().par_col_chunks_mut(TILE).enumerate().for_each(|(tile, columns)| {
            let first = tile * TILE;
            let height = below.nrows() - first;
            let rows = below.subrows(first, height);
            let across = below.subrows(first, columns.ncols()).transpose();
            let columns = columns.subrows_mut(first, height);
            matmul(columns, Accum::Add, rows, across, -1.0, Par::Seq);
        });
        a = rest;
    }
    Ok(())
}

/// Copies the upper triangle, in rows, to the lower one.
fn mirror(matrix: &mut Matrix) {
    /// Rows that are filled together, for the sake of the cache.
    const ROWS: usize = 16;
    let size = matrix.rows();
    for first in (0..size).step_by(ROWS) {
        let height = ROWS.min(size - first);
        let (above, rows) = matrix.as_mut_slice().split_at_mut(first * size);
        for (column, above) in above.chunks_exact(size).enumerate() {
            for (row, value) in above[first..first + height].iter().enumerate() {
                rows[row * size + column] = *value;
            }
        }
        for row in 1..height {
            for column in 0..row {
                rows[row * size + first + column] = rows[column * size + first + row];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::{Purpose, Seed};

    /// B Bᵀ + N I for a B of normals.
    fn definite(size: usize) -> Matrix {
        let mut b = Matrix::zeros(size, size);
        Seed(1).stream(Purpose::Synthetic, 0, 0).fill_normals(b.as_mut_slice());
        let mut a = Matrix::zeros(size, size);
        let out = MatMut::from_row_major_slice_mut(a.as_mut_slice(), size, size);
        let b = b.view(0, size);
        matmul(out, Accum::Replace, b, b.transpose(), 1.0, Par::Seq);
        for i in 0..size {
            a.row_mut(i)[i] += size as f32;
        }
        a
    }

    #[test]
    fn a_matrix_times_its_inverse_is_the_identity() {
        for size in [1, 5, TILE, 2 * TILE + 17] {
            let a = definite(size);
            let inverse = inverse(a.clone()).unwrap();
            let product = a.view(0, size) * inverse.view(0, size);
            for i in 0..size {
                for j in 0..size {
                    let expected = f32::from(u8::from(i == j));
                    assert!((product[(i, j)] - expected).abs() < 1e-4, "{size}: {i}, {j}");
                    assert_eq!(inverse.row(i)[j], inverse.row(j)[i], "{size}: {i}, {j}");
                }
            }
        }
    }

    #[test]
    fn the_inverse_is_the_same_on_any_number_of_threads() {
        let a = definite(3 * TILE + 5);
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| inverse(a.clone()).unwrap())
        };
        let one = run(1);
        assert_eq!(one, run(2));
        assert_eq!(one, run(5));
    }

    #[test]
    fn an_indefinite_matrix_is_refused() {
        let a = Matrix::new(vec![1.0, 2.0, 2.0, 1.0], 2).unwrap();
        let error = inverse(a).unwrap_err().to_string();
        assert!(error.contains("Gram matrix") && error.contains("raise the ridge"), "{error}");
    }
}
