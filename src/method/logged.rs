//! Learning from a log: latent importance weights, and a policy that stays near the one that logged.

use serde::{Deserialize, Serialize};

use super::{Parts, Recipe};
use crate::embedding::ActionEmbeddings;
use crate::error::{Error, Result};
use crate::estimator::{AnyEstimator, LatentImportance, Objective};
use crate::policy::{Sampling, Sigma};
use crate::reward::RewardKind;
use crate::tower::Radius;

/// The settings of `logged`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoggedMethod {
    /// The rule for σ, that of the policy that logged.
    pub sigma: Sigma,
    /// ρ: a query may go so many σ from that of the policy that training began with. The variance of a
    /// weight is at most `exp(ρ²)`.
    #[serde(serialize_with = "crate::decimal::shortest")]
    pub radius: f32,
    /// The estimate that is ascended.
    pub objective: Objective,
}

impl Default for LoggedMethod {
    fn default() -> Self {
        Self { sigma: Sigma::InverseDim, radius: 1.0, objective: Objective::default() }
    }
}

impl LoggedMethod {
    /// ρσ.
    #[must_use]
    pub fn radius(&self, actions: &ActionEmbeddings) -> Radius {
        let dim = actions.latent_dim() as f32;
        match self.sigma {
            Sigma::InverseDim => Radius::Fixed(self.radius / dim),
            Sigma::InverseNorm => {
                Radius::Fixed(self.radius / actions.mean_norm().max(f32::MIN_POSITIVE))
            }
            Sigma::Relative(share) => Radius::Relative(self.radius * share / dim.sqrt()),
        }
    }
}

impl Recipe for LoggedMethod {
    fn num_samples(&self) -> usize {
        1
    }

    fn check(&self, _sampling: &Sampling, _reward: RewardKind) -> Result<()> {
        if self.radius > 0.0 && self.radius.is_finite() {
            return Ok(());
        }
        let problem = format!("expected a positive number of σ, found {}", self.radius);
        Err(Error::setting("method.radius", problem))
    }

    fn estimator(&self, parts: &Parts) -> Result<AnyEstimator> {
        let logged = parts.logged.clone().ok_or_else(|| {
            let problem = "\"logged\" learns from a log: give it with --logged, and the run that \
                           logged with --from";
            Error::setting("method.kind", problem)
        })?;
        Ok(LatentImportance::new(logged, self.objective).into())
    }
}
