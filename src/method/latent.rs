//! LGP and LRP: noise on the query, a search for every sample, and the score function of the noise
//! (section 3, Algorithm 1; appendix "LRP").

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Parts, Recipe, Searched};
use crate::error::{Error, Result};
use crate::estimator::{AnyEstimator, ControlVariate, ScoreFunction};
use crate::policy::{LatentPerturbation, NoiseKind, Radial, Sampling, Scale, Sigma};
use crate::retrieval::Candidates;
use crate::reward::RewardKind;

/// The settings of `lgp`, `lgp-mips`, `lrp` and `lrp-mips`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatentMethod {
    /// The density of the noise: LRP has one to choose, LGP's is Gaussian.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<NoiseKind>,
    /// S.
    pub samples: usize,
    /// The rule for σ.
    pub sigma: Sigma,
    /// The part of the gradient along h under a relative σ.
    pub radial: Radial,
    /// The control variate that is subtracted from a sample's reward.
    pub baseline: ControlVariate,
    /// M: one search for the query finds the M actions that its S samples rank, M at least 2K. Where M is
    /// below L, Gaussian noise is drawn in its products with their vectors.
    /// With 0, or with S = 1, every sample is searched for.
    pub candidates: usize,
    /// While an evaluation finds that the shared candidates hold a smaller share than this of the
    /// samples' true top K, every sample is searched for. From 0 to 1.
    pub coverage: f64,
}

impl LatentMethod {
    /// LGP with the paper's values.
    #[must_use]
    pub fn gaussian() -> Self {
        Self {
            noise: None,
            samples: 10,
            sigma: Sigma::InverseDim,
            radial: Radial::Keep,
            baseline: ControlVariate::None,
            candidates: 0,
            coverage: 0.98,
        }
    }

    /// LRP, Gaussian until told otherwise.
    #[must_use]
    pub fn any_noise() -> Self {
        Self { noise: Some(NoiseKind::Gaussian), ..Self::gaussian() }
    }

    /// True if the samples of a query share a search.
    #[must_use]
    pub fn shares_candidates(&self) -> bool {
        self.samples > 1 && self.candidates > 0
    }

    /// π_θ.
    ///
    /// # Errors
    /// [`Error::Setting`] for a σ and a radial part that do not go together.
    pub fn policy(&self, parts: &Parts) -> Result<LatentPerturbation> {
        let (dim, norm) = (parts.actions.latent_dim(), parts.actions.mean_norm());
        let retriever = Arc::clone(&parts.retriever);
        let policy = LatentPerturbation::new(
            Scale::new(self.sigma, self.radial, dim, norm)?,
            parts.noise.clone().unwrap_or_else(|| self.noise.unwrap_or_default().init()),
            Arc::clone(&retriever),
            parts.sampling(self.samples),
        )?;
        if !self.shares_candidates() {
            return Ok(policy);
        }
        let actions = Arc::clone(&parts.actions);
        Ok(policy.with_candidates(Candidates::new(retriever, actions, self.candidates)))
    }
}

impl Recipe for LatentMethod {
    fn num_samples(&self) -> usize {
        self.samples
    }

    fn check(&self, _sampling: &Sampling, _reward: RewardKind) -> Result<()> {
        if !(0.0..=1.0).contains(&self.coverage) {
            let problem = format!("expected a share from 0 to 1, found {}", self.coverage);
            return Err(Error::setting("method.coverage", problem));
        }
        Scale::new(self.sigma, self.radial, 1, 1.0)?;
        Ok(())
    }

    fn searched(&self) -> Searched<'_> {
        Searched::Perturbed(self)
    }

    fn estimator(&self, parts: &Parts) -> Result<AnyEstimator> {
        let policy = Arc::new(self.policy(parts)?);
        Ok(ScoreFunction::new(policy, Arc::clone(&parts.reward), self.baseline).into())
    }
}
