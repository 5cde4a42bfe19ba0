//! Takes the actions of a user and returns the mean of their input vectors,
//! `M(X) = Σ_{a∈X} w_a e_a / Σ_{a∈X} w_a`; with equal weights the mean of the paper (section 4.1).
//!
//! In a mean, a user who has ten actions of one taste and two of another has the first alone: no slate
//! near to it holds both. The balanced mean divides the weight of an action by its likeness to all of X,
//! `w_a / (1 + max(0, Σ_{b∈X, b≠a} cos(e_a, e_b)))`, so that tastes weigh, not actions.

use std::sync::Arc;

use super::{ContextEncoder, Known};
use crate::matrix::{Matrix, dot, norm};

/// The mean of the input vectors over X `[L]`; `M(∅) = 0`.
#[derive(Clone, Debug)]
pub struct Mean {
    /// e `[P, L]`, which is β unless the two were imported apart.
    inputs: Arc<Matrix>,
    /// w `[P]`; none for equal weights.
    weights: Option<Arc<Vec<f32>>>,
    /// ρ; 0 to ignore the order.
    recency: f32,
    /// True if actions that are alike share their weight.
    balanced: bool,
}

/// The weights `max(n, 1)^−γ` of actions of popularity n, `[P]`.
#[must_use]
pub fn popularity_weights(popularity: &[u32], gamma: f32) -> Vec<f32> {
    popularity.iter().map(|&count| (count.max(1) as f32).powf(-gamma)).collect()
}

impl Mean {
    /// The plain mean.
    #[must_use]
    pub fn new(inputs: Arc<Matrix>) -> Self {
        Self { inputs, weights: None, recency: 0.0, balanced: false }
    }

    /// A mean in which an action of popularity n (in training users) weighs `max(n, 1)^−γ`, since a
    /// popular action says little about its user.
    #[must_use]
    pub fn inverse_popularity(inputs: Arc<Matrix>, popularity: &[u32], gamma: f32) -> Self {
        Self::weighted(inputs, Arc::new(popularity_weights(popularity, gamma)))
    }

    /// A mean with the given weights `[P]`.
    #[must_use]
    pub fn weighted(inputs: Arc<Matrix>, weights: Arc<Vec<f32>>) -> Self {
        Self { inputs, weights: Some(weights), recency: 0.0, balanced: false }
    }

    /// Weighs an action by `(1 + l)^−ρ` besides, l being the number of the user's later actions.
    /// Their number says more than their age does: users come back after a day or after years.
    /// Without known times the order is ignored.
    #[must_use]
    pub fn with_recency(self, rho: f32) -> Self {
        Self { recency: rho, ..self }
    }

    /// Has actions that are alike share their weight.
    #[must_use]
    pub fn balanced(self) -> Self {
        Self { balanced: true, ..self }
    }
}

impl ContextEncoder for Mean {
    fn dim(&self) -> usize {
        self.inputs.cols()
    }

    fn encode(&self, known: Known<'_>, context: &mut [f32]) {
        context.fill(0.0);
        let mut total = 0.0;
        let mut weights: Vec<f32> = self.weights(known).collect();
        if self.balanced {
            let alike = self.alike(known.actions);
            weights.iter_mut().zip(alike).for_each(|(weight, alike)| *weight /= 1.0 + alike);
        }
        for (weight, &action) in weights.into_iter().zip(known.actions) {
            total += weight;
            let input = self.inputs.row(action as usize);
            context.iter_mut().zip(input).for_each(|(sum, value)| *sum += weight * value);
        }
        if total > 0.0 {
            for sum in context.iter_mut() {
                *sum /= total;
            }
        }
    }
}

impl Mean {
    /// How alike each of `actions` is to the others, `max(0, Σ_{b≠a} cos(e_a, e_b))`: an action without
    /// direction is like none.
    fn alike(&self, actions: &[u32]) -> Vec<f32> {
        let directions = || {
            actions.iter().map(|&action| {
                let input = self.inputs.row(action as usize);
                let inverse = norm(input).recip();
                (input, if inverse.is_finite() { inverse } else { 0.0 })
            })
        };
        let mut sum = vec![0.0; self.inputs.cols()];
        for (input, inverse) in directions() {
            sum.iter_mut().zip(input).for_each(|(sum, value)| *sum += inverse * value);
        }
        directions().map(|(input, inverse)| (inverse * dot(input, &sum) - 1.0).max(0.0)).collect()
    }

    /// w of each known action, not yet balanced.
    fn weights<'a>(&'a self, known: Known<'a>) -> impl Iterator<Item = f32> + 'a {
        let times = known.times.filter(|_| self.recency > 0.0);
        let mut ascending = times.map(<[i64]>::to_vec).unwrap_or_default();
        ascending.sort_unstable();
        known.actions.iter().enumerate().map(move |(at, &action)| {
            let weight = self.weights.as_ref().map_or(1.0, |weights| weights[action as usize]);
            let Some(times) = times else { return weight };
            let before = ascending.partition_point(|time| *time <= times[at]);
            weight * ((1 + ascending.len() - before) as f32).powf(-self.recency)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(encoder: &Mean, actions: &[u32]) -> Vec<f32> {
        encoded_at(encoder, actions, None)
    }

    fn encoded_at(encoder: &Mean, actions: &[u32], times: Option<&[i64]>) -> Vec<f32> {
        let mut context = vec![f32::NAN; 2];
        encoder.encode(Known { actions, times, features: None }, &mut context);
        context
    }

    fn actions() -> Arc<Matrix> {
        Arc::new(Matrix::new(vec![1.0, 2.0, 3.0, 4.0, 5.0, 9.0], 2).unwrap())
    }

    #[test]
    fn a_context_is_the_mean_of_what_was_observed() {
        let mean = Mean::new(actions());
        assert_eq!(encoded(&mean, &[0, 2]), [3.0, 5.5]);
        assert_eq!(encoded(&mean, &[1]), [3.0, 4.0]);
        assert_eq!(encoded(&mean, &[]), [0.0, 0.0]);
    }

    #[test]
    fn actions_of_one_taste_share_their_weight() {
        let inputs =
            Matrix::new(vec![2.0, 0.0, 3.0, 0.0, 4.0, 0.0, 0.0, 1.0, 0.0, 0.0], 2).unwrap();
        let balanced = Mean::new(Arc::new(inputs)).balanced();
        // Each of three alike weighs a third, the fourth 1.
        assert_eq!(encoded(&balanced, &[0, 1, 2, 3]), [1.5, 0.5]);
        // Opposites take nothing from each other, nor does an action without direction.
        assert_eq!(encoded(&balanced, &[3]), [0.0, 1.0]);
        assert_eq!(encoded(&balanced, &[3, 4]), [0.0, 0.5]);
        assert_eq!(encoded(&balanced, &[]), [0.0, 0.0]);
    }

    #[test]
    fn what_everybody_knows_weighs_less() {
        let weighted = Mean::inverse_popularity(actions(), &[9, 4, 0], 0.5);
        // Weights 1/3 and 1: (1, 2) · 1/4 + (5, 9) · 3/4.
        assert_eq!(encoded(&weighted, &[0, 2]), [4.0, 7.25]);
        // One action is later, so action 2 weighs a third of its popularity's 1.
        let aging = weighted.clone().with_recency(3.0_f32.log2());
        let times = [1_600_086_400, 1_600_000_000];
        let aged = encoded_at(&aging, &[0, 2], Some(&times));
        assert!((aged[0] - 3.0).abs() < 1e-5 && (aged[1] - 5.5).abs() < 1e-5, "{aged:?}");
        // The order is ignored without times or without a ρ.
        assert_eq!(encoded(&aging, &[0, 2]), [4.0, 7.25]);
        assert_eq!(encoded_at(&weighted, &[0, 2], Some(&times)), [4.0, 7.25]);
        assert_eq!(encoded_at(&aging, &[], Some(&[])), [0.0, 0.0]);
        // What is as late weighs as much, and how much later counts for nothing.
        assert_eq!(encoded_at(&aging, &[0, 2], Some(&[7, 7])), [4.0, 7.25]);
        assert_eq!(encoded_at(&aging, &[0, 2], Some(&[i64::MAX, i64::MIN])), aged);
        let flat = Mean::inverse_popularity(actions(), &[9, 4, 0], 0.0);
        assert_eq!(encoded(&flat, &[0, 1, 2]), encoded(&Mean::new(actions()), &[0, 1, 2]));
    }
}
