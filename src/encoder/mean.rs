//! Means of embeddings: `M(X) = Σ_{a∈X} w_a β_a / Σ_{a∈X} w_a`, and with all weights equal the mean of
//! the paper (section 4.1).

use std::sync::Arc;

use super::{ContextEncoder, Known};
use crate::embedding::ActionEmbeddings;

/// The mean of β over X `[L]`; `M(∅) = 0`.
#[derive(Clone, Debug)]
pub struct Mean {
    actions: Arc<ActionEmbeddings>,
    /// w `[P]`; all equal where there are none.
    weights: Option<Vec<f32>>,
}

impl Mean {
    /// The plain mean.
    #[must_use]
    pub fn new(actions: Arc<ActionEmbeddings>) -> Self {
        Self { actions, weights: None }
    }

    /// The mean in which an action of popularity n (in training users) weighs `max(n, 1)^−γ`: that
    /// somebody knows what everybody knows says little.
    #[must_use]
    pub fn inverse_popularity(
        actions: Arc<ActionEmbeddings>,
        popularity: &[u32],
        gamma: f32,
    ) -> Self {
        let weights = popularity.iter().map(|&count| (count.max(1) as f32).powf(-gamma)).collect();
        Self { actions, weights: Some(weights) }
    }
}

impl ContextEncoder for Mean {
    fn dim(&self) -> usize {
        self.actions.latent_dim()
    }

    fn encode(&self, known: Known<'_>, context: &mut [f32]) {
        context.fill(0.0);
        let mut total = 0.0;
        for &action in known.actions {
            let weight = self.weights.as_ref().map_or(1.0, |weights| weights[action as usize]);
            total += weight;
            let beta = self.actions.row(action);
            context.iter_mut().zip(beta).for_each(|(sum, value)| *sum += weight * value);
        }
        if total > 0.0 {
            for sum in context {
                *sum /= total;
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::matrix::Matrix;

    fn encoded(encoder: &Mean, actions: &[u32]) -> Vec<f32> {
        let mut context = vec![f32::NAN; 2];
        encoder.encode(Known { actions }, &mut context);
        context
    }

    fn actions() -> Arc<ActionEmbeddings> {
        let beta = Matrix::new(vec![1.0, 2.0, 3.0, 4.0, 5.0, 9.0], 2).unwrap();
        Arc::new(ActionEmbeddings::new(beta).unwrap())
    }

    #[test]
    fn a_context_is_the_mean_of_what_was_observed() {
        let mean = Mean::new(actions());
        assert_eq!(encoded(&mean, &[0, 2]), [3.0, 5.5]);
        assert_eq!(encoded(&mean, &[1]), [3.0, 4.0]);
        assert_eq!(encoded(&mean, &[]), [0.0, 0.0]);
    }

    #[test]
    fn what_everybody_knows_weighs_less() {
        let weighted = Mean::inverse_popularity(actions(), &[9, 4, 0], 0.5);
        // Weights 1/3 and 1: (1, 2) · 1/4 + (5, 9) · 3/4.
        assert_eq!(encoded(&weighted, &[0, 2]), [4.0, 7.25]);
        let flat = Mean::inverse_popularity(actions(), &[9, 4, 0], 0.0);
        assert_eq!(encoded(&flat, &[0, 1, 2]), encoded(&Mean::new(actions()), &[0, 1, 2]));
    }
}
