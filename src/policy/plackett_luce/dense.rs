//! The two passes over all of β, for a group of contexts: queries → scores, and weights → weighted sums
//! of embeddings. β is read in panels that stay in cache, panels in parallel. A product always has
//! [`GROUP`] rows, because its rounding depends on its shape.

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};
use rayon::prelude::*;

use crate::matrix::Matrix;

/// Contexts in a group.
pub(super) const GROUP: usize = 8;
/// Numbers of β in a panel: 256 KB stay in a core's second-level cache.
const PANEL_NUMBERS: usize = 1 << 16;
/// The most actions in a panel, so that an f32 sum has no more terms.
const PANEL_ACTIONS: usize = 4096;

fn panel_size(beta: &Matrix) -> usize {
    (PANEL_NUMBERS / beta.cols()).clamp(16, PANEL_ACTIONS)
}

/// `h βᵀ` into `scores` `[GROUP, P]`, for rows `start..end` of h; further rows are zero.
pub(super) fn scores(beta: &Matrix, h: &Matrix, start: usize, end: usize, scores: &mut Matrix) {
    let (num_actions, panel) = (beta.rows(), panel_size(beta));
    let mut queries = Matrix::zeros(GROUP, h.cols());
    for (i, row) in (start..end).enumerate() {
        queries.row_mut(i).copy_from_slice(h.row(row));
    }
    let queries = queries.view(0, GROUP);
    let scores = MatMut::from_row_major_slice_mut(scores.as_mut_slice(), GROUP, num_actions);
    scores.par_col_chunks_mut(panel).enumerate().for_each(|(i, out)| {
        let beta = beta.view(i * panel, (i * panel + panel).min(num_actions));
        matmul(out, Accum::Replace, queries, beta.transpose(), 1.0, Par::Seq);
    });
}

/// `weights β` `[GROUP, L]` for `weights` `[GROUP, P]`. Panels are added up in f64 and in order.
pub(super) fn weighted_sums(beta: &Matrix, weights: &Matrix) -> Vec<f64> {
    let (num_actions, latent_dim, panel) = (beta.rows(), beta.cols(), panel_size(beta));
    let weights = MatRef::from_row_major_slice(weights.as_slice(), GROUP, num_actions);
    let panels: Vec<Vec<f32>> = weights
        .par_col_chunks(panel)
        .enumerate()
        .map(|(i, weights)| {
            let beta = beta.view(i * panel, (i * panel + panel).min(num_actions));
            let mut sums = vec![0.0; GROUP * latent_dim];
            let out = MatMut::from_row_major_slice_mut(&mut sums, GROUP, latent_dim);
            matmul(out, Accum::Replace, weights, beta, 1.0, Par::Seq);
            sums
        })
        .collect();
    let mut sums = vec![0.0; GROUP * latent_dim];
    for panel in panels {
        sums.iter_mut().zip(panel).for_each(|(sum, panel)| *sum += f64::from(panel));
    }
    sums
}
