//! Takes the binary training matrix A (contexts × actions) and returns its truncated SVD, by
//! randomised subspace iteration (Halko, Martinsson & Tropp, *Finding structure with randomness*, 2011)
//! with the shift of Feng, Yu, Xie & Tang (*Algorithm 1043: Faster randomized SVD with dynamic shifts*,
//! 2024). A random block Q of L columns and some more is multiplied by `A Aᵀ − αI` and made orthonormal
//! again, some times; the leading singular vectors within the last AᵀQ are the result.
//!
//! A occurs only in products with a block, so memory is O((U + P)·L). The blocks are f32, so a singular
//! value σ is good to about 1e-7 · σ_1 / σ of itself; σ_1 / σ_L is a few tens for interactions.

use faer::diag::Diag;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::evd::{ComputeEigenvectors, self_adjoint_evd, self_adjoint_evd_scratch};
use faer::{Mat, MatRef, Par, Spec};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::dataset::{ActionSets, Sessions, Split};
use crate::embedding::fold_in::gram;
use crate::embedding::orthonormal::{orthonormalise, times};
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

/// Options of the decomposition.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SvdOptions {
    /// L.
    pub latent_dim: usize,
    /// Filters of the block.
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
    let transposed = matrix.transposed(num_actions);
    // Q is on the side with fewer rows.
    let of_actions = num_actions < matrix.len();
    let (near, far) = if of_actions { (&transposed, matrix) } else { (matrix, &transposed) };
    let near = Side { sets: near, scales: scales(near, options.normalization) };
    let far = Side { sets: far, scales: scales(far, options.normalization) };
    let width = (latent_dim + OVERSAMPLING).min(rank);

    let start = near.image(&far, &normals(far.sets.len(), width, 0, seed))?;
    let mut q = near.image(&far, &far.image(&near, &start)?)?; // [near, width]
    orthonormalise(&mut q)?;
    let mut image = far.image(&near, &q)?; // [far, width]
    for _ in 0..options.passes {
        q = filtered(&near, &far, q, &image)?;
        orthonormalise(&mut q)?;
        image = far.image(&near, &q)?;
    }
    orthonormalise(&mut q)?;
    image = far.image(&near, &q)?;

    let (values, vectors) = eigen(gram(&image).as_ref())?;
    let values: Vec<f64> = values.into_iter().rev().take(latent_dim).collect();
    let own = values.iter().filter(|value| **value > NEGLIGIBLE * values[0]).count();
    let scale = |i: usize| if of_actions || i >= own { 1.0 } else { values[i].sqrt().recip() };
    let rotation =
        Mat::from_fn(width, latent_dim, |i, j| (vectors[(i, width - 1 - j)] * scale(j)) as f32);
    let mut v = times(if of_actions { &q } else { &image }, rotation.as_ref());
    if own < latent_dim {
        // The rank of A is exhausted.
        let random = normals(v.rows(), latent_dim, 1, seed);
        let rows = v.as_mut_slice().chunks_exact_mut(latent_dim).zip(random.iter_rows());
        rows.for_each(|(row, random)| row[own..].copy_from_slice(&random[own..]));
        orthonormalise(&mut v)?;
        orthonormalise(&mut v)?;
    }
    with_fixed_signs(&mut v);
    let singular_values =
        (0..latent_dim).map(|i| if i < own { values[i].sqrt() as f32 } else { 0.0 });
    Ok(Decomposition {
        v,
        singular_values: singular_values.collect(),
        energy: near.energy(&far),
        rank,
    })
}

/// The normalised A or Aᵀ, of which `sets` are the rows: entry (i, j) is `scale_i · scale_j`, the other
/// scale being the other side's.
struct Side<'a> {
    sets: &'a ActionSets,
    scales: Vec<f32>,
}

impl Side<'_> {
    /// The product with a block whose rows are the columns of this side, the rows of `other`.
    fn image(&self, other: &Side<'_>, block: &Matrix) -> Result<Matrix> {
        let scales = Some([&self.scales[..], &other.scales]);
        Matrix::new(self.sets.scaled_times(scales, block.as_slice(), block.cols()), block.cols())
    }

    /// The sum of the squared entries.
    fn energy(&self, other: &Side<'_>) -> f64 {
        let square = |scale: f32| f64::from(scale).powi(2);
        let of = |row| self.sets.of(row).iter().map(|at| square(other.scales[*at as usize]));
        self.sets
            .contexts()
            .map(|row| square(self.scales[row as usize]) * of(row).sum::<f64>())
            .sum()
    }
}

/// `T_d(2C/b − I) Q` for `C = A Aᵀ` and the orthonormal Q, of which `image` is AᵀQ. The Chebyshev
/// polynomial T_d is at most 1 on the eigenvalues below b, an estimate of the least that Q has found,
/// and grows faster above than any other polynomial of its degree.
fn filtered(near: &Side<'_>, far: &Side<'_>, q: Matrix, image: &Matrix) -> Result<Matrix> {
    let lengths = squared_lengths(image); // qᵀCq
    let most = lengths.iter().copied().fold(0.0, f64::max);
    let bound =
        lengths.iter().copied().fold(most, f64::min).max(1e-6 * most).max(f64::MIN_POSITIVE);
    let degree = (GAIN.ln() / (2.0 * most / bound - 1.0).acosh()).floor().clamp(1.0, 4.0);
    // T_{k+1} = 2 (2C/b − I) T_k − T_{k−1}
    let step = |image: &Matrix, at: &Matrix, before: Option<&Matrix>| -> Result<Matrix> {
        let mut next = near.image(far, image)?;
        let factor = (2.0 / bound) as f32;
        let rows = next.par_rows_mut().zip(at.as_slice().par_chunks_exact(at.cols())).enumerate();
        rows.for_each(|(i, (next, at))| {
            next.iter_mut().zip(at).for_each(|(next, at)| *next = factor * *next - at);
            if let Some(before) = before {
                let pairs = next.iter_mut().zip(at).zip(before.row(i));
                pairs.for_each(|((next, _), before)| *next = 2.0 * *next - before);
            }
        });
        Ok(next)
    };
    let (mut before, mut at) = (None, q);
    let mut next = step(image, &at, before.as_ref())?;
    for _ in 1..degree as usize {
        (before, at) = (Some(at), next);
        next = step(&far.image(near, &at)?, &at, before.as_ref())?;
    }
    Ok(next)
}

/// Columns beyond the L wanted. The more there are, the faster the last of the L converge.
const OVERSAMPLING: usize = 64;
/// f32 has digits for no more.
const GAIN: f64 = 4e7;
const NEGLIGIBLE: f64 = 1e-10;

/// `n^−η` of each set, n its size.
fn scales(sets: &ActionSets, normalization: f32) -> Vec<f32> {
    let scale = |set| (sets.of(set).len().max(1) as f32).powf(-normalization);
    sets.contexts().map(scale).collect()
}

fn normals(rows: usize, width: usize, draw: u64, seed: Seed) -> Matrix {
    let mut block = Matrix::zeros(rows, width);
    block.par_rows_mut().enumerate().for_each(|(position, row)| {
        seed.stream(Purpose::Sketch, draw, position as u64).fill_normals(row);
    });
    block
}

/// `‖b‖²` of each column b.
fn squared_lengths(block: &Matrix) -> Vec<f64> {
    let mut sums = vec![0.0; block.cols()];
    for row in block.iter_rows() {
        sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += f64::from(value * value));
    }
    sums
}

/// Eigenvalues, ascending, and their eigenvectors, of a symmetric matrix whose lower triangle is read.
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

/// Singular vectors are defined up to a sign: each column's largest entry (the first of equals)
/// becomes positive.
fn with_fixed_signs(block: &mut Matrix) {
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
        SvdOptions { latent_dim, passes: 8, normalization: 0.0 }
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
    fn a_few_passes_capture_nearly_everything() {
        let matrix = tastes();
        let captured = |passes| {
            let options = SvdOptions { latent_dim: 20, passes, ..SvdOptions::default() };
            let found = truncated_svd(&matrix, 2500, options, Seed(5)).unwrap();
            found.singular_values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>()
        };
        let (first, default, most) =
            (captured(0), captured(SvdOptions::default().passes), captured(10));
        assert!(first < 0.999 * most, "the test needs something to converge");
        assert!(0.999 < default / most, "captured {} of the most", default / most);
    }

    #[test]
    fn the_energy_is_that_of_all_singular_values() {
        let matrix = blocks();
        let found = truncated_svd(&matrix, ACTIONS, options(L), Seed(1)).unwrap();
        assert!((found.energy - matrix.num_pairs() as f64).abs() < 1e-6);
        assert_eq!(found.rank, ACTIONS);
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
