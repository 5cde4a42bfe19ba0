//! Contexts: `M(X) = mean of β_a over a ∈ X`, the vector that stands for a user (section 4.1).

use rayon::prelude::*;

use crate::dataset::ActionSets;
use crate::embedding::ActionEmbeddings;
use crate::matrix::Matrix;

/// `M(X)` of each of `contexts`, in the order given, `[contexts, L]`; `M(∅) = 0`.
#[must_use]
pub fn mean_contexts(
    observed: &ActionSets,
    contexts: &[u32],
    actions: &ActionEmbeddings,
) -> Matrix {
    let mut means = Matrix::zeros(contexts.len(), actions.latent_dim());
    means
        .par_rows_mut()
        .zip(contexts)
        .for_each(|(row, &context)| mean_into(observed.of(context), actions, row));
    means
}

/// `M(X)` of one list of actions below P, `[L]`; `M(∅) = 0`.
#[must_use]
pub fn mean(observed: &[u32], actions: &ActionEmbeddings) -> Vec<f32> {
    let mut row = vec![0.0; actions.latent_dim()];
    mean_into(observed, actions, &mut row);
    row
}

fn mean_into(observed: &[u32], actions: &ActionEmbeddings, row: &mut [f32]) {
    for &action in observed {
        for (sum, value) in row.iter_mut().zip(actions.row(action)) {
            *sum += value;
        }
    }
    let count = observed.len().max(1) as f32;
    for sum in row {
        *sum /= count;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_the_mean_of_what_was_observed() {
        let beta = Matrix::new(vec![1.0, 2.0, 3.0, 4.0, 5.0, 9.0], 2).unwrap();
        let actions = ActionEmbeddings::new(beta).unwrap();
        let observed = ActionSets::from_pairs(3, [(0, 0), (0, 2), (2, 1)].into_iter());
        let means = mean_contexts(&observed, &[2, 1, 0], &actions);
        assert_eq!(means.as_slice(), [3.0, 4.0, 0.0, 0.0, 3.0, 5.5]);
        assert_eq!(mean(&[0, 2], &actions), [3.0, 5.5]);
        assert_eq!(mean(&[], &actions), [0.0, 0.0]);
    }
}
