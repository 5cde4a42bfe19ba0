//! Takes a symmetric positive semidefinite operator C and returns its leading eigenvectors, from the
//! space that a random block B and its images span: `[B, CB, C²B, …]` (Musco & Musco, *Randomized block
//! Krylov methods for stronger and faster approximate singular value decomposition*, 2015). Where
//! eigenvalues lie close together, as they do for interactions, this space needs about the square root
//! of the images that iterating on one block needs. Every image is orthogonalised against all before
//! it, twice, so that the basis is orthonormal to the last digits of f32.
//!
//! Sums over panels of rows are added in a fixed order, so the number of threads changes nothing.

use faer::diag::Diag;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::evd::{ComputeEigenvectors, self_adjoint_evd, self_adjoint_evd_scratch};
use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatMut, MatRef, Par, Spec};
use rayon::prelude::*;

use crate::embedding::tall::decompose;
use crate::error::{Error, Result};

/// Rows of a panel.
const PANEL: usize = 4096;
/// Images between two checks of convergence.
const ROUND: usize = 2;

/// The number of eigenvectors, and when the search ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search {
    /// Eigenvectors wanted; at most the operator's size.
    pub(super) count: usize,
    /// Columns of a block.
    pub(super) block: usize,
    /// The most images.
    pub(super) images: usize,
    /// The search ends once the sum of the leading eigenvalues grows by less than this share of
    /// itself in [`ROUND`] images.
    pub(super) tolerance: f64,
}

/// The `count` largest eigenvalues of an operator on vectors of `rows` numbers, largest first, and
/// their eigenvectors, row-major `[rows, count]`. `image` applies the operator to a row-major block of
/// columns; `normals` fills a block with new standard normals at each call.
///
/// # Errors
/// [`Error::Library`] when a small decomposition fails.
pub(super) fn leading(
    rows: usize,
    search: Search,
    mut normals: impl FnMut(&mut [f32]),
    mut image: impl FnMut(&[f32], usize) -> Vec<f32>,
) -> Result<(Vec<f64>, Vec<f32>)> {
    let Search { count, block, images, tolerance } = search;
    // The basis needs room for the wanted eigenvectors, however few images there are.
    let most = (block * (images + 1)).max(count + block).min(rows);
    let mut basis = Basis { rows, stride: most, len: 0, data: vec![0.0; rows * most] };
    let mut projected = Mat::<f64>::zeros(most, most); // QᵀCQ
    let mut next = vec![0.0; rows * block.min(most)];
    normals(&mut next);
    let (mut captured, mut norm) = (0.0, 0.0);
    for step in 0.. {
        let width = next.len() / rows;
        basis.orthonormalise(&mut next, width, norm, &mut normals)?;
        basis.push(&next, width);
        next = image(&next, width);
        let coefficients = basis.project(&next, width);
        let start = basis.len - width;
        for i in 0..basis.len {
            for j in 0..width {
                projected[(i, start + j)] = f64::from(coefficients[(i, j)]);
                projected[(start + j, i)] = f64::from(coefficients[(i, j)]);
            }
        }
        let is_last = basis.len == most;
        if is_last || (step % ROUND == ROUND - 1 && basis.len >= count) {
            let (values, vectors) =
                eigen(projected.as_ref().submatrix(0, 0, basis.len, basis.len))?;
            let before = captured;
            let values: Vec<f64> = values.into_iter().rev().take(count).collect();
            captured = values.iter().sum::<f64>();
            tracing::debug!("{} directions capture {captured:.6e}", basis.len);
            if is_last || captured - before < tolerance * captured {
                return Ok((values, basis.combine(vectors.as_ref(), count)));
            }
        }
        norm = next.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
        basis.subtract(&coefficients, &mut next, width);
        let room = block.min(most - basis.len);
        if room < width {
            next = next.chunks_exact(width).flat_map(|row| &row[..room]).copied().collect();
        }
    }
    unreachable!("the basis is full at some step")
}

/// Orthonormal columns, row-major `[rows, len]` with room for more.
struct Basis {
    rows: usize,
    stride: usize,
    len: usize,
    data: Vec<f32>,
}

impl Basis {
    fn panel<'a>(&self, panel: &'a [f32]) -> MatRef<'a, f32> {
        let rows = panel.len() / self.stride;
        MatRef::from_row_major_slice_with_stride(panel, rows, self.len, self.stride)
    }

    /// Qᵀ W of a row-major block W.
    fn project(&self, block: &[f32], width: usize) -> Mat<f32> {
        let panels = self.data.par_chunks(PANEL * self.stride).zip(block.par_chunks(PANEL * width));
        let parts: Vec<Mat<f32>> = panels
            .map(|(q, w)| {
                let (q, mut part) = (self.panel(q), Mat::zeros(self.len, width));
                let w = MatRef::from_row_major_slice(w, q.nrows(), width);
                matmul(part.as_mut(), Accum::Replace, q.transpose(), w, 1.0, Par::Seq);
                part
            })
            .collect();
        let mut sum = Mat::<f32>::zeros(self.len, width);
        for part in &parts {
            sum += part;
        }
        sum
    }

    /// W − Q H in the place of W.
    fn subtract(&self, coefficients: &Mat<f32>, block: &mut [f32], width: usize) {
        let panels =
            self.data.par_chunks(PANEL * self.stride).zip(block.par_chunks_mut(PANEL * width));
        panels.for_each(|(q, w)| {
            let q = self.panel(q);
            let w = MatMut::from_row_major_slice_mut(w, q.nrows(), width);
            matmul(w, Accum::Add, q, coefficients, -1.0, Par::Seq);
        });
    }

    /// Makes `block` orthonormal and orthogonal to the basis, whose projection was subtracted once.
    /// Where the operator's rank is exhausted, columns have nearly vanished, compared with the `norm`
    /// before; random ones replace them.
    fn orthonormalise(
        &self,
        block: &mut [f32],
        width: usize,
        norm: f64,
        normals: &mut impl FnMut(&mut [f32]),
    ) -> Result<()> {
        let values = decompose(block, width)?;
        let own = values.iter().filter(|value| f64::from(**value) > 1e-6 * norm).count();
        if own < width {
            let mut random = vec![0.0; block.len()];
            normals(&mut random);
            let rows = block.chunks_exact_mut(width).zip(random.chunks_exact(width));
            rows.for_each(|(row, random)| row[own..].copy_from_slice(&random[own..]));
            self.subtract(&self.project(block, width), block, width);
            decompose(block, width)?;
        }
        self.subtract(&self.project(block, width), block, width);
        decompose(block, width)?;
        Ok(())
    }

    fn push(&mut self, block: &[f32], width: usize) {
        let start = self.len;
        let rows = self.data.par_chunks_mut(self.stride).zip(block.par_chunks(width));
        rows.for_each(|(row, new)| row[start..start + width].copy_from_slice(new));
        self.len += width;
    }

    /// Q Y for the last `count` columns of Y, last first.
    fn combine(self, vectors: MatRef<'_, f64>, count: usize) -> Vec<f32> {
        #[allow(clippy::cast_possible_truncation, reason = "blocks are f32")]
        let leading = Mat::from_fn(self.len, count, |i, j| vectors[(i, self.len - 1 - j)] as f32);
        let mut out = vec![0.0; self.rows * count];
        let panels =
            self.data.par_chunks(PANEL * self.stride).zip(out.par_chunks_mut(PANEL * count));
        panels.for_each(|(q, out)| {
            let q = self.panel(q);
            let out = MatMut::from_row_major_slice_mut(out, q.nrows(), count);
            matmul(out, Accum::Replace, q, &leading, 1.0, Par::Seq);
        });
        out
    }
}

/// Eigenvalues, ascending, and their eigenvectors.
fn eigen(matrix: MatRef<'_, f64>) -> Result<(Vec<f64>, Mat<f64>)> {
    let size = matrix.nrows();
    let (mut values, mut vectors) = (Diag::zeros(size), Mat::zeros(size, size));
    let (wanted, options) = (ComputeEigenvectors::Yes, Spec::default());
    let scratch = self_adjoint_evd_scratch::<f64>(size, wanted, Par::Seq, options);
    let mut memory = MemBuffer::new(scratch);
    let stack = MemStack::new(&mut memory);
    self_adjoint_evd(matrix, values.as_mut(), Some(vectors.as_mut()), Par::Seq, stack, options)
        .map_err(|error| Error::library("eigenvalue decomposition", format!("{error:?}")))?;
    Ok((values.column_vector().iter().copied().collect(), vectors))
}
