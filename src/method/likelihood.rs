//! The reward-weighted likelihood of what users hid, under a softmax over a head and S sampled
//! actions. Not in the paper.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::latent::LatentMethod;
use super::{Parts, Recipe, Searched, positive};
use crate::error::Result;
use crate::estimator::{AnyEstimator, Likelihood};
use crate::policy::{Radial, Sampling, Scale, Sigma};
use crate::retrieval::Search;
use crate::reward::RewardKind;

/// The settings of `likelihood`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LikelihoodMethod {
    /// Actions sampled for the softmax beside its head.
    pub samples: usize,
    /// The rule for σ, the unit of the temperature.
    pub sigma: Sigma,
    /// The part of the gradient along h under a relative σ.
    pub radial: Radial,
    /// Actions that a search retrieves for the softmax, at least K.
    pub head: usize,
    /// The search: `exact` or `hnsw`.
    pub search: Search,
    /// Temperature of the softmax, in units of the standard deviation that noise of σ would give
    /// the score of an average action.
    pub temperature: f32,
}

impl Default for LikelihoodMethod {
    fn default() -> Self {
        let LatentMethod { samples, sigma, radial, .. } = LatentMethod::gaussian();
        let search = Search::Hnsw;
        Self { samples, sigma, radial, head: 256, search, temperature: 30.0 }
    }
}

impl Recipe for LikelihoodMethod {
    fn num_samples(&self) -> usize {
        self.samples
    }

    fn check(&self, sampling: &Sampling, _reward: RewardKind) -> Result<()> {
        positive("method.temperature", self.temperature)?;
        Scale::new(self.sigma, self.radial, 1, 1.0)?;
        sampling.check_head(self.head)
    }

    fn searched(&self) -> Searched<'_> {
        Searched::Head(self.head)
    }

    fn estimator(&self, parts: &Parts) -> Result<AnyEstimator> {
        let Self { samples, sigma, radial, .. } = *self;
        let latent = LatentMethod { samples, sigma, radial, ..LatentMethod::gaussian() };
        let estimator = Likelihood::new(
            latent.policy(parts)?,
            Arc::clone(&parts.actions),
            Arc::clone(&parts.sessions),
            Arc::clone(&parts.reward),
            self.head,
            self.temperature,
        )?;
        Ok(estimator.into())
    }
}
