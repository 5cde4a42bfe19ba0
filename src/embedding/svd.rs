//! Takes the binary training matrix A (contexts × actions) and returns its truncated SVD, from a
//! subspace of the smaller of its two sides (`subspace`): the singular vectors within the subspace, by
//! the eigenvectors of a matrix of L + 64 columns. A occurs only in products with a block of as many
//! columns, so memory is O((U + P)·L).
//!
//! Where the vectors are to decide what a policy shows, the best subspace is not the leading one
//! ([`SvdOptions::soft`]).
//!
//! The blocks are f32, so a singular value σ is good to about 1e-7 · (σ_1 / σ)² of itself; σ_1 / σ_L is a
//! few tens for interactions.

use std::num::NonZeroUsize;

use faer::diag::Diag;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::evd::{ComputeEigenvectors, self_adjoint_evd, self_adjoint_evd_scratch};
use faer::{Mat, MatRef, Par, Spec};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::dataset::{ActionSets, Sessions, Split};
use crate::embedding::fold_in::products;
use crate::embedding::orthonormal::{orthonormalise, times};
use crate::embedding::subspace::{Gram, Side, Sides, leading};
use crate::embedding::{Spectrum, StoredEmbeddings};
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::seed::{Purpose, Seed};

/// The interactions of the training contexts that make A.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionPart {
    /// X and Y, all interactions of a training user.
    #[default]
    All,
    /// X alone, as the paper's text has it.
    Observed,
}

/// Columns of the subspace beyond L. The more there are, the more exact are the last of the L.
pub(crate) const OVERSAMPLING: usize = 64;
/// The least eigenvalue σ² that is not rounding, as a share of the largest.
const NEGLIGIBLE: f64 = 1e-6;

/// Parts of the work on eigenvectors: as many on any machine, because they round apart.
const PARTS: Par = Par::Rayon(NonZeroUsize::new(8).unwrap());

/// Options of the decomposition.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SvdOptions {
    /// L.
    pub latent_dim: usize,
    /// Passes of the subspace iteration, each of up to four products with A Aᵀ. After 2, Σ σ² lacks
    /// about a thousandth of its greatest value, and each one more divides that by ten or so. Without any, the
    /// spectrum ends softly ([`Self::soft`]).
    pub passes: usize,
    /// η: the decomposed matrix is `(n_u n_a)^−η A_{ua}`, n being the numbers of interactions of a
    /// context and of an action. At 0 the most frequent ones dominate the leading dimensions; ½ is the
    /// normalised adjacency of the graph.
    #[serde(serialize_with = "crate::decimal::shortest")]
    pub normalization: f32,
}

impl Default for SvdOptions {
    fn default() -> Self {
        Self { latent_dim: 100, passes: 2, normalization: 0.25 }
    }
}

/// The leading part of a matrix's singular value decomposition.
#[derive(Clone, Debug, PartialEq)]
pub struct Decomposition {
    /// V `[P, L]`, the right singular vectors as columns.
    pub v: Matrix,
    /// s `[L]`, descending.
    pub singular_values: Vec<f32>,
    /// The sum of the squares of all entries of the matrix, hence of all its singular values. What
    /// the L leading ones leave is `energy − Σ s²`.
    pub energy: f64,
    /// The number of all its singular values, the smaller of its sides.
    pub rank: usize,
}

impl Decomposition {
    /// V and s, as they are kept on disk.
    #[must_use]
    pub fn into_stored(self) -> StoredEmbeddings {
        #[allow(clippy::cast_possible_truncation, reason = "f32 is the precision of β")]
        let total = Some([self.energy as f32, self.rank as f32]);
        let spectrum = Spectrum { values: self.singular_values, total };
        StoredEmbeddings { v: self.v, spectrum: Some(spectrum), inputs: None }
    }
}

/// A: one row of actions for each training context.
#[must_use]
pub fn training_matrix(sessions: &Sessions, interactions: SessionPart) -> ActionSets {
    interactions_of(sessions, &sessions.contexts(Split::Train), interactions)
}

/// A of some contexts: one row of actions for each.
#[must_use]
pub fn interactions_of(
    sessions: &Sessions,
    contexts: &[u32],
    interactions: SessionPart,
) -> ActionSets {
    let parts = |context| match interactions {
        SessionPart::All => [sessions.observed.of(context), sessions.hidden.of(context)],
        SessionPart::Observed => [sessions.observed.of(context), &[]],
    };
    let size = |&context: &u32| parts(context).iter().map(|part| part.len()).sum();
    let sizes: Vec<usize> = contexts.iter().map(size).collect();
    ActionSets::filled(&sizes, |row, actions| {
        let [observed, hidden] = parts(contexts[row as usize]);
        let (first, rest) = actions.split_at_mut(observed.len());
        first.copy_from_slice(observed);
        rest.copy_from_slice(hidden);
    })
}

/// The L largest singular values and right singular vectors V `[P, L]` of `matrix`, whose actions are
/// below `num_actions`, after the normalisation of the options. The largest entry of each column of V
/// is positive. The result does not depend on the number of threads.
///
/// # Errors
/// [`Error::Setting`] when L is 0 or not below both sides of the matrix, or the normalisation not in
/// [0, 1]; [`Error::Library`] when a small dense decomposition fails.
pub fn truncated_svd(
    matrix: &ActionSets,
    num_actions: usize,
    options: SvdOptions,
    seed: Seed,
) -> Result<Decomposition> {
    let rank = matrix.len().min(num_actions);
    options.check(matrix.len(), num_actions)?;
    // Q is on the side with fewer rows.
    let transposed = matrix.transposed(num_actions);
    let of_actions = num_actions < matrix.len();
    let (near, far) = if of_actions { (&transposed, matrix) } else { (matrix, &transposed) };
    let [near, far] = [near, far].map(|sets| Side::new(sets, options.normalization));
    let width = (options.latent_dim + OVERSAMPLING).min(rank);
    let start = {
        // Random numbers for the items: those of a part of the users are the same, and so are the subspaces, nearly.
        let random = normals(num_actions, width, 0, seed);
        let mut start = Matrix::zeros(near.len(), width);
        if of_actions {
            Sides::new(&near, &far, width).times(&random, &mut start)?;
        } else {
            near.times(&far, &random, &mut start);
        }
        start
    };
    let blocks = leading(&mut Sides::new(&near, &far, width), start, options.passes)?;
    let mut found = Ritz::new(blocks, options.latent_dim, of_actions)?;
    if !of_actions {
        let left = found.vectors;
        found.vectors = Matrix::zeros(num_actions, options.latent_dim);
        far.times(&near, &left, &mut found.vectors);
    }
    found.decomposition(near.energy(&far), rank, seed)
}

/// [`truncated_svd`] of a matrix of which only the products with `AᵀA` are known, `[P, L + 64]` a time,
/// the sum of the squares of its entries (`energy`), and its number of rows.
///
/// # Errors
/// The errors of [`truncated_svd`]; fails if the products fail.
pub fn svd_of_products(
    gram: &mut dyn Gram,
    shape: [usize; 2],
    energy: f64,
    options: SvdOptions,
    seed: Seed,
) -> Result<Decomposition> {
    let [rows, num_actions] = shape;
    options.check(rows, num_actions)?;
    let rank = rows.min(num_actions);
    let width = (options.latent_dim + OVERSAMPLING).min(rank);
    let mut start = Matrix::zeros(num_actions, width);
    gram.times(&normals(num_actions, width, 0, seed), &mut start)?;
    let blocks = leading(gram, start, options.passes)?;
    Ritz::new(blocks, options.latent_dim, true)?.decomposition(energy, rank, seed)
}

impl SvdOptions {
    /// V is the leading part of the span of `(AᵀA)² Ω`, Ω being Gaussian `[P, L + 64]`. That subspace holds about
    /// `σ⁸/(σ⁸ + τ)` of a right singular vector, with τ such that all these shares sum to its dimensions: the
    /// spectrum ends softly, as in ridge regression, in the place of abruptly. Interactions of few things by many
    /// have a flat spectrum, where what lies beyond the first L earns more than the last of them do. It takes a
    /// third of the time, too. A shorter one is another subspace, and no part of a longer one; one of nearly all
    /// dimensions that there are is as any other. V and s are what Rayleigh and Ritz make of the smaller side of the
    /// matrix, and no singular vectors and values, which the documentation of other functions calls them.
    #[must_use]
    pub fn soft(latent_dim: usize, normalization: f32) -> Self {
        Self { latent_dim, passes: 0, normalization }
    }

    /// What it is but for its length: `η = 0.25`, or `η = 0.25, soft`.
    #[must_use]
    pub fn kind(&self) -> String {
        let end = if self.passes == 0 { ", soft" } else { "" };
        format!("η = {}{end}", self.normalization)
    }

    fn check(&self, rows: usize, num_actions: usize) -> Result<()> {
        let (latent_dim, rank) = (self.latent_dim, rows.min(num_actions));
        if rank < 2 {
            let problem = format!(
                "an SVD needs two training users and two items, and here are {rows} and {num_actions}"
            );
            return Err(Error::setting("embedding", problem));
        }
        if latent_dim == 0 || latent_dim >= rank {
            let problem = format!(
                "is {latent_dim}, but {rows} training contexts and {num_actions} actions allow 1 to {} \
                 (--latent-dim)",
                rank - 1
            );
            return Err(Error::setting("embedding.latent_dim", problem));
        }
        if !(0.0..=1.0).contains(&self.normalization) {
            let problem = format!("is {}, but must be from 0 to 1", self.normalization);
            return Err(Error::setting("embedding.normalization", problem));
        }
        Ok(())
    }
}

/// Singular vectors within a subspace (Rayleigh–Ritz).
struct Ritz {
    /// Vectors of the side of Q, `[rows, L]`; for the other side still to be multiplied with A, and then of
    /// length one.
    vectors: Matrix,
    /// σ², descending.
    values: Vec<f64>,
    /// How many of them are not rounding.
    own: usize,
}

impl Ritz {
    /// Takes Q and A AᵀQ. AᵀQ = V Σ Wᵀ, so QᵀA AᵀQ = W Σ² Wᵀ; the left singular vectors are Q W, the right
    /// ones Aᵀ Q W Σ⁻¹. All that is dense has the rows of Q's side, which is `own_side` where its vectors
    /// are wanted.
    #[allow(clippy::cast_possible_truncation, reason = "f32 is the precision of β")]
    fn new([q, product]: [Matrix; 2], latent_dim: usize, own_side: bool) -> Result<Self> {
        let width = q.cols();
        let (values, rotation) = eigen(products(&q, &product).as_ref())?;
        let values: Vec<f64> = values.into_iter().rev().take(latent_dim).collect();
        let own = values.iter().filter(|value| **value > NEGLIGIBLE * values[0]).count();
        let scale = |j: usize| if own_side || j >= own { 1.0 } else { values[j].sqrt().recip() };
        // The eigenvalues ascend.
        let column = |i, j| (rotation[(i, width - 1 - j)] * scale(j)) as f32;
        let rotation = Mat::from_fn(width, latent_dim, column);
        Ok(Self { vectors: times(&q, rotation.as_ref()), values, own })
    }

    /// V and s, where the vectors are the right ones.
    #[allow(clippy::cast_possible_truncation, reason = "f32 is the precision of β")]
    fn decomposition(self, energy: f64, rank: usize, seed: Seed) -> Result<Decomposition> {
        let Self { vectors: mut v, values, own } = self;
        let latent_dim = values.len();
        if own < latent_dim {
            // The rank is exhausted: any other orthonormal columns will do.
            let random = normals(v.rows(), latent_dim, 1, seed);
            let rows = v.as_mut_slice().chunks_exact_mut(latent_dim).zip(random.iter_rows());
            rows.for_each(|(row, random)| row[own..].copy_from_slice(&random[own..]));
            orthonormalise(&mut v)?;
            orthonormalise(&mut v)?;
        }
        fix_signs(&mut v);
        let length = |(j, value): (usize, &f64)| if j < own { value.sqrt() as f32 } else { 0.0 };
        let singular_values = values.iter().enumerate().map(length).collect();
        Ok(Decomposition { v, singular_values, energy, rank })
    }
}

fn normals(rows: usize, width: usize, draw: u64, seed: Seed) -> Matrix {
    let mut block = Matrix::zeros(rows, width);
    block.par_rows_mut().enumerate().for_each(|(position, row)| {
        seed.stream(Purpose::Sketch, draw, position as u64).fill_normals(row);
    });
    block
}

/// Eigenvalues, ascending, and their eigenvectors, of a symmetric matrix whose lower triangle is read.
pub(super) fn eigen(matrix: MatRef<'_, f64>) -> Result<(Vec<f64>, Mat<f64>)> {
    let size = matrix.nrows();
    let (mut values, mut vectors) = (Diag::zeros(size), Mat::zeros(size, size));
    let (wanted, options) = (ComputeEigenvectors::Yes, Spec::default());
    let scratch = self_adjoint_evd_scratch::<f64>(size, wanted, PARTS, options);
    let mut memory = MemBuffer::new(scratch);
    let stack = MemStack::new(&mut memory);
    self_adjoint_evd(matrix, values.as_mut(), Some(vectors.as_mut()), PARTS, stack, options)
        .map_err(|error| Error::library("eigenvalue decomposition", format!("{error:?}")))?;
    Ok((values.column_vector().iter().copied().collect(), vectors))
}

/// Singular vectors are defined up to a sign: each column's largest entry (the first of equals)
/// becomes positive.
pub(super) fn fix_signs(block: &mut Matrix) {
    let mut largest = vec![0.0_f32; block.cols()];
    for row in block.iter_rows() {
        for (largest, &value) in largest.iter_mut().zip(row) {
            if value.abs() > largest.abs() {
                *largest = value;
            }
        }
    }
    block.par_rows_mut().for_each(|row| {
        row.iter_mut().zip(&largest).for_each(|(value, largest)| *value *= largest.signum());
    });
}

#[cfg(test)]
mod tests;
