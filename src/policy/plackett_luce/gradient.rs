//! Takes slates with weights for their ranks and returns a gradient in the scores. For a slate
//! a_1 … a_K an action d has the coefficient
//!
//! `Σ_{k ≤ rank(d)} e^{f_d} / Z_k (ρ_d gain_k − cost_k) + bonus_{rank(d)}`,
//!
//! where rank(d) is K, and the bonus 0, for an action that is not on the slate. So all tail actions
//! share two sums over the ranks, and the rest is sparse: the gradients of S slates take O(S (T + K))
//! numbers, not O(S P), and share the exponentials of the distribution.

use super::distribution::{Distribution, Walk};
use crate::matrix::Matrix;

/// The weights of the ranks of a slate, `[K]` each.
#[derive(Clone, Copy, Debug)]
pub struct RankTerms<'a> {
    /// Weight of the action placed at a rank.
    pub bonus: &'a [f64],
    /// Weight of the probability of every action that is unplaced at a rank.
    pub cost: &'a [f64],
    /// Weight of the probability of every unplaced relevant action; empty for 0.
    pub gain: &'a [f64],
}

/// A gradient with respect to the scores in factors: `c_d − B e^{f_d − m}`. The second term is for the
/// tail only; m is its [reference](Distribution::tail_reference).
#[derive(Clone, Debug, PartialEq)]
pub struct ScoreGradient {
    /// B.
    pub tail: f64,
    /// The terms of c: first one for each action of the head, in its order, then further ones.
    pub sparse: Vec<(u32, f64)>,
}

impl ScoreGradient {
    /// `∇_f log π(A)`, the score function of a slate (equation 6).
    #[must_use]
    pub fn log_prob(distribution: &Distribution, slate: &[u32]) -> Self {
        let ones = vec![1.0; slate.len()];
        let mut sum = GradientSum::new(distribution, &[]);
        sum.add(slate, RankTerms { bonus: &ones, cost: &ones, gain: &[] }, 1.0);
        sum.finish()
    }

    /// The gradient as a vector `[P]`, for small catalogues.
    #[must_use]
    pub fn to_dense(&self, distribution: &Distribution) -> Vec<f64> {
        let actions = (0..).take(distribution.num_actions());
        let tail = actions.map(|action| -self.tail * distribution.tail_weight(action));
        let mut dense: Vec<f64> = tail.collect();
        for &(action, coefficient) in &self.sparse {
            dense[action as usize] += coefficient;
        }
        dense
    }

    /// Writes the gradient with respect to the query, `Σ_d c_d β_d − B Σ_tail e^{f_d − m} β_d` `[L]`,
    /// into `out`; `tail_sum` `[L]` is the last sum.
    pub fn to_latent(&self, beta: &Matrix, tail_sum: &[f64], out: &mut [f32]) {
        let mut latent: Vec<f64> = tail_sum.iter().map(|sum| -self.tail * sum).collect();
        for &(action, coefficient) in &self.sparse {
            for (latent, beta) in latent.iter_mut().zip(beta.row(action as usize)) {
                *latent += coefficient * f64::from(*beta);
            }
        }
        for (out, latent) in out.iter_mut().zip(latent) {
            #[allow(clippy::cast_possible_truncation, reason = "gradients leave as f32")]
            let latent = latent as f32;
            *out = latent;
        }
    }
}

/// A weighted sum of the gradients of slates of one context.
#[derive(Debug)]
pub struct GradientSum<'a> {
    distribution: &'a Distribution,
    relevant: &'a [u32],
    /// For each action of the head, true if it is relevant.
    head_relevant: Vec<bool>,
    /// A: a relevant action of the tail has `A e^{f_d − m}`.
    gain: f64,
    sum: ScoreGradient,
}

impl<'a> GradientSum<'a> {
    /// The empty sum; `relevant` are the actions with ρ = 1, ascending.
    #[must_use]
    pub fn new(distribution: &'a Distribution, relevant: &'a [u32]) -> Self {
        let head = distribution.head();
        let head_relevant = head.iter().map(|action| relevant.binary_search(action).is_ok());
        let sparse = head.iter().map(|&action| (action, 0.0)).collect();
        Self {
            distribution,
            relevant,
            head_relevant: head_relevant.collect(),
            gain: 0.0,
            sum: ScoreGradient { tail: 0.0, sparse },
        }
    }

    /// Adds `weight` times the gradient of a slate of at most K actions.
    pub fn add(&mut self, slate: &[u32], terms: RankTerms<'_>, weight: f64) {
        let mut walk = Walk::new(self.distribution);
        // Cost and gain, at each rank, of a tail action of weight 1.
        let mut tail = Vec::with_capacity(slate.len());
        for (k, &action) in slate.iter().enumerate() {
            let cost = weight * terms.cost[k];
            let gain = weight * terms.gain.get(k).unwrap_or(&0.0);
            let mass = walk.mass();
            for &at in &walk.unplaced {
                let difference = if self.head_relevant[at] { gain - cost } else { -cost };
                self.sum.sparse[at].1 += walk.weights[at] / mass * difference;
            }
            let share = walk.tail_scale / mass;
            tail.push((cost * share, gain * share));
            walk.place(action);
        }

        // A placed action has no probability at later ranks, so the sums that the tail shares are
        // corrected for it. From the last rank backwards the corrections do not cancel.
        let (mut costs, mut gains) = (0.0, 0.0);
        for (k, &action) in slate.iter().enumerate().rev() {
            let bonus = weight * terms.bonus[k];
            if let Some(at) = self.distribution.head().iter().position(|&head| head == action) {
                self.sum.sparse[at].1 += bonus;
            } else {
                let is_relevant = self.relevant.binary_search(&action).is_ok();
                let difference = if is_relevant { costs - gains } else { costs };
                let later = self.distribution.tail_weight(action) * difference;
                self.sum.sparse.push((action, bonus + later));
            }
            costs += tail[k].0;
            gains += tail[k].1;
        }
        self.sum.tail += costs;
        self.gain += gains;
    }

    /// Adds `weight` times PL-Rank-3's gradient of a slate under the reward `Σ_k w_k ρ_{a_k}`, for
    /// `rank_weights` w `[K]` (Oosterhuis, *Learning-to-Rank at the Speed of Sampling*, SIGIR
    /// 2022). The placed action gets the reward of the later ranks; every unplaced action gets the
    /// reward it would have earned here less the reward from this rank on, times its probability.
    pub fn add_pl_rank(&mut self, slate: &[u32], rank_weights: &[f64], weight: f64) {
        let mut to_come = vec![0.0; slate.len() + 1];
        for (k, action) in slate.iter().enumerate().rev() {
            let is_relevant = self.relevant.binary_search(action).is_ok();
            to_come[k] = to_come[k + 1] + if is_relevant { rank_weights[k] } else { 0.0 };
        }
        let terms = RankTerms { bonus: &to_come[1..], cost: &to_come, gain: rank_weights };
        self.add(slate, terms, weight);
    }

    /// The sum.
    #[must_use]
    pub fn finish(mut self) -> ScoreGradient {
        let weights = self.relevant.iter().map(|&d| (d, self.distribution.tail_weight(d)));
        let relevant = weights.filter(|(_, weight)| *weight > 0.0);
        self.sum.sparse.extend(relevant.map(|(d, weight)| (d, self.gain * weight)));
        self.sum
    }
}
