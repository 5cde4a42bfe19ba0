//! A run's policy and estimator, as its settings name them.

use std::sync::Arc;

use super::Problem;
use crate::error::Result;
use crate::estimator::{
    AnyEstimator, Covariance, CovarianceForm, Fopo, LearnedActions, Likelihood, PlRank,
    ScoreFunction,
};
use crate::policy::{
    LatentPerturbation, PlackettLuce, RejectionSampler, Sampling, Scale, SlateDraws,
};
use crate::retrieval::{Candidates, RetrievalKind, Retriever};
use crate::settings::{EstimatorKind, EstimatorSettings, PolicyKind, Settings};

impl Problem {
    /// The gradient estimator of `settings`.
    ///
    /// # Errors
    /// [`crate::Error::Setting`] for a biased or impossible combination.
    pub fn estimator(&self, settings: &Settings) -> Result<AnyEstimator> {
        let reward = Arc::clone(&self.reward);
        let baseline = settings.estimator.baseline;
        if settings.policy.kind != PolicyKind::PlackettLuce {
            if settings.estimator.kind == EstimatorKind::Likelihood {
                return Ok(self.likelihood(settings)?.into());
            }
            let policy = Arc::new(self.latent_policy(settings)?);
            return Ok(ScoreFunction::new(policy, reward, baseline)?.into());
        }
        if settings.embedding.learn {
            let policy = self.plackett_luce(settings)?;
            return Ok(AnyEstimator::Actions(Arc::new(match settings.estimator.kind {
                EstimatorKind::PlRank => {
                    LearnedActions::PlRank(PlRank::new(policy, reward.as_ref())?)
                }
                _ => LearnedActions::ScoreFunction { policy, reward, baseline },
            })));
        }
        Ok(match settings.estimator.kind {
            EstimatorKind::Likelihood => self.likelihood(settings)?.into(),
            EstimatorKind::ScoreFunction => {
                let policy = Arc::new(self.plackett_luce(settings)?);
                ScoreFunction::new(policy, reward, baseline)?.into()
            }
            EstimatorKind::PlRank => {
                PlRank::new(self.plackett_luce(settings)?, reward.as_ref())?.into()
            }
            EstimatorKind::Covariance => {
                self.covariance(settings, CovarianceForm::Corrected)?.into()
            }
            EstimatorKind::CovarianceAsPrinted => {
                self.covariance(settings, CovarianceForm::AsPrinted)?.into()
            }
            EstimatorKind::Fopo => Fopo::new(
                Arc::clone(&self.actions),
                self.training_search(settings),
                reward,
                settings.estimator.head,
                settings.estimator.uniform_share,
                self.sampling(settings),
            )?
            .into(),
        })
    }

    /// LGP or LRP.
    pub(super) fn latent_policy(&self, settings: &Settings) -> Result<LatentPerturbation> {
        let policy = &settings.policy;
        let (dim, norm) = (self.actions.latent_dim(), self.actions.mean_norm());
        let search = self.training_search(settings);
        let latent = LatentPerturbation::new(
            Scale::new(policy.sigma, policy.radial, dim, norm)?,
            self.noise.clone().unwrap_or_else(|| policy.noise.init()),
            policy.coupling,
            Arc::clone(&search),
            self.sampling(settings),
        )?;
        if !settings.shares_candidates() {
            return Ok(latent);
        }
        let count = settings.retrieval.candidates;
        Ok(latent.with_candidates(Candidates::new(search, Arc::clone(&self.actions), count)))
    }

    fn likelihood(&self, settings: &Settings) -> Result<Likelihood> {
        let EstimatorSettings { head, temperature, .. } = settings.estimator;
        Likelihood::new(
            self.latent_policy(settings)?,
            Arc::clone(&self.actions),
            Arc::clone(&self.sessions),
            Arc::clone(&self.reward),
            head,
            temperature,
        )
    }

    /// The rejection sampler of Plackett–Luce.
    pub(super) fn rejection(&self, settings: &Settings) -> Result<RejectionSampler> {
        RejectionSampler::new(
            Arc::clone(&self.actions),
            self.training_search(settings),
            settings.estimator.head,
            self.sampling(settings),
        )
    }

    fn plackett_luce(&self, settings: &Settings) -> Result<PlackettLuce> {
        let draws = settings.policy.draws;
        PlackettLuce::new(Arc::clone(&self.actions), draws, self.sampling(settings))
    }

    fn covariance(&self, settings: &Settings, form: CovarianceForm) -> Result<Covariance> {
        let reward = Arc::clone(&self.reward);
        match settings.policy.draws {
            SlateDraws::Rejection => Covariance::new(form, self.rejection(settings)?, reward),
            _ => Covariance::new(form, self.plackett_luce(settings)?, reward),
        }
    }

    /// A problem loaded for an index also answers for exact search.
    pub(super) fn training_search(&self, settings: &Settings) -> Arc<dyn Retriever> {
        Arc::clone(match settings.retrieval.kind {
            RetrievalKind::Exact => &self.exact,
            RetrievalKind::Hnsw => &self.retriever,
        })
    }

    pub(super) fn sampling(&self, settings: &Settings) -> Sampling {
        Sampling {
            num_samples: settings.policy.samples,
            slate_size: self.slate_size,
            excluded: self.excluded(),
            seed: settings.seed,
        }
    }
}
