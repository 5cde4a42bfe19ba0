//! Takes a block B = U Σ Zᵀ of many rows and few columns, and returns U and Σ. Panels of rows are
//! factorised side by side; their R's, one below the other, are such a block again (TSQR: Demmel,
//! Grigori, Hoemmen & Langou, *Communication-optimal parallel and sequential QR*, 2012). U is
//! orthonormal whatever the rank of B. faer's factorisation of all of B takes 1.2 to 3.8 times as long
//! on two cores. The panels do not depend on the number of threads, so neither does U.

use faer::diag::Diag;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::householder::{
    apply_block_householder_sequence_on_the_left_in_place_scratch as apply_scratch,
    apply_block_householder_sequence_on_the_left_in_place_with_conj as apply,
};
use faer::linalg::matmul::matmul;
use faer::linalg::qr::no_pivoting::factor::{
    qr_in_place, qr_in_place_scratch, recommended_block_size,
};
use faer::linalg::svd::{ComputeSvdVectors, svd, svd_scratch};
use faer::{Accum, Conj, Mat, MatMut, MatRef, Par, Spec};
use rayon::prelude::*;

use crate::error::{Error, Result};

/// The fewest rows of a panel, which stays in a core's second-level cache.
const PANEL: usize = 1024;

/// Replaces the row-major `block`, which has at least as many rows as columns, by U and
/// returns the singular values, largest first.
///
/// # Errors
/// [`Error::Library`] when the SVD of a few rows fails.
pub(super) fn decompose(block: &mut [f32], width: usize) -> Result<Vec<f32>> {
    // A panel's R has at most a quarter of its rows.
    let panel = PANEL.max(4 * width) * width;
    if block.len() <= panel {
        return decompose_panel(block, width);
    }
    let triangles = block.len() / panel * width + (block.len() % panel / width).min(width);
    let mut triangles = vec![0.0; triangles * width];
    let panels = block.par_chunks_mut(panel).zip(triangles.par_chunks_mut(width * width));
    panels.for_each(|(panel, triangle)| factorise(panel, triangle, width));
    // B = Q R and R = U' Σ Zᵀ: U = Q U'.
    let values = decompose(&mut triangles, width)?;
    let panels = block.par_chunks_mut(panel).zip(triangles.par_chunks(width * width));
    panels.for_each(|(panel, rotation)| {
        let (rows, rank) = (panel.len() / width, rotation.len() / width);
        let q = panel.to_vec();
        let q = MatRef::from_row_major_slice(&q, rows, width).subcols(0, rank);
        let rotation = MatRef::from_row_major_slice(rotation, rank, width);
        let out = MatMut::from_row_major_slice_mut(panel, rows, width);
        matmul(out, Accum::Replace, q, rotation, 1.0, Par::Seq);
    });
    Ok(values)
}

/// Panel = Q R: writes Q into the panel's first columns, as many as `triangle` has rows, and R into
/// `triangle`. It computes in f64: in f32 faer would treat a column as dependent on the earlier ones
/// when they explain all but 0.2 % of it.
fn factorise(panel: &mut [f32], triangle: &mut [f32], width: usize) {
    let (rows, rank) = (panel.len() / width, triangle.len() / width);
    let mut qr = wide(panel, width);
    let depth = recommended_block_size::<f64>(rows, width);
    let mut coefficients = Mat::zeros(depth, rank);
    let scratch = qr_in_place_scratch::<f64>(rows, width, depth, Par::Seq, Spec::default())
        .or(apply_scratch::<f64>(rows, depth, rank));
    let mut memory = MemBuffer::new(scratch);
    let stack = MemStack::new(&mut memory);
    qr_in_place(qr.as_mut(), coefficients.as_mut(), Par::Seq, stack, Spec::default());
    let mut q = Mat::identity(rows, rank);
    apply(qr.subcols(0, rank), coefficients.as_ref(), Conj::No, q.as_mut(), Par::Seq, stack);
    narrow(q.as_ref(), panel, width);
    narrow(qr.subrows(0, rank), triangle, width);
    for (i, row) in triangle.chunks_exact_mut(width).enumerate() {
        row[..i].fill(0.0);
    }
}

fn decompose_panel(panel: &mut [f32], width: usize) -> Result<Vec<f32>> {
    let (b, thin) = (wide(panel, width), ComputeSvdVectors::Thin);
    let (mut u, mut values) = (Mat::zeros(b.nrows(), width), Diag::zeros(width));
    let (none, options) = (ComputeSvdVectors::No, Spec::default());
    let scratch = svd_scratch::<f64>(b.nrows(), width, thin, none, Par::Seq, options);
    let mut memory = MemBuffer::new(scratch);
    let stack = MemStack::new(&mut memory);
    svd(b.as_ref(), values.as_mut(), Some(u.as_mut()), None, Par::Seq, stack, options)
        .map_err(|error| Error::library("singular value decomposition", format!("{error:?}")))?;
    narrow(u.as_ref(), panel, width);
    #[allow(clippy::cast_possible_truncation, reason = "blocks are f32")]
    Ok(values.column_vector().iter().map(|value| *value as f32).collect())
}

fn wide(block: &[f32], width: usize) -> Mat<f64> {
    let block = MatRef::from_row_major_slice(block, block.len() / width, width);
    Mat::from_fn(block.nrows(), width, |i, j| f64::from(block[(i, j)]))
}

#[allow(clippy::cast_possible_truncation, reason = "blocks are f32")]
fn narrow(matrix: MatRef<'_, f64>, block: &mut [f32], width: usize) {
    for (i, row) in block.chunks_exact_mut(width).enumerate() {
        row.iter_mut().zip(matrix.row(i).iter()).for_each(|(out, value)| *out = *value as f32);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::seed::{Purpose, Seed};

    /// Rows of `rank` independent columns, each repeated at other scales up to `width`; every
    /// fourth panel is zero.
    fn block(rows: usize, width: usize, rank: usize) -> Vec<f32> {
        let mut block = vec![0.0; rows * width];
        for (i, row) in block.chunks_exact_mut(width).enumerate() {
            if i / PANEL % 4 != 1 {
                Seed(1).stream(Purpose::Synthetic, 2, i as u64).fill_normals(&mut row[..rank]);
                for j in rank..width {
                    row[j] = row[j % rank] / j as f32;
                }
            }
        }
        block
    }

    #[test]
    fn u_is_orthonormal_and_spans_the_block_whatever_its_rank_and_number_of_panels() {
        // One panel; a last panel of fewer rows than columns; R's that fill more than a panel.
        let shapes =
            [(900, 8), (900, 3), (3 * PANEL + 5, 8), (3000, 1), (200 * PANEL + 3, 8), (205_000, 2)];
        for (rows, rank) in shapes {
            let width = 8;
            let original = block(rows, width, rank);
            let mut u = original.clone();
            let values = decompose(&mut u, width).unwrap();
            let (b, u) = (wide(&original, width), wide(&u, width));
            let off = u.transpose() * &u - Mat::<f64>::identity(width, width);
            assert!(off.norm_max() < 2e-6, "UᵀU of {rows} rows of rank {rank}");
            let outside = &b - &u * (u.transpose() * &b);
            assert!(outside.norm_l2() < 1e-6 * b.norm_l2(), "{rows} rows of rank {rank}");
            let exact = b.singular_values().unwrap();
            for (value, exact_value) in values.iter().zip(&exact) {
                let error = (f64::from(*value) - exact_value).abs();
                assert!(error < 1e-6 * exact[0], "{value} is not {exact_value}");
            }
        }
    }

    #[test]
    fn a_block_of_zeros_has_an_orthonormal_basis_too() {
        let mut u = vec![0.0; 3 * PANEL * 4];
        assert_eq!(decompose(&mut u, 4).unwrap(), [0.0; 4]);
        let u = wide(&u, 4);
        assert!((u.transpose() * &u - Mat::<f64>::identity(4, 4)).norm_max() < 1e-6);
    }
}
