//! Takes the binary training matrix A (contexts × actions) and returns its truncated SVD, from a
//! subspace of the smaller of its two sides (`subspace`): the singular vectors within the subspace, by
//! the eigenvectors of a matrix of L + 64 columns. A occurs only in products with a block of as many
//! columns, so memory is O((U + P)·L).
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
use crate::embedding::subspace::{Side, leading};
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
const OVERSAMPLING: usize = 64;
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
    /// about a thousandth of its greatest value, and each one more divides that by ten or so.
    pub passes: usize,
    /// η: the decomposed matrix is `(n_u n_a)^−η A_{ua}`, n being the numbers of interactions of a
    /// context and of an action. At 0 the most frequent ones dominate the leading dimensions; ½ is the
    /// normalised adjacency of the graph.
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
#[allow(clippy::cast_possible_truncation, reason = "f32 is the precision of β")]
pub fn truncated_svd(
    matrix: &ActionSets,
    num_actions: usize,
    options: SvdOptions,
    seed: Seed,
) -> Result<Decomposition> {
    let rank = matrix.len().min(num_actions);
    let latent_dim = options.latent_dim;
    if latent_dim == 0 || latent_dim >= rank {
        let problem = format!(
            "is {latent_dim}, but {} training contexts and {num_actions} actions allow 1 to {} \
             (--latent-dim)",
            matrix.len(),
            rank.saturating_sub(1)
        );
        return Err(Error::setting("embedding.latent_dim", problem));
    }
    if !(0.0..=1.0).contains(&options.normalization) {
        let problem = format!("is {}, but must be from 0 to 1", options.normalization);
        return Err(Error::setting("embedding.normalization", problem));
    }
    // Q is on the side with fewer rows.
    let transposed = matrix.transposed(num_actions);
    let of_actions = num_actions < matrix.len();
    let (near, far) = if of_actions { (&transposed, matrix) } else { (matrix, &transposed) };
    let [near, far] = [near, far].map(|sets| Side::new(sets, options.normalization));
    let width = (latent_dim + OVERSAMPLING).min(rank);
    let start = normals(far.len(), width, 0, seed);
    let [q, product] = leading(&near, &far, start, options.passes)?; // Q, A AᵀQ

    // AᵀQ = V Σ Wᵀ, so QᵀA AᵀQ = W Σ² Wᵀ; the left singular vectors are Q W, the right ones Aᵀ Q W Σ⁻¹.
    // All that is dense has the rows of the smaller side.
    let (values, rotation) = eigen(products(&q, &product).as_ref())?;
    let values: Vec<f64> = values.into_iter().rev().take(latent_dim).collect();
    let own = values.iter().filter(|value| **value > NEGLIGIBLE * values[0]).count();
    let scale = |j: usize| if of_actions || j >= own { 1.0 } else { values[j].sqrt().recip() };
    // The eigenvalues ascend.
    let rotation =
        Mat::from_fn(width, latent_dim, |i, j| (rotation[(i, width - 1 - j)] * scale(j)) as f32);
    let mut v = times(&q, rotation.as_ref());
    if !of_actions {
        let left = v;
        v = Matrix::zeros(num_actions, latent_dim);
        far.times(&near, &left, &mut v);
    }
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
    Ok(Decomposition { v, singular_values, energy: near.energy(&far), rank })
}

fn normals(rows: usize, width: usize, draw: u64, seed: Seed) -> Matrix {
    let mut block = Matrix::zeros(rows, width);
    block.par_rows_mut().enumerate().for_each(|(position, row)| {
        seed.stream(Purpose::Sketch, draw, position as u64).fill_normals(row);
    });
    block
}

/// Eigenvalues, ascending, and their eigenvectors, of a symmetric matrix whose lower triangle is read.
fn eigen(matrix: MatRef<'_, f64>) -> Result<(Vec<f64>, Mat<f64>)> {
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
fn fix_signs(block: &mut Matrix) {
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
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use faer::Mat;

    use super::*;

    const CONTEXTS: usize = 90;
    const ACTIONS: usize = 60;
    const L: usize = 4;

    /// Four groups of contexts that like four groups of actions, of unequal sizes, and little
    /// noise: four large singular values, then a gap.
    fn blocks() -> ActionSets {
        let mut stream = Seed(3).stream(Purpose::Synthetic, 0, 0);
        let mut pairs = Vec::new();
        for context in 0..CONTEXTS {
            for action in 0..ACTIONS {
                let same = context * context / 2026 == action * action / 901;
                if stream.uniform() < if same { 0.9 } else { 0.02 } {
                    pairs.push((u32::try_from(context).unwrap(), u32::try_from(action).unwrap()));
                }
            }
        }
        ActionSets::from_pairs(CONTEXTS, pairs.into_iter())
    }

    fn dense(matrix: &ActionSets) -> Mat<f64> {
        Mat::from_fn(matrix.len(), ACTIONS, |context, action| {
            let (context, action) = (context.try_into().unwrap(), action.try_into().unwrap());
            f64::from(u8::from(matrix.contains(context, action)))
        })
    }

    fn options(latent_dim: usize) -> SvdOptions {
        SvdOptions { latent_dim, normalization: 0.0, ..SvdOptions::default() }
    }

    fn as_f64(v: &Matrix) -> Mat<f64> {
        Mat::from_fn(v.rows(), v.cols(), |i, j| f64::from(v.row(i)[j]))
    }

    #[test]
    fn the_subspace_is_that_of_the_dense_decomposition() {
        let matrix = blocks();
        let exact = dense(&matrix).thin_svd().unwrap();
        let values = exact.S().column_vector();
        assert!(values[L - 1] / values[L] >= 1.5, "the test needs a gap");
        let found = truncated_svd(&matrix, ACTIONS, options(L), Seed(1)).unwrap();
        // What is left of V outside the exact subspace is the sine of the largest angle.
        let v = as_f64(&found.v);
        let reference = exact.V().subcols(0, L);
        let outside = &v - reference * (reference.transpose() * &v);
        let sine = outside.singular_values().unwrap()[0];
        assert!(sine <= 1e-4, "sine of the largest principal angle {sine}");
        for (i, value) in found.singular_values.into_iter().enumerate() {
            assert!((f64::from(value) / values[i] - 1.0).abs() <= 1e-4, "σ_{i}");
        }
    }

    #[test]
    fn normalisation_divides_by_powers_of_the_sizes() {
        for matrix in [blocks(), blocks().transposed(ACTIONS)] {
            let num_actions = if matrix.len() == CONTEXTS { ACTIONS } else { CONTEXTS };
            let sizes = |sets: &ActionSets| -> Vec<f64> {
                sets.contexts().map(|set| sets.of(set).len().max(1) as f64).collect()
            };
            let (rows, columns) = (sizes(&matrix), sizes(&matrix.transposed(num_actions)));
            let exact = Mat::from_fn(matrix.len(), num_actions, |i, j| {
                let (context, action) = (i.try_into().unwrap(), j.try_into().unwrap());
                let entry = f64::from(u8::from(matrix.contains(context, action)));
                entry / (rows[i] * columns[j]).powf(0.25)
            });
            let exact = exact.thin_svd().unwrap();
            let options = SvdOptions { normalization: 0.25, ..options(L) };
            let found = truncated_svd(&matrix, num_actions, options, Seed(1)).unwrap();
            let (v, reference) = (as_f64(&found.v), exact.V().subcols(0, L));
            let outside = &v - reference * (reference.transpose() * &v);
            assert!(outside.singular_values().unwrap()[0] <= 1e-4);
            for (i, value) in found.singular_values.into_iter().enumerate() {
                let expected = exact.S().column_vector()[i];
                assert!((f64::from(value) / expected - 1.0).abs() <= 1e-4, "σ_{i}");
            }
        }
    }

    #[test]
    fn columns_are_orthonormal_and_their_largest_entry_is_positive() {
        // L beyond the rank of this matrix: the columns stay orthonormal.
        let few = ActionSets::from_pairs(20, (0..20).flat_map(|row| [(row, row % 3), (row, 7)]));
        for (matrix, latent_dim) in [(blocks(), 30), (few, 10)] {
            let found = truncated_svd(&matrix, ACTIONS, options(latent_dim), Seed(1)).unwrap();
            let v = as_f64(&found.v);
            let gram = v.transpose() * &v;
            for i in 0..latent_dim {
                for j in 0..latent_dim {
                    let expected = f64::from(u8::from(i == j));
                    assert!((gram[(i, j)] - expected).abs() < 1e-5, "VᵀV at {i}, {j}");
                }
                let column = || (0..ACTIONS).map(|row| v[(row, i)]);
                let (low, high) = (column().fold(0.0, f64::min), column().fold(0.0, f64::max));
                assert!(high >= -low - 1e-6, "column {i} from {low} to {high}");
            }
            assert!(found.singular_values.is_sorted_by(|a, b| a >= b));
        }
    }

    /// Contexts of ten tastes, in panels enough for several threads.
    fn tastes() -> ActionSets {
        let pairs = (0..3000_u32).flat_map(|context| {
            let mut stream = Seed(4).stream(Purpose::Synthetic, 0, context.into());
            let draws: Vec<_> = (0..20).map(|_| 10 * stream.below(250) + context % 10).collect();
            draws.into_iter().map(move |action| (context, action))
        });
        ActionSets::from_pairs(3000, pairs)
    }

    #[test]
    fn the_same_seed_gives_the_same_numbers_on_any_number_of_threads() {
        let matrix = tastes();
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let options = SvdOptions { latent_dim: 12, ..SvdOptions::default() };
            pool.install(|| truncated_svd(&matrix, 2500, options, Seed(5)).unwrap())
        };
        let one = run(1);
        assert_eq!(one, run(2));
        assert_eq!(one, run(3));
    }

    #[test]
    fn two_passes_capture_nearly_all_that_more_capture() {
        let matrix = tastes();
        let captured = |passes| {
            let options = SvdOptions { latent_dim: 20, passes, ..SvdOptions::default() };
            let found = truncated_svd(&matrix, 2500, options, Seed(5)).unwrap();
            found.singular_values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>()
        };
        let (most, first) = (captured(12), captured(0));
        let share = captured(SvdOptions::default().passes) / most;
        assert!(first < 0.99 * most, "the test needs something to converge");
        assert!(0.998 < share && share < 1.0 + 1e-6, "captured {share} of the most");
    }

    #[test]
    fn the_first_columns_are_the_decomposition_of_fewer() {
        let matrix = tastes();
        let of = |latent_dim| {
            let options = SvdOptions { latent_dim, passes: 6, ..SvdOptions::default() };
            truncated_svd(&matrix, 2500, options, Seed(5)).unwrap()
        };
        // The ten tastes are ten singular values far above the rest.
        let (few, many) = (of(10), of(40));
        for (i, value) in few.singular_values.iter().enumerate() {
            assert!((value / many.singular_values[i] - 1.0).abs() < 1e-5, "σ_{i}");
        }
        let (few, many) = (as_f64(&few.v), as_f64(&many.v));
        let first = many.subcols(0, 10);
        let outside = &few - first * (first.transpose() * &few);
        assert!(outside.norm_max() < 1e-4, "{}", outside.norm_max());
    }

    #[test]
    fn the_energy_is_the_sum_of_all_squared_singular_values() {
        for normalization in [0.0, 0.25] {
            let options = SvdOptions { normalization, ..options(ACTIONS - 1) };
            let found = truncated_svd(&blocks(), ACTIONS, options, Seed(1)).unwrap();
            let squares = found.singular_values.iter().map(|value| f64::from(*value).powi(2));
            // All but the last of 60.
            let left = 1.0 - squares.sum::<f64>() / found.energy;
            assert!((-1e-6..1e-2).contains(&left), "{left} of the energy is left");
        }
        let found = truncated_svd(&blocks(), ACTIONS, options(L), Seed(1)).unwrap();
        assert!((found.energy - blocks().num_pairs() as f64).abs() < 1e-9);
    }

    #[test]
    fn an_impossible_dimension_says_what_is_possible() {
        for latent_dim in [0, 60, 1000] {
            let error = truncated_svd(&blocks(), ACTIONS, options(latent_dim), Seed(1));
            let error = error.unwrap_err().to_string();
            assert!(error.contains("embedding.latent_dim") && error.contains("1 to 59"), "{error}");
        }
        assert!(truncated_svd(&blocks(), ACTIONS, options(59), Seed(1)).is_ok());
    }

    #[test]
    fn only_training_contexts_make_the_matrix() {
        let sessions = Sessions {
            observed: ActionSets::from_pairs(3, [(0, 1), (1, 2), (2, 0)].into_iter()),
            hidden: ActionSets::from_pairs(3, [(0, 0), (1, 0), (2, 3)].into_iter()),
            split: vec![Split::Train, Split::Test, Split::Train],
            num_actions: 4,
        };
        let all = training_matrix(&sessions, SessionPart::All);
        assert_eq!((all.of(0), all.of(1)), (&[0, 1][..], &[0, 3][..]));
        let observed = training_matrix(&sessions, SessionPart::Observed);
        assert_eq!((observed.of(0), observed.of(1)), (&[1][..], &[0][..]));
        assert_eq!((all.len(), observed.num_pairs()), (2, 2));
    }
}
