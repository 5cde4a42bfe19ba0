//! A reward takes a context and a slate and returns a number, r̂(A_K, x). The built-in ones look at the
//! hidden part Y of the context's session.

mod nonlinear;

use std::fmt::{self, Debug};
use std::sync::Arc;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::dataset::Sessions;
use crate::embedding::ActionEmbeddings;
use crate::error::{Error, Result};
use crate::retrieval::Slates;

pub use nonlinear::{AnyHit, Cascade, Diverse, ReciprocalRank};

/// The reward of showing a slate in a context. It need not be linear, smooth or positive. It is called
/// from many threads at once.
pub trait SlateReward: Send + Sync + Debug {
    /// r̂(A_K, x), for `slate` = A_K `[K]`, best first, in context x.
    fn reward(&self, context: u32, slate: &[u32]) -> f32;

    /// r̂ of each of `slates` `[N]`. The same number of slates, S, is for each of `contexts` `[N / S]`,
    /// in their order. A reward that judges many slates at once better than one by one does that
    /// here: training asks once a step for all of its slates, and evaluations ask in blocks.
    ///
    /// # Errors
    /// Never by default; a reward's own error ends the run.
    fn rewards(&self, contexts: &[u32], slates: &Slates) -> Result<Vec<f32>> {
        let samples = slates.len() / contexts.len().max(1);
        let reward = |at: usize| self.reward(contexts[at / samples], slates.slate(at));
        Ok((0..slates.len()).into_par_iter().with_min_len(64).map(reward).collect())
    }

    /// This reward on other halves of the same users: those that a run draws anew for each pass over training
    /// users (`context.redraw`), and those that few validation users are asked about
    /// (`evaluation.validation_halves`). None for a reward that knows the halves by itself: they then stay.
    fn on(&self, _sessions: &Arc<Sessions>) -> Option<Arc<dyn SlateReward>> {
        None
    }

    /// The reward as rank weights times relevance, where it has this form.
    fn as_linear(&self) -> Option<&LinearReward> {
        None
    }
}

impl dyn SlateReward {
    /// [`rewards`](SlateReward::rewards), of which each is a number: one that is none would spoil all
    /// parameters in the next step.
    ///
    /// # Errors
    /// The reward's own, and [`Error::NotFinite`] with the row of the first slate whose reward is NaN or
    /// infinite.
    pub fn finite_rewards(&self, contexts: &[u32], slates: &Slates) -> Result<Vec<f32>> {
        let rewards = self.rewards(contexts, slates)?;
        match rewards.iter().position(|reward| !reward.is_finite()) {
            None => Ok(rewards),
            Some(row) => {
                let (what, value) = ("rewards of slates".into(), rewards[row]);
                Err(Error::NotFinite { what, row, column: 0, value })
            }
        }
    }
}

/// `Σ_k w_k 1[a_k ∈ Y]`: rank weights times relevance.
#[derive(Clone, Debug)]
pub struct LinearReward {
    rank_weights: Vec<f32>,
    sessions: Arc<Sessions>,
}

impl LinearReward {
    /// A linear reward with weight `rank_weights[k]` at rank k (0 is the top); ranks beyond have
    /// weight zero.
    #[must_use]
    pub fn new(rank_weights: Vec<f32>, sessions: Arc<Sessions>) -> Self {
        Self { rank_weights, sessions }
    }

    /// The paper's reward, `Σ_k 1[a_k ∈ Y] / 2^(k−1)` (section 4.1).
    #[must_use]
    pub fn discounted(slate_size: usize, sessions: Arc<Sessions>) -> Self {
        let weights = std::iter::successors(Some(1.0_f32), |weight| Some(weight / 2.0));
        Self::new(weights.take(slate_size).collect(), sessions)
    }

    /// The number of hits, `Σ_k 1[a_k ∈ Y]`, at any rank: the numerator of precision and recall.
    #[must_use]
    pub fn hits(slate_size: usize, sessions: Arc<Sessions>) -> Self {
        Self::new(vec![1.0; slate_size], sessions)
    }

    /// Discounted cumulative gain, `Σ_k 1[a_k ∈ Y] / log₂(k + 1)`.
    #[must_use]
    pub fn dcg(slate_size: usize, sessions: Arc<Sessions>) -> Self {
        let weights = (1..=slate_size).map(|rank| 1.0 / (rank as f32 + 1.0).log2());
        Self::new(weights.collect(), sessions)
    }

    /// w, from the top rank on; ranks beyond have weight zero.
    #[must_use]
    pub fn rank_weights(&self) -> &[f32] {
        &self.rank_weights
    }

    /// The relevant actions of a context, Y, ascending.
    #[must_use]
    pub fn relevant(&self, context: u32) -> &[u32] {
        self.sessions.hidden.of(context)
    }
}

impl SlateReward for LinearReward {
    fn reward(&self, context: u32, slate: &[u32]) -> f32 {
        let hidden = &self.sessions.hidden;
        let placed = self.rank_weights.iter().zip(slate);
        let hits = placed.filter(|(_, action)| hidden.contains(context, **action));
        // A sum of nothing would be −0.
        hits.fold(0.0, |sum, (weight, _)| sum + weight)
    }

    fn on(&self, sessions: &Arc<Sessions>) -> Option<Arc<dyn SlateReward>> {
        Some(Arc::new(Self::new(self.rank_weights.clone(), Arc::clone(sessions))))
    }

    fn as_linear(&self) -> Option<&LinearReward> {
        Some(self)
    }
}

/// The built-in rewards by their names in the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RewardKind {
    /// [`LinearReward::discounted`].
    Discounted,
    /// [`LinearReward::dcg`].
    Dcg,
    /// [`LinearReward::hits`].
    Hits,
    /// [`AnyHit`].
    AnyHit,
    /// [`ReciprocalRank`].
    ReciprocalRank,
    /// [`Cascade`].
    Cascade,
    /// [`Diverse`], of discounted hits.
    Diverse,
    /// [`Diverse`], of any hit.
    DiverseAnyHit,
}

impl fmt::Display for RewardKind {
    /// The name in the settings.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl RewardKind {
    /// True for a sum over ranks of weight times relevance, as PL-Rank needs.
    #[must_use]
    pub fn is_linear(self) -> bool {
        matches!(self, Self::Discounted | Self::Dcg | Self::Hits)
    }

    /// The reward for slates of `slate_size` on `sessions`. `actions` gives β `[P, L]`, and is asked only by
    /// rewards that compare items.
    ///
    /// # Errors
    /// The errors of `actions`.
    pub fn init(
        self,
        slate_size: usize,
        sessions: Arc<Sessions>,
        actions: impl FnOnce() -> Result<Arc<ActionEmbeddings>>,
    ) -> Result<Arc<dyn SlateReward>> {
        Ok(match self {
            Self::Discounted => Arc::new(LinearReward::discounted(slate_size, sessions)),
            Self::Dcg => Arc::new(LinearReward::dcg(slate_size, sessions)),
            Self::Hits => Arc::new(LinearReward::hits(slate_size, sessions)),
            Self::AnyHit => Arc::new(AnyHit::new(sessions)),
            Self::ReciprocalRank => Arc::new(ReciprocalRank::new(sessions)),
            Self::Cascade => Arc::new(Cascade::new(sessions)),
            Self::Diverse => {
                let hits = Arc::new(LinearReward::discounted(slate_size, sessions));
                Arc::new(Diverse::new(hits, actions()?))
            }
            Self::DiverseAnyHit => {
                Arc::new(Diverse::new(Arc::new(AnyHit::new(sessions)), actions()?))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::{ActionSets, Split};

    pub(super) fn sessions() -> Arc<Sessions> {
        Arc::new(Sessions {
            observed: ActionSets::from_pairs(1, [(0, 9)].into_iter()),
            hidden: ActionSets::from_pairs(1, [(0, 1), (0, 4), (0, 2)].into_iter()),
            split: vec![Split::Train],
            num_actions: 10,
        })
    }

    #[test]
    fn discounted_halves_with_every_rank() {
        let reward = LinearReward::discounted(5, sessions());
        assert_eq!(reward.reward(0, &[1, 3, 4, 9, 2]), 1.0 + 0.25 + 0.0625);
        assert_eq!(reward.reward(0, &[9, 3, 5, 6, 7]), 0.0);
    }

    #[test]
    fn many_slates_earn_what_each_earns_also_on_other_halves() {
        let others = Arc::new(Sessions {
            hidden: ActionSets::from_pairs(1, [(0, 3), (0, 7)].into_iter()),
            ..Sessions::clone(&sessions())
        });
        let beta = crate::matrix::Matrix::new((0..20_u8).map(f32::from).collect(), 2).unwrap();
        let actions = Arc::new(ActionEmbeddings::new(beta).unwrap());
        let slates = Slates::unscored(3, vec![1, 3, 4, 9, 7, 0, 3, 2, 8, 5, 6, 9]);
        for kind in [RewardKind::Dcg, RewardKind::Cascade, RewardKind::DiverseAnyHit] {
            let mut reward = kind.init(3, sessions(), || Ok(Arc::clone(&actions))).unwrap();
            let mut totals = Vec::new();
            for sessions in [sessions(), Arc::clone(&others)] {
                reward = reward.on(&sessions).unwrap();
                let found = reward.rewards(&[0, 0], &slates).unwrap();
                let each = (0..4).map(|at| reward.reward(0, slates.slate(at)));
                assert_eq!(found, each.collect::<Vec<f32>>());
                totals.push(found.iter().sum::<f32>());
            }
            assert_ne!(totals[0], totals[1], "{kind}");
        }
    }

    #[test]
    fn dcg_discounts_by_the_logarithm_of_the_rank() {
        let reward = LinearReward::dcg(3, sessions());
        let expected = 1.0 + 1.0 / 4.0_f32.log2();
        assert!((reward.reward(0, &[2, 0, 1]) - expected).abs() < 1e-6);
    }

    #[test]
    fn a_slate_of_a_hundred_keeps_positive_weights() {
        let reward = LinearReward::discounted(100, sessions());
        assert!(reward.rank_weights.iter().all(|weight| *weight > 0.0));
    }
}
