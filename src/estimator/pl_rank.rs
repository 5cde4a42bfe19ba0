//! PL-Rank (Oosterhuis, *Learning-to-Rank at the Speed of Sampling*, SIGIR 2022) takes slates of a
//! Plackett–Luce policy and a reward `Σ_k w_k ρ_{a_k}`, and returns the gradient. It uses the reward
//! that every action would have earned at every rank, where the score function uses one number.

use tracing::trace_span;

use super::{BatchRows, Estimator, Gradient};
use crate::error::{Error, Result};
use crate::policy::{Distribution, GradientSum, PlackettLuce, ScoreGradient, SlatePolicy};
use crate::reward::{LinearReward, SlateReward};

/// PL-Rank-3.
#[derive(Clone, Debug)]
pub struct PlRank {
    policy: PlackettLuce,
    reward: LinearReward,
    /// w, `[K]`.
    rank_weights: Vec<f64>,
}

impl PlRank {
    /// The error for a reward that is not a sum over ranks.
    #[must_use]
    pub fn not_linear() -> Error {
        Error::setting(
            "reward.kind",
            "is not linear: PL-Rank credits each rank with its own weight times the relevance of \
             its action, which a reward of the slate as a whole does not have; set method.kind = \
             \"pl-pg\" or \"covariance\"",
        )
    }

    /// The gradient of a linear reward of `policy`.
    ///
    /// # Errors
    /// [`Error::Setting`] for a reward that is not linear.
    pub fn new(policy: PlackettLuce, reward: &dyn SlateReward) -> Result<Self> {
        let Some(linear) = reward.as_linear() else {
            return Err(Self::not_linear());
        };
        let slate_size = policy.sampling().slate_size;
        let weights = linear.rank_weights().iter().map(|&weight| f64::from(weight));
        let rank_weights = weights.chain(std::iter::repeat(0.0)).take(slate_size).collect();
        Ok(Self { policy, reward: linear.clone(), rank_weights })
    }

    pub(super) fn policy(&self) -> &PlackettLuce {
        &self.policy
    }

    /// The gradient in the scores of one row, and the rewards of its S slates.
    pub(super) fn of_row(
        &self,
        rows: BatchRows<'_>,
        row: usize,
        distribution: &Distribution,
    ) -> (ScoreGradient, Vec<f32>) {
        let context = rows.contexts[row];
        let slates = self.policy.draw(distribution, rows, row); // [S·K]
        let weight = 1.0 / self.policy.sampling().num_samples as f64;
        let mut gradient = GradientSum::new(distribution, self.reward.relevant(context));
        let rewards = slates.chunks_exact(self.rank_weights.len()).map(|slate| {
            gradient.add_pl_rank(slate, &self.rank_weights, weight);
            self.reward.reward(context, slate)
        });
        let rewards = rewards.collect();
        (gradient.finish(), rewards)
    }
}

impl Estimator for PlRank {
    fn gradient(&self, rows: BatchRows<'_>) -> Result<Gradient> {
        let _span = trace_span!("sampling").entered();
        let beta = self.policy.actions().beta();
        let (h, rewards) = self.policy.latent_gradients(beta, rows, |row, distribution| {
            let (gradient, rewards) = self.of_row(rows, row, distribution);
            Ok((vec![gradient], rewards))
        })?; // [rows, L]
        Ok(Gradient { h, rewards: rewards.concat() })
    }
}
