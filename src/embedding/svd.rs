//! Takes the binary training matrix A (contexts × actions) and returns its truncated SVD, from the
//! leading eigenvectors of `A Aᵀ` or `AᵀA`, whichever is smaller (`krylov`). It uses A only in products
//! with thin dense blocks, so memory is O((U + P)·L); the basis has 6 to 7 times L columns and
//! min(U, P) rows.
//!
//! The blocks are f32, so a singular value σ is good to about 1e-7 · (σ_1 / σ)² of itself; σ_1 / σ_L is
//! a few tens for interactions.

use std::borrow::Cow;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::dataset::{ActionSets, Sessions, Split};
use crate::embedding::krylov::{Search, leading};
use crate::embedding::tall::decompose;
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
    /// The most multiplications of a block of L/4 columns by A and Aᵀ.
    pub images: usize,
    /// η: the decomposed matrix is `(n_u n_a)^−η A_{ua}`, n being the numbers of interactions of a
    /// context and of an action. At 0 the most frequent ones dominate the leading dimensions; ½ is the
    /// normalised adjacency of the graph.
    pub normalization: f32,
    /// The search ends once two more images raise the captured energy `‖A V‖² = Σ σ²` by less than
    /// this share; 0 means all `images`.
    pub tolerance: f64,
}

impl Default for SvdOptions {
    fn default() -> Self {
        Self { latent_dim: 100, images: 24, normalization: 0.25, tolerance: 1.5e-3 }
    }
}

impl SvdOptions {
    /// Columns of a block: whole lines of the cache.
    fn block(self) -> usize {
        self.latent_dim.div_ceil(4).next_multiple_of(16)
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
/// [`Error::Setting`] when L is 0 or not below both sides of the matrix, the tolerance not in [0, 1) or
/// the normalisation not in [0, 1]; [`Error::Library`] when the small dense SVD fails.
pub fn truncated_svd(
    matrix: &ActionSets,
    num_actions: usize,
    options: SvdOptions,
    seed: Seed,
) -> Result<StoredEmbeddings> {
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
    if !(0.0..1.0).contains(&options.tolerance) {
        let problem = format!("is {}, but must be in [0, 1)", options.tolerance);
        return Err(Error::setting("embedding.tolerance", problem));
    }
    if !(0.0..=1.0).contains(&options.normalization) {
        let problem = format!("is {}, but must be from 0 to 1", options.normalization);
        return Err(Error::setting("embedding.normalization", problem));
    }
    let search = Search {
        count: latent_dim,
        block: options.block(),
        images: options.images,
        tolerance: options.tolerance,
    };
    // The basis is on the side with fewer rows: A Aᵀ or AᵀA.
    let transposed = matrix.transposed(num_actions);
    let of_actions = num_actions < matrix.len();
    let (near, far) = if of_actions { (&transposed, matrix) } else { (matrix, &transposed) };
    let mut draws = 0;
    let normals = |block: &mut [f32]| {
        fill_normals(block, near.len(), draws, seed);
        draws += 1;
    };
    let scales = |sets| (options.normalization > 0.0).then(|| scales(sets, options.normalization));
    let (near_scales, far_scales) = (scales(near), scales(far));
    let image = |block: &[f32], width| {
        let block = scaled(Cow::Borrowed(block), near_scales.as_deref(), width);
        let image = scaled(far.times(&block, width).into(), far_scales.as_deref(), width);
        let image = scaled(image, far_scales.as_deref(), width);
        scaled(near.times(&image, width).into(), near_scales.as_deref(), width).into_owned()
    };
    let (values, mut v) = leading(near.len(), search, normals, image)?;
    #[allow(clippy::cast_possible_truncation, reason = "f32 is the precision of β")]
    let mut singular_values: Vec<f32> =
        values.iter().map(|value| value.max(0.0).sqrt() as f32).collect();
    if !of_actions {
        let v_in = scaled(v.into(), near_scales.as_deref(), latent_dim);
        let image = transposed.times(&v_in, latent_dim).into(); // AᵀU = V Σ
        v = scaled(image, far_scales.as_deref(), latent_dim).into_owned();
        singular_values = decompose(&mut v, latent_dim)?;
    }
    let v = with_fixed_signs(v, latent_dim)?;
    let energy = energy(matrix, &transposed, options.normalization);
    let spectrum = Spectrum { values: singular_values, total: Some([energy, rank as f32]) };
    Ok(StoredEmbeddings { v, spectrum: Some(spectrum), inputs: None })
}

/// The sum of the squared entries of the decomposed matrix, which is that of all squared singular
/// values.
#[allow(clippy::cast_possible_truncation, reason = "f32 is the precision of β")]
fn energy(matrix: &ActionSets, transposed: &ActionSets, normalization: f32) -> f32 {
    let squares = |sets| -> Vec<f64> {
        scales(sets, normalization).into_iter().map(|scale| f64::from(scale).powi(2)).collect()
    };
    let (of_contexts, of_actions) = (squares(matrix), squares(transposed));
    let row = |context: u32| -> f64 {
        matrix.of(context).iter().map(|&action| of_actions[action as usize]).sum()
    };
    matrix.contexts().map(|context| of_contexts[context as usize] * row(context)).sum::<f64>()
        as f32
}

/// `n^−η` of each set, n its size.
fn scales(sets: &ActionSets, normalization: f32) -> Vec<f32> {
    let scale = |set| (sets.of(set).len().max(1) as f32).powf(-normalization);
    sets.contexts().map(scale).collect()
}

/// Each row of `block` times its scale, if there are scales.
fn scaled<'a>(block: Cow<'a, [f32]>, scales: Option<&[f32]>, width: usize) -> Cow<'a, [f32]> {
    let Some(scales) = scales else { return block };
    let mut block = block.into_owned();
    let rows = block.par_chunks_exact_mut(width).zip(scales);
    rows.for_each(|(row, scale)| row.iter_mut().for_each(|value| *value *= scale));
    block.into()
}

fn fill_normals(block: &mut [f32], rows: usize, draw: u64, seed: Seed) {
    let width = block.len() / rows;
    block.par_chunks_exact_mut(width).enumerate().for_each(|(position, row)| {
        seed.stream(Purpose::Sketch, draw, position as u64).fill_normals(row);
    });
}

/// Singular vectors are defined up to a sign: each column's largest entry (the first of equals)
/// becomes positive.
fn with_fixed_signs(mut block: Vec<f32>, width: usize) -> Result<Matrix> {
    let mut largest = vec![0.0_f32; width];
    for row in block.chunks_exact(width) {
        for (largest, &value) in largest.iter_mut().zip(row) {
            if value.abs() > largest.abs() {
                *largest = value;
            }
        }
    }
    for row in block.chunks_exact_mut(width) {
        row.iter_mut().zip(&largest).for_each(|(value, largest)| *value *= largest.signum());
    }
    Matrix::new(block, width)
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
        SvdOptions { latent_dim, tolerance: 0.0, normalization: 0.0, ..SvdOptions::default() }
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
        for (i, value) in found.spectrum.unwrap().values.into_iter().enumerate() {
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
            for (i, value) in found.spectrum.unwrap().values.into_iter().enumerate() {
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
            assert!(found.spectrum.unwrap().values.is_sorted_by(|a, b| a >= b));
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
    fn the_search_ends_when_little_is_left_to_capture() {
        let matrix = tastes();
        let captured = |options| {
            let found = truncated_svd(&matrix, 2500, options, Seed(5)).unwrap();
            let values = found.spectrum.unwrap().values;
            values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>()
        };
        let options = SvdOptions { latent_dim: 20, ..SvdOptions::default() };
        let (most, first) = (
            captured(SvdOptions { images: 30, tolerance: 0.0, ..options }),
            captured(SvdOptions { images: 0, ..options }),
        );
        let share = captured(options) / most;
        assert!(first < 0.99 * most, "the test needs something to converge");
        assert!(0.999 < share && share < 1.0 - 1e-6, "captured {share} of the most");
    }

    #[test]
    fn a_tolerance_is_a_share() {
        for tolerance in [-0.1, 1.0, f64::NAN] {
            let options = SvdOptions { tolerance, ..options(L) };
            let error = truncated_svd(&blocks(), ACTIONS, options, Seed(1)).unwrap_err();
            assert!(error.to_string().contains("embedding.tolerance"), "{error}");
        }
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
