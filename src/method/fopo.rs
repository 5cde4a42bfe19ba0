//! FOPO: self-normalised importance sampling of the softmax with a proposal that a search makes,
//! for slates of one action.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Parts, Recipe, Searched};
use crate::error::Result;
use crate::estimator::{AnyEstimator, Fopo};
use crate::policy::Sampling;
use crate::retrieval::Search;
use crate::reward::RewardKind;

/// The settings of `fopo`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FopoMethod {
    /// S, at least 2.
    pub samples: usize,
    /// Actions that a search retrieves for the proposal, at least 1.
    pub head: usize,
    /// The search: `exact` or `hnsw`.
    pub search: Search,
    /// The uniform share of the proposal, in (0, 1].
    pub uniform_share: f64,
}

impl Default for FopoMethod {
    fn default() -> Self {
        Self { samples: 10, head: 256, search: Search::Hnsw, uniform_share: 0.5 }
    }
}

impl Recipe for FopoMethod {
    fn num_samples(&self) -> usize {
        self.samples
    }

    fn check(&self, sampling: &Sampling, _reward: RewardKind) -> Result<()> {
        Fopo::check(sampling, self.uniform_share)?;
        sampling.check_head(self.head)
    }

    fn searched(&self) -> Searched<'_> {
        Searched::Head(self.head)
    }

    fn estimator(&self, parts: &Parts) -> Result<AnyEstimator> {
        let estimator = Fopo::new(
            Arc::clone(&parts.actions),
            Arc::clone(&parts.retriever),
            Arc::clone(&parts.reward),
            self.head,
            self.uniform_share,
            parts.sampling(self.samples),
        )?;
        Ok(estimator.into())
    }
}
