//! Truncated SVD of the binary training matrix A (contexts × actions) by randomised subspace
//! iteration: Halko, Martinsson & Tropp, *Finding structure with randomness*, 2011, algorithms 4.4
//! and 5.1. A is touched only through products with thin dense blocks, so memory is
//! O((U + P)·L). The blocks are f64: the iteration multiplies by `A Aᵀ` before it orthonormalises,
//! which squares the spread of the singular values, more than f32 has room for.

use faer::{Mat, MatRef};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::dataset::{ActionSets, Sessions, Split};
use crate::embedding::StoredEmbeddings;
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::seed::{Purpose, Seed};

/// Which interactions of the training contexts make A.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Interactions {
    /// X and Y: all that a training user did.
    #[default]
    All,
    /// X alone, as the paper's text has it.
    Observed,
}

/// How the decomposition is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SvdOptions {
    /// L.
    pub latent_dim: usize,
    /// Columns carried beside the L: the iteration converges by σ_{L+oversampling+1} / σ_L.
    pub oversampling: usize,
    /// Multiplications by `A Aᵀ`, each with an orthonormalisation. The angle to the true subspace
    /// falls by the square of that ratio at each; 12 take it below 1e-4 at a ratio of 1.5.
    pub iterations: usize,
}

impl Default for SvdOptions {
    fn default() -> Self {
        Self { latent_dim: 100, oversampling: 20, iterations: 12 }
    }
}

/// A: one row for each training context, the actions it interacted with.
#[must_use]
pub fn training_matrix(sessions: &Sessions, interactions: Interactions) -> ActionSets {
    let contexts = sessions.contexts(Split::Train);
    let hidden = |context| match interactions {
        Interactions::All => sessions.hidden.of(context),
        Interactions::Observed => &[],
    };
    let pairs = (0_u32..).zip(&contexts).flat_map(|(row, &context)| {
        let actions = sessions.observed.of(context).iter().chain(hidden(context));
        actions.map(move |&action| (row, action))
    });
    ActionSets::from_pairs(contexts.len(), pairs)
}

/// The L largest singular values of `matrix`, whose actions are below `num_actions`, and their
/// right singular vectors V `[P, L]`; the largest entry of each column of V is positive.
///
/// # Errors
/// [`Error::Setting`] when L is 0 or not below both sides of the matrix, [`Error::Library`] when
/// the small dense SVD fails.
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
    let width = latent_dim.saturating_add(options.oversampling).min(rank);
    let transposed = transpose(matrix, num_actions);

    let sketch = sketch(num_actions, width, seed); // Ω [P, width]
    let mut basis = orthonormalise(&product(matrix, &sketch, width), width); // Q [U, width]
    for _ in 0..options.iterations {
        let back = product(&transposed, &basis, width); // AᵀQ [P, width]
        basis = orthonormalise(&product(matrix, &back, width), width); // orth(A AᵀQ)
    }

    // QᵀA = (AᵀQ)ᵀ = (W R)ᵀ: the left singular vectors of R turn W into V.
    let projected = product(&transposed, &basis, width);
    let qr = MatRef::from_row_major_slice(&projected, num_actions, width).qr();
    let small = qr
        .thin_R()
        .thin_svd()
        .map_err(|error| Error::library("singular value decomposition", format!("{error:?}")))?;
    let v = qr.compute_thin_Q() * small.U().subcols(0, latent_dim);
    let values = small.S().column_vector();
    #[allow(clippy::cast_possible_truncation, reason = "f32 is the precision of β")]
    let singular_values = (0..latent_dim).map(|i| values[i] as f32).collect();
    Ok(StoredEmbeddings { v: with_fixed_signs(&v), singular_values: Some(singular_values) })
}

fn transpose(matrix: &ActionSets, num_actions: usize) -> ActionSets {
    let pairs = matrix
        .contexts()
        .flat_map(|context| matrix.of(context).iter().map(move |&action| (action, context)));
    ActionSets::from_pairs(num_actions, pairs)
}

/// `sets · dense`: row i sums the rows of `dense` that set i names. One thread sums a row, in
/// ascending order, so the result does not depend on the number of threads.
fn product(sets: &ActionSets, dense: &[f64], width: usize) -> Vec<f64> {
    let mut out = vec![0.0; sets.len() * width];
    out.par_chunks_exact_mut(width).zip(0_u32..u32::MAX).for_each(|(row, set)| {
        for &at in sets.of(set) {
            let start = at as usize * width;
            for (sum, value) in row.iter_mut().zip(&dense[start..start + width]) {
                *sum += value;
            }
        }
    });
    out
}

fn sketch(rows: usize, width: usize, seed: Seed) -> Vec<f64> {
    let mut out = vec![0.0; rows * width];
    out.par_chunks_exact_mut(width).enumerate().for_each(|(position, row)| {
        let mut normals = vec![0.0_f32; width];
        seed.stream(Purpose::Sketch, 0, position as u64).fill_normals(&mut normals);
        row.iter_mut().zip(normals).for_each(|(out, normal)| *out = f64::from(normal));
    });
    out
}

/// An orthonormal basis of the columns, row-major in and out.
fn orthonormalise(block: &[f64], width: usize) -> Vec<f64> {
    let rows = block.len() / width;
    let q = MatRef::from_row_major_slice(block, rows, width).qr().compute_thin_Q();
    let mut out = vec![0.0; block.len()];
    out.par_chunks_exact_mut(width).enumerate().for_each(|(i, row)| {
        row.iter_mut().enumerate().for_each(|(j, out)| *out = q[(i, j)]);
    });
    out
}

/// Singular vectors are defined up to a sign: each column's largest entry (the first of equals)
/// becomes positive.
fn with_fixed_signs(v: &Mat<f64>) -> Matrix {
    let mut out = Matrix::zeros(v.nrows(), v.ncols());
    for j in 0..v.ncols() {
        let mut largest = 0.0_f64;
        for i in 0..v.nrows() {
            if v[(i, j)].abs() > largest.abs() {
                largest = v[(i, j)];
            }
        }
        for i in 0..v.nrows() {
            #[allow(clippy::cast_possible_truncation, reason = "f32 is the precision of β")]
            let value = (v[(i, j)] * largest.signum()) as f32;
            out.row_mut(i)[j] = value;
        }
    }
    out
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
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
        SvdOptions { latent_dim, ..SvdOptions::default() }
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
        // Little oversampling: the gap must do the work.
        let options = SvdOptions { oversampling: 2, ..options(L) };
        let found = truncated_svd(&matrix, ACTIONS, options, Seed(1)).unwrap();
        // What is left of V outside the exact subspace is the sine of the largest angle.
        let v = as_f64(&found.v);
        let reference = exact.V().subcols(0, L);
        let outside = &v - reference * (reference.transpose() * &v);
        let sine = outside.singular_values().unwrap()[0];
        assert!(sine <= 1e-4, "sine of the largest principal angle {sine}");
        for (i, value) in found.singular_values.unwrap().into_iter().enumerate() {
            assert!((f64::from(value) / values[i] - 1.0).abs() <= 1e-4, "σ_{i}");
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
            assert!(found.singular_values.unwrap().is_sorted_by(|a, b| a >= b));
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let run = || truncated_svd(&blocks(), ACTIONS, options(L), Seed(5)).unwrap();
        assert_eq!(run(), run());
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
        let all = training_matrix(&sessions, Interactions::All);
        assert_eq!((all.of(0), all.of(1)), (&[0, 1][..], &[0, 3][..]));
        let observed = training_matrix(&sessions, Interactions::Observed);
        assert_eq!((observed.of(0), observed.of(1)), (&[1][..], &[0][..]));
        assert_eq!((all.len(), observed.num_pairs()), (2, 2));
    }
}
