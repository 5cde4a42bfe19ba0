//! The reward-weighted likelihood takes queries and hidden actions and returns the gradient of
//! `L(h) = 1/|Y| Σ_{a∈Y} w_a log p_a`; it draws no slate. p is the softmax of `hᵀβ_b / τ` over the
//! actions that may be shown, w_a the reward of a slate of a alone. The gradient is
//! `g = 1/|Y| Σ_{a∈Y} w_a (β_a − Σ_b p_b β_b) / τ`. One softmax stands for all of Y, as in a
//! multinomial likelihood: each hidden action is a negative of the others too.
//!
//! τ is σ of the latent policy times B, the mean norm of β, times a temperature: it follows the scale
//! of h, on which a decision does not depend. So the temperature compares a score with the noise that
//! the policy would add to the score of an average action. Where σ is relative and the radial part is
//! projected out, g is the gradient of `L` with τ proportional to ‖h‖.
//!
//! The softmax needs no pass over all actions. The M best ones, found by one search, and Y are summed
//! exactly; S uniform draws that weigh T/S each stand for the T others, or all of them where T ≤ S.
//! Numerator and normalising constant are unbiased; their ratio has a bias that falls as 1/S.

use std::sync::Arc;

use rayon::prelude::*;
use tracing::trace_span;

use super::row::{RowEstimate, WeightedSum};
use super::{BatchRows, Estimator, Gradient};
use crate::dataset::Sessions;
use crate::embedding::ActionEmbeddings;
use crate::error::{Error, Result};
use crate::matrix::dot;
use crate::policy::{LatentPerturbation, SlatePolicy as _};
use crate::retrieval::{Heads, is_excluded, nth_included};
use crate::reward::SlateReward;
use crate::seed::{Purpose, Stream};

/// The gradient of the reward-weighted likelihood of hidden actions. It is biased for every finite S,
/// and it is not the gradient of the reward of slates.
#[derive(Clone, Debug)]
pub struct Likelihood {
    policy: LatentPerturbation,
    actions: Arc<ActionEmbeddings>,
    heads: Heads,
    sessions: Arc<Sessions>,
    reward: Arc<dyn SlateReward>,
    temperature: f32,
}

impl Likelihood {
    /// The likelihood of the hidden actions of `sessions`, weighted by `reward`. `policy` over
    /// `actions` gives σ, S, K and the exclusions; its search finds the `head` best actions, fewer
    /// where exclusion leaves fewer.
    ///
    /// # Errors
    /// [`Error::Setting`] for a temperature that is not positive, or a head that does not hold a
    /// slate.
    pub fn new(
        policy: LatentPerturbation,
        actions: Arc<ActionEmbeddings>,
        sessions: Arc<Sessions>,
        reward: Arc<dyn SlateReward>,
        head: usize,
        temperature: f32,
    ) -> Result<Self> {
        if !(temperature > 0.0 && temperature.is_finite()) {
            let problem = format!("expected a number above 0, found {temperature}");
            return Err(Error::setting("method.temperature", problem));
        }
        let retriever = Arc::clone(policy.retriever());
        let heads = policy.sampling().heads(retriever, head, actions.num_actions())?;
        Ok(Self { policy, actions, heads, sessions, reward, temperature })
    }

    /// τ/σ.
    fn temperature(&self) -> f32 {
        self.temperature * self.actions.mean_norm().max(f32::MIN_POSITIVE)
    }

    fn estimate(&self, rows: BatchRows<'_>, row: usize, head: &[u32]) -> RowEstimate {
        let sampling = self.policy.sampling();
        let context = rows.contexts[row];
        let excluded = sampling.excluded_of(context);
        let hidden = self.sessions.hidden.of(context).iter().copied();
        let positive: Vec<(u32, f64)> = hidden
            .filter(|action| !is_excluded(excluded, *action))
            .map(|action| (action, f64::from(self.reward.reward(context, &[action]))))
            .collect();
        let total: f64 = positive.iter().map(|(_, weight)| weight).sum();
        let mut g = WeightedSum::new(&self.actions);
        if total != 0.0 {
            let count = positive.len() as f64;
            for (action, weight) in &positive {
                g.add(weight / count, *action);
            }
            let mut stream = rows.stream(sampling.seed, Purpose::Slates, row);
            let hidden = positive.iter().map(|(action, _)| *action);
            let softmax = self.softmax(rows, row, head.iter().copied().chain(hidden), &mut stream);
            for (action, probability) in softmax {
                g.add(-total / count * probability, action);
            }
        }
        let mut g = g.rounded();
        let temperature = self.temperature();
        for g in &mut g {
            *g /= temperature;
        }
        self.policy.to_gradient(rows, row, &mut g);
        let shown = self.reward.reward(context, &head[..sampling.slate_size]);
        RowEstimate { rewards: vec![shown; sampling.num_samples], g }
    }

    /// Actions and their estimated probabilities, which sum to 1: the `known` ones, and samples of
    /// all others.
    fn softmax(
        &self,
        rows: BatchRows<'_>,
        row: usize,
        known: impl Iterator<Item = u32>,
        stream: &mut Stream,
    ) -> Vec<(u32, f64)> {
        let mut known: Vec<u32> = known.collect();
        known.sort_unstable();
        known.dedup();
        let sampling = self.policy.sampling();
        let mut apart = [sampling.excluded_of(rows.contexts[row]), &known].concat();
        apart.sort_unstable();
        let others = self.actions.num_actions() - apart.len();
        // All of them where there are no more than S.
        let samples = sampling.num_samples.min(others);
        let weight = others as f64 / samples.max(1) as f64;
        #[allow(clippy::cast_possible_truncation, reason = "actions are numbered by u32")]
        let place =
            |at: usize| if samples == others { at as u32 } else { stream.below(others as u32) };
        let apart = &apart;
        let drawn = (0..samples).map(place).map(|place| (nth_included(apart, place), weight));

        let h = rows.h.row(row);
        let tau = f64::from(self.temperature()) * f64::from(self.policy.sigma(rows, row));
        let score = |action: u32| f64::from(dot(h, self.actions.row(action))) / tau;
        let mut softmax: Vec<(u32, f64)> = known
            .into_iter()
            .map(|action| (action, 1.0))
            .chain(drawn)
            .map(|(action, weight)| (action, score(action) + weight.ln()))
            .collect();
        let largest = softmax.iter().map(|entry| entry.1).fold(f64::NEG_INFINITY, f64::max);
        let mut total = 0.0;
        for (_, log) in &mut softmax {
            *log = (*log - largest).exp();
            total += *log;
        }
        softmax.into_iter().map(|(action, share)| (action, share / total)).collect()
    }
}

impl Estimator for Likelihood {
    /// Draws no slate: every sample's reward is the reward of the decision, the top K of the search.
    fn gradient(&self, rows: BatchRows<'_>) -> Result<Gradient> {
        let span = trace_span!("retrieval").entered();
        let heads = self.heads.search(rows.contexts, rows.h)?; // [rows, M]
        drop(span);
        let _span = trace_span!("estimator").entered();
        let estimates = (0..heads.len())
            .into_par_iter()
            .map(|row| self.estimate(rows, row, heads.slate(row)))
            .collect();
        RowEstimate::gather(estimates, self.actions.latent_dim())
    }
}
