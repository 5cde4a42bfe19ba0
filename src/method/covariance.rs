//! The covariance gradient of Plackett–Luce (equation 8), corrected for K > 1 or as printed.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Parts, Recipe, Searched};
use crate::error::Result;
use crate::estimator::{AnyEstimator, Covariance, CovarianceForm};
use crate::policy::{PlackettLuce, RejectionSampler, Sampling, SlateDraws};
use crate::retrieval::Search;
use crate::reward::RewardKind;

/// The settings of `covariance`, or of `covariance-as-printed`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CovarianceMethod<const AS_PRINTED: bool> {
    /// S.
    pub samples: usize,
    /// How slates are drawn: `prefix-sums`, `gumbel`, or `rejection`, which spares the pass over
    /// all actions.
    pub draws: SlateDraws,
    /// Actions that a search retrieves for the head of the rejection sampler, at least K; other draws
    /// search nothing.
    pub head: usize,
    /// The search of the rejection sampler: `exact` or `hnsw`.
    pub search: Search,
}

impl<const AS_PRINTED: bool> Default for CovarianceMethod<AS_PRINTED> {
    fn default() -> Self {
        Self { samples: 10, draws: SlateDraws::PrefixSums, head: 256, search: Search::Hnsw }
    }
}

impl<const AS_PRINTED: bool> CovarianceMethod<AS_PRINTED> {
    const FORM: CovarianceForm =
        if AS_PRINTED { CovarianceForm::AsPrinted } else { CovarianceForm::Corrected };

    fn rejects(&self) -> bool {
        self.draws == SlateDraws::Rejection
    }

    pub(super) fn search(&self) -> Option<Search> {
        self.rejects().then_some(self.search)
    }
}

impl<const AS_PRINTED: bool> Recipe for CovarianceMethod<AS_PRINTED> {
    fn num_samples(&self) -> usize {
        self.samples
    }

    fn check(&self, sampling: &Sampling, _reward: RewardKind) -> Result<()> {
        Covariance::check_samples(Self::FORM, sampling.num_samples)?;
        if self.rejects() { sampling.check_head(self.head) } else { Ok(()) }
    }

    fn searched(&self) -> Searched<'_> {
        if self.rejects() { Searched::Head(self.head) } else { Searched::Nothing }
    }

    fn rejection(&self, parts: &Parts) -> Result<Option<RejectionSampler>> {
        let sampler = || {
            let (actions, retriever) = (Arc::clone(&parts.actions), Arc::clone(&parts.retriever));
            RejectionSampler::new(actions, retriever, self.head, parts.sampling(self.samples))
        };
        self.rejects().then(sampler).transpose()
    }

    fn estimator(&self, parts: &Parts) -> Result<AnyEstimator> {
        let reward = Arc::clone(&parts.reward);
        if let Some(sampler) = self.rejection(parts)? {
            return Ok(Covariance::new(Self::FORM, sampler, reward)?.into());
        }
        let actions = Arc::clone(&parts.actions);
        let policy = PlackettLuce::new(actions, self.draws, parts.sampling(self.samples))?
            .on(&parts.retriever)?;
        Ok(Covariance::new(Self::FORM, policy, reward)?.into())
    }
}
