//! FOPO (Sakhi, Rohde, Gilotte: "Fast Offline Policy Optimization for Large Scale Recommendation",
//! AAAI 2023) takes queries and returns the covariance gradient of the softmax, `Cov(r̂(a), β_a)`, by
//! self-normalised importance sampling. The paper generalises it to slates; here K = 1.
//!
//! Actions are drawn from the proposal `q(a) = ε/P + (1 − ε) κ(a)`: uniform over the P available
//! actions, mixed with κ, the softmax of the M best of them, which one retrieval finds. Under the
//! weights `ω̄_s ∝ e^{hᵀβ_{a_s}} / q(a_s)`, which sum to 1, the gradient is the covariance of the S
//! samples, `Σ_s ω̄_s (r̂_s − r̄) β_{a_s}` with `r̄ = Σ_s ω̄_s r̂_s`. The normalising constant cancels;
//! the price is a bias, which falls as 1/S.

use std::sync::Arc;

use rayon::prelude::*;

use tracing::trace_span;

use super::row::{RowEstimate, WeightedSum};
use super::{BatchRows, Estimator, Gradient};
use crate::embedding::ActionEmbeddings;
use crate::error::{Error, Result};
use crate::matrix::dot;
use crate::policy::Sampling;
use crate::retrieval::{Heads, Retriever, Slates, nth_included};
use crate::reward::SlateReward;
use crate::seed::{Purpose, Stream};

/// The self-normalised covariance gradient of the softmax. Biased for every finite S.
#[derive(Clone, Debug)]
pub struct Fopo {
    actions: Arc<ActionEmbeddings>,
    heads: Heads,
    uniform_share: f64,
    reward: Arc<dyn SlateReward>,
    sampling: Sampling,
}

impl Fopo {
    /// Refuses slates of several actions, a single sample and a share outside (0, 1].
    ///
    /// # Errors
    /// [`Error::Setting`] with the reason.
    pub fn check(sampling: &Sampling, uniform_share: f64) -> Result<()> {
        if sampling.slate_size > 1 {
            return Err(Error::setting(
                "slate_size",
                format!(
                    "FOPO weighs single actions by the softmax: expected slates of one action, \
                     found {}; for longer ones set method.kind = \"covariance\"",
                    sampling.slate_size
                ),
            ));
        }
        if sampling.num_samples < 2 {
            return Err(Error::setting(
                "method.samples",
                "FOPO takes a covariance over samples, and one has none: its gradient is 0; expected \
                 at least 2, found 1",
            ));
        }
        if !(uniform_share > 0.0 && uniform_share <= 1.0) {
            return Err(Error::setting(
                "method.uniform_share",
                format!("expected a number above 0 and at most 1, found {uniform_share}"),
            ));
        }
        Ok(())
    }

    /// The gradient of `reward` for slates of one of `actions`. `retriever` finds the `head` best
    /// of them, fewer where exclusion leaves fewer; `uniform_share` is ε. At ε = 0 no action
    /// outside the head would ever be drawn, and no number of samples would remove the bias.
    ///
    /// # Errors
    /// [`Error::Setting`] for K > 1, S < 2, ε outside (0, 1], or an empty head.
    pub fn new(
        actions: Arc<ActionEmbeddings>,
        retriever: Arc<dyn Retriever>,
        reward: Arc<dyn SlateReward>,
        head: usize,
        uniform_share: f64,
        sampling: Sampling,
    ) -> Result<Self> {
        sampling.validate()?;
        Self::check(&sampling, uniform_share)?;
        let heads = sampling.heads(retriever, head, actions.num_actions())?;
        Ok(Self { actions, heads, uniform_share, reward, sampling })
    }

    fn estimate(&self, rows: BatchRows<'_>, row: usize, heads: &Slates) -> Result<RowEstimate> {
        let (context, samples) = (rows.contexts[row], self.sampling.num_samples);
        let query = Query {
            fopo: self,
            h: rows.h.row(row),
            excluded: self.sampling.excluded_of(context),
            head: heads.slate(row),
            shares: softmax(heads.scores(row)),
        };
        let mut stream = rows.stream(self.sampling.seed, Purpose::Slates, row);
        let actions: Vec<u32> = (0..samples).map(|_| query.draw(&mut stream)).collect();
        let logs: Vec<f64> = actions.iter().map(|action| query.log_weight(*action)).collect();
        let largest = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = logs.iter().map(|log| (log - largest).exp()).collect();
        let total: f64 = weights.iter().sum();
        let slates = Slates::unscored(1, actions.clone());
        let rewards = self.reward.finite_rewards(&[context], &slates)?; // [S]
        let rewards: Vec<f64> = rewards.into_iter().map(f64::from).collect();
        let mean = weights.iter().zip(&rewards).map(|(w, r)| w * r).sum::<f64>() / total;
        // The centred rewards sum to zero under the weights, so β needs no centring.
        let mut g = WeightedSum::new(&self.actions);
        for ((action, weight), reward) in actions.iter().zip(&weights).zip(&rewards) {
            g.add(weight / total * (reward - mean), *action);
        }
        #[allow(clippy::cast_possible_truncation, reason = "rewards are f32")]
        Ok(RowEstimate { rewards: vec![mean as f32; samples], g: g.rounded() })
    }
}

impl Estimator for Fopo {
    /// Reports r̄ of its row as every sample's reward: the self-normalised estimate of `R̂(π)`, with a
    /// bias that falls as 1/S. The proposal, not the policy, draws the actions, so their plain mean
    /// reward would not estimate it.
    fn gradient(&self, rows: BatchRows<'_>) -> Result<Gradient> {
        let _span = trace_span!("sampling").entered();
        let heads = self.heads.search(rows.contexts, rows.h)?; // [rows, M]
        let all = (0..heads.len()).into_par_iter();
        let estimates: Result<_> = all.map(|row| self.estimate(rows, row, &heads)).collect();
        RowEstimate::gather(estimates?, self.actions.latent_dim())
    }
}

/// The proposal and the softmax of one query.
struct Query<'a> {
    fopo: &'a Fopo,
    h: &'a [f32],
    excluded: &'a [u32],
    head: &'a [u32],
    /// κ, `[M]`.
    shares: Vec<f64>,
}

impl Query<'_> {
    fn available(&self) -> usize {
        self.fopo.actions.num_actions() - self.excluded.len()
    }

    fn draw(&self, stream: &mut Stream) -> u32 {
        if stream.uniform() < self.fopo.uniform_share {
            #[allow(clippy::cast_possible_truncation, reason = "actions are numbered by u32")]
            let place = stream.below(self.available() as u32);
            return nth_included(self.excluded, place);
        }
        self.head[stream.place(1.0, self.shares.iter().copied()).unwrap_or_default()]
    }

    /// log of `e^{hᵀβ_a} / q(a)`.
    fn log_weight(&self, action: u32) -> f64 {
        let uniform = self.fopo.uniform_share;
        let share = self.head.iter().position(|other| *other == action);
        let share = share.map_or(0.0, |at| self.shares[at]);
        let q = uniform / self.available() as f64 + (1.0 - uniform) * share;
        f64::from(dot(self.h, self.fopo.actions.row(action))) - q.ln()
    }
}

/// The softmax of `scores`, best first.
fn softmax(scores: &[f32]) -> Vec<f64> {
    let largest = f64::from(scores[0]);
    let sum: f64 = scores.iter().map(|score| (f64::from(*score) - largest).exp()).sum();
    scores.iter().map(|score| (f64::from(*score) - largest - sum.ln()).exp()).collect()
}
