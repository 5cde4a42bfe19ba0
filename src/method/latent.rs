//! LGP and LRP: noise on the query, a search for every sample, and the score function of the noise
//! (section 3, Algorithm 1; appendix "LRP").

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Learned, Parts, Recipe, Searched};
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
    /// True trains a factor of σ beside θ.
    pub learn_sigma: bool,
    /// Lowest value of that factor, in (0, 1).
    pub sigma_floor: f32,
    /// M: one search for the query finds the M actions that its S samples rank, M at least 2K.
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
            learn_sigma: false,
            sigma_floor: 0.1,
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
        if !(self.sigma_floor > 0.0 && self.sigma_floor < 1.0) {
            let problem =
                format!("expected more than 0 and less than 1, found {}", self.sigma_floor);
            return Err(Error::setting("method.sigma_floor", problem));
        }
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

    fn learned(&self) -> Learned {
        if self.learn_sigma {
            Learned::TowerAndSigma { floor: self.sigma_floor }
        } else {
            Learned::Tower
        }
    }

    fn estimator(&self, parts: &Parts) -> Result<AnyEstimator> {
        let policy = Arc::new(self.policy(parts)?);
        Ok(ScoreFunction::new(policy, Arc::clone(&parts.reward), self.baseline).into())
    }
}
