//! PL-PG and PL-Rank: Plackett–Luce (section 2) with the score function (equation 6) or with the
//! credit of each rank.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Learned, Parts, Recipe};
use crate::error::Result;
use crate::estimator::{AnyEstimator, ControlVariate, LearnedActions, PlRank, ScoreFunction};
use crate::policy::{PlackettLuce, Sampling, SlateDraws};
use crate::reward::RewardKind;

/// The settings of `pl-pg`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlPgMethod {
    /// S.
    pub samples: usize,
    /// How slates are drawn: `prefix-sums` or `gumbel`.
    pub draws: SlateDraws,
    /// The control variate that is subtracted from a sample's reward.
    pub baseline: ControlVariate,
    /// True trains β instead of a tower (appendix "Effect of fixing β").
    pub learn_actions: bool,
}

/// The settings of `pl-rank`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlRankMethod {
    /// S.
    pub samples: usize,
    /// How slates are drawn: `prefix-sums` or `gumbel`.
    pub draws: SlateDraws,
    /// True trains β instead of a tower (appendix "Effect of fixing β").
    pub learn_actions: bool,
}

impl Default for PlPgMethod {
    fn default() -> Self {
        let PlRankMethod { samples, draws, learn_actions } = PlRankMethod::default();
        Self { samples, draws, baseline: ControlVariate::None, learn_actions }
    }
}

impl Default for PlRankMethod {
    fn default() -> Self {
        Self { samples: 10, draws: SlateDraws::PrefixSums, learn_actions: false }
    }
}

fn policy(parts: &Parts, samples: usize, draws: SlateDraws) -> Result<PlackettLuce> {
    let policy = PlackettLuce::new(Arc::clone(&parts.actions), draws, parts.sampling(samples))?;
    policy.on(&parts.retriever)
}

fn learned(learn_actions: bool) -> Learned {
    if learn_actions { Learned::Actions } else { Learned::Tower }
}

impl Recipe for PlPgMethod {
    fn num_samples(&self) -> usize {
        self.samples
    }

    fn check(&self, _sampling: &Sampling, _reward: RewardKind) -> Result<()> {
        PlackettLuce::check_draws(self.draws)
    }

    fn learned(&self) -> Learned {
        learned(self.learn_actions)
    }

    fn estimator(&self, parts: &Parts) -> Result<AnyEstimator> {
        let policy = policy(parts, self.samples, self.draws)?;
        let (reward, baseline) = (Arc::clone(&parts.reward), self.baseline);
        if self.learn_actions {
            let actions = LearnedActions::ScoreFunction { policy, reward, baseline };
            return Ok(AnyEstimator::Actions(Arc::new(actions)));
        }
        Ok(ScoreFunction::new(Arc::new(policy), reward, baseline).into())
    }
}

impl Recipe for PlRankMethod {
    fn num_samples(&self) -> usize {
        self.samples
    }

    fn check(&self, _sampling: &Sampling, reward: RewardKind) -> Result<()> {
        PlackettLuce::check_draws(self.draws)?;
        if reward.is_linear() { Ok(()) } else { Err(PlRank::not_linear()) }
    }

    fn learned(&self) -> Learned {
        learned(self.learn_actions)
    }

    fn estimator(&self, parts: &Parts) -> Result<AnyEstimator> {
        let policy = policy(parts, self.samples, self.draws)?;
        let estimator = PlRank::new(policy, parts.reward.as_ref())?;
        Ok(if self.learn_actions {
            AnyEstimator::Actions(Arc::new(LearnedActions::PlRank(estimator)))
        } else {
            estimator.into()
        })
    }
}
