//! The score-function gradient, REINFORCE (equations 6 and 9), takes any policy and any reward and
//! returns `g = 1/S Σ_s (r̂_s − b_s) ∇_h log q_s`. With a latent perturbation it is the gradient of LGP
//! (the body of Algorithm 1 as corrected) or LRP, with Plackett–Luce it is PL-PG.

use std::sync::Arc;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use tracing::trace_span;

use super::{BatchRows, Estimator, Gradient};
use crate::error::Result;
use crate::matrix::{Matrix, rows_worth_a_fork};
use crate::policy::{Drawn, SlatePolicy};
use crate::reward::SlateReward;

/// b, the number subtracted from a reward before it weighs the score.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControlVariate {
    /// Nothing, as in the paper.
    None,
    /// The mean reward of the context's other samples; at S = 1 the mean reward of the batch's other
    /// contexts, and 0 in a batch of one. It is independent of the sample it is subtracted from, so
    /// it adds no bias.
    LeaveOneOut,
}

impl ControlVariate {
    /// r̂ − b, for rewards `[B · S]` of S samples a row.
    pub(super) fn centred(self, rewards: &[f32], num_samples: usize) -> Vec<f32> {
        // One sample is left out of a context's own, or at S = 1 out of the whole batch's.
        let group = if num_samples > 1 { num_samples } else { rewards.len() };
        if self == Self::None || group < 2 {
            return rewards.to_vec();
        }
        rewards
            .chunks_exact(group)
            .flat_map(|group| {
                let sum: f32 = group.iter().sum();
                let others = (group.len() - 1) as f32;
                group.iter().map(move |reward| reward - (sum - reward) / others)
            })
            .collect()
    }
}

/// The score-function gradient of a policy.
#[derive(Clone, Debug)]
pub struct ScoreFunction {
    policy: Arc<dyn SlatePolicy>,
    reward: Arc<dyn SlateReward>,
    baseline: ControlVariate,
}

impl ScoreFunction {
    /// The gradient of the reward of `policy`.
    #[must_use]
    pub fn new(
        policy: Arc<dyn SlatePolicy>,
        reward: Arc<dyn SlateReward>,
        baseline: ControlVariate,
    ) -> Self {
        Self { policy, reward, baseline }
    }
}

impl Estimator for ScoreFunction {
    fn gradient(&self, rows: BatchRows<'_>) -> Result<Gradient> {
        let s = self.policy.sampling().num_samples;
        let Drawn { slates, scores, spans } = self.policy.sample(rows)?;
        let span = trace_span!("reward").entered();
        let rewards = self.reward.finite_rewards(rows.contexts, &slates)?; // [B·S]
        drop(span);
        let _span = trace_span!("estimator").entered();
        let weights = self.baseline.centred(&rewards, s); // [B·S]
        let mut h = Matrix::zeros(rows.h.rows(), rows.h.cols()); // [B, L]
        let fork = rows_worth_a_fork(s * scores.cols());
        h.par_rows_mut().with_min_len(fork).enumerate().for_each(|(row, g)| {
            let mut sum = vec![0.0; scores.cols()];
            for (at, weight) in (row * s..).zip(&weights[row * s..(row + 1) * s]) {
                // Most rewards are zero most of the time; a zero weight needs no score.
                if *weight != 0.0 {
                    // A single sample is weighed below: the order decides the rounding.
                    let weight = if s == 1 { 1.0 } else { weight / s as f32 };
                    let score = scores.row(at);
                    sum.iter_mut().zip(score).for_each(|(sum, score)| *sum += weight * score);
                }
            }
            let span = spans.as_ref().map(|spans| &spans[row]);
            g.copy_from_slice(&self.policy.to_gradient(rows, row, span, sum));
            if s == 1 {
                for g in g {
                    *g *= weights[row];
                }
            }
        });
        self.policy.reuse(scores);
        Ok(Gradient { h, rewards })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leave_one_out_subtracts_the_mean_of_the_other_samples() {
        let centred = |rewards: &[f32], s| ControlVariate::LeaveOneOut.centred(rewards, s);
        assert_eq!(centred(&[1.0, 3.0, 4.0, 8.0], 2), [-2.0, 2.0, -4.0, 4.0]);
        // One sample: the other contexts are left, and without any the baseline is 0.
        assert_eq!(centred(&[1.0, 4.0, 7.0], 1), [-4.5, 0.0, 4.5]);
        assert_eq!(centred(&[3.0], 1), [3.0]);
        assert_eq!(ControlVariate::None.centred(&[1.0, 3.0], 2), [1.0, 3.0]);
    }
}
