//! How good decisions are: their reward on held-out contexts, `R̂(d_θ)` of section 4.1, with
//! standard errors and paired intervals, and the metrics that other recommenders are compared by.

mod metrics;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::model::Model;
use crate::problem::{Problem, Search};
use crate::retrieval::Slates;

pub use metrics::Metrics;
use metrics::Tally;

/// Rewards of the decisions, one per context, and the metrics over all.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    rewards: Vec<f32>,
    metrics: Metrics,
}

/// A mean and its 95 % interval (normal approximation).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The mean.
    pub mean: f64,
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

/// Contexts decided at once; bounds the memory of an evaluation.
const BLOCK: usize = 4096;

impl Evaluation {
    /// The reward of the deterministic decision in each of `contexts`.
    ///
    /// # Errors
    /// Those of the retriever and the device.
    pub fn of(problem: &Problem, model: &Model, contexts: &[u32], search: Search) -> Result<Self> {
        let retriever = problem.retriever(model, search)?;
        Self::by(problem, contexts, |block| problem.decide(model, block, retriever.as_ref()))
    }

    /// The same of any recommender: `decide` gives a slate for each context of a block.
    ///
    /// # Errors
    /// Those of `decide`.
    pub fn by(
        problem: &Problem,
        contexts: &[u32],
        decide: impl Fn(&[u32]) -> Result<Slates>,
    ) -> Result<Self> {
        let mut rewards = Vec::with_capacity(contexts.len());
        let mut tally = Tally::new(problem.sessions.num_actions);
        for block in contexts.chunks(BLOCK) {
            let slates = decide(block)?; // [block, K]
            let reward = |at: usize| problem.reward.reward(block[at], slates.slate(at));
            rewards.par_extend((0..block.len()).into_par_iter().map(reward));
            for (at, &context) in block.iter().enumerate() {
                tally.add(problem.sessions.hidden.of(context), slates.slate(at));
            }
        }
        Ok(Self { rewards, metrics: tally.metrics() })
    }

    /// What does not depend on the reward.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.metrics
    }

    /// Mean reward; 0 without contexts.
    #[must_use]
    pub fn mean(&self) -> f64 {
        mean(self.values())
    }

    /// Standard error of the mean over contexts.
    #[must_use]
    pub fn standard_error(&self) -> f64 {
        standard_error(self.values())
    }

    /// The mean gain over `start` on the same contexts, with its paired 95 % interval.
    #[must_use]
    pub fn gain_over(&self, start: &Self) -> Interval {
        let differences = self.values().zip(start.values()).map(|(now, then)| now - then);
        let (mean, half) = (mean(differences.clone()), 1.96 * standard_error(differences));
        Interval { mean, low: mean - half, high: mean + half }
    }

    fn values(&self) -> impl ExactSizeIterator<Item = f64> + Clone + '_ {
        self.rewards.iter().map(|reward| f64::from(*reward))
    }
}

/// The mean; 0 without values.
pub(crate) fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}

/// The standard error of the mean, `√(Σ(v − mean)² / (n − 1) / n)`; 0 for fewer than two values.
pub(crate) fn standard_error(values: impl ExactSizeIterator<Item = f64> + Clone) -> f64 {
    let count = values.len();
    if count < 2 {
        return 0.0;
    }
    let centre = mean(values.clone());
    let squares: f64 = values.map(|value| (value - centre).powi(2)).sum();
    (squares / (count - 1) as f64 / count as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paired_interval_is_tighter_than_the_spread_of_the_rewards() {
        let of = |reward: &dyn Fn(i32) -> f32| Evaluation {
            rewards: (0..100).map(reward).collect(),
            metrics: Metrics::default(),
        };
        let start = of(&|i| i as f32);
        let now = of(&|i| i as f32 + 1.0 + 0.1 * (i % 2) as f32);
        let gain = now.gain_over(&start);
        assert!((gain.mean - 1.05).abs() < 1e-5);
        assert!(gain.low > 1.0 && gain.high < 1.1);
        assert!((start.standard_error() - 2.9011).abs() < 1e-3);
    }
}
