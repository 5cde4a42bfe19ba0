//! The covariance gradient of Plackett–Luce (equation 8) takes slates and rewards, and needs β of the
//! drawn actions only, no normalising constant. With rejection sampling ([`RejectionSampler`]) it
//! costs far less than a pass over the actions.
//!
//! The score function of position i is `β_{a_i} − E[β_{a_i} | A_{<i}]`, so its mean product with the
//! reward is a covariance given the earlier actions: `∇R = Σ_i E[Cov(r̂, β_{a_i} | A_{<i})]`. Two slates
//! A, A' that share A_{<i} and are completed independently estimate it without bias,
//! `Σ_i ½ (r̂ − r̂') (β_{a_i} − β_{a'_i})`. The paper prints `Cov(r̂, Σ_i β_{a_i})` over whole slates,
//! which is equal for K = 1 only, because a later action also varies with the earlier ones.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use tracing::trace_span;

use super::row::{RowEstimate, WeightedSum};
use super::{BatchRows, Estimator, Gradient};
use crate::embedding::ActionEmbeddings;
use crate::error::{Error, Result};
use crate::policy::{PlackettLuce, RejectionSampler, Sampling, SlatePolicy as _};
use crate::retrieval::Slates;
use crate::reward::SlateReward;
use crate::seed::Purpose;

/// The covariance to estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CovarianceForm {
    /// `1/S Σ_s Σ_i ½ (r̂_s − r̂_{s,i}) (β_{a_{s,i}} − β_{a'_{s,i}})`, the other slate completed
    /// afresh from the first i − 1 actions of slate s: K + 1 slates a sample. Unbiased for every K.
    #[default]
    Corrected,
    /// `1/(S − 1) Σ_s (r̂_s − r̄) Σ_i β_{a_{s,i}}`, the sample covariance of equation 8 as printed.
    /// Unbiased for K = 1; off by 16 to 84 % in the examples that the tests enumerate at K > 1.
    AsPrinted,
}

/// The source of slates.
#[derive(Clone, Debug)]
pub enum Draws {
    /// The scores of all actions.
    Dense(PlackettLuce),
    /// A retrieved head and a uniform tail.
    Rejection(RejectionSampler),
}

impl From<PlackettLuce> for Draws {
    fn from(policy: PlackettLuce) -> Self {
        Self::Dense(policy)
    }
}

impl From<RejectionSampler> for Draws {
    fn from(sampler: RejectionSampler) -> Self {
        Self::Rejection(sampler)
    }
}

impl Draws {
    fn sampling(&self) -> &Sampling {
        match self {
            Self::Dense(policy) => policy.sampling(),
            Self::Rejection(sampler) => sampler.sampling(),
        }
    }

    fn actions(&self) -> &Arc<ActionEmbeddings> {
        match self {
            Self::Dense(policy) => policy.actions(),
            Self::Rejection(sampler) => sampler.actions(),
        }
    }
}

/// The covariance gradient of Plackett–Luce, for any reward.
#[derive(Clone, Debug)]
pub struct Covariance {
    form: CovarianceForm,
    draws: Draws,
    reward: Arc<dyn SlateReward>,
}

impl Covariance {
    /// Refuses the printed form for one sample.
    ///
    /// # Errors
    /// [`Error::Setting`] with the reason.
    pub fn check_samples(form: CovarianceForm, num_samples: usize) -> Result<()> {
        if form == CovarianceForm::AsPrinted && num_samples < 2 {
            return Err(Error::setting(
                "method.samples",
                "the covariance as printed is taken over samples, and one has none: expected at \
                 least 2, found 1",
            ));
        }
        Ok(())
    }

    /// The gradient of the reward of slates drawn by `draws`.
    ///
    /// # Errors
    /// [`Error::Setting`] for the printed form of a single sample.
    pub fn new(
        form: CovarianceForm,
        draws: impl Into<Draws>,
        reward: Arc<dyn SlateReward>,
    ) -> Result<Self> {
        let draws = draws.into();
        Self::check_samples(form, draws.sampling().num_samples)?;
        Ok(Self { form, draws, reward })
    }

    /// The estimate for one row; `complete` draws the missing actions of a slate.
    fn estimate(&self, context: u32, complete: impl FnMut(&mut Vec<u32>)) -> Result<RowEstimate> {
        match self.form {
            CovarianceForm::Corrected => self.corrected(context, complete),
            CovarianceForm::AsPrinted => self.as_printed(context, complete),
        }
    }

    fn corrected(
        &self,
        context: u32,
        mut complete: impl FnMut(&mut Vec<u32>),
    ) -> Result<RowEstimate> {
        let Sampling { num_samples, slate_size, .. } = *self.draws.sampling();
        // Each sample is followed by K others, which share a prefix of 0, 1, … actions with it.
        let mut slates = Vec::with_capacity(num_samples * (slate_size + 1) * slate_size);
        let (mut slate, mut other) = (Vec::new(), Vec::new());
        for _ in 0..num_samples {
            slate.clear();
            complete(&mut slate);
            slates.extend_from_slice(&slate);
            for rank in 0..slate_size {
                other.clear();
                other.extend_from_slice(&slate[..rank]);
                complete(&mut other);
                slates.extend_from_slice(&other);
            }
        }
        let slates = Slates::unscored(slate_size, slates);
        let all = self.reward.finite_rewards(&[context], &slates)?; // [S·(K + 1)]
        let mut g = WeightedSum::new(self.draws.actions());
        for (sample, rewards) in all.chunks_exact(slate_size + 1).enumerate() {
            let first = sample * (slate_size + 1);
            for rank in 0..slate_size {
                let difference = f64::from(rewards[0]) - f64::from(rewards[1 + rank]);
                let weight = 0.5 * difference / num_samples as f64;
                g.add(weight, slates.slate(first)[rank]);
                g.add(-weight, slates.slate(first + 1 + rank)[rank]);
            }
        }
        let rewards = all.into_iter().step_by(slate_size + 1).collect();
        Ok(RowEstimate { rewards, g: g.rounded() })
    }

    fn as_printed(
        &self,
        context: u32,
        mut complete: impl FnMut(&mut Vec<u32>),
    ) -> Result<RowEstimate> {
        let samples = self.draws.sampling().num_samples;
        let (mut slates, mut slate) = (Vec::new(), Vec::new());
        for _ in 0..samples {
            slate.clear();
            complete(&mut slate);
            slates.extend_from_slice(&slate);
        }
        let slates = Slates::unscored(self.draws.sampling().slate_size, slates);
        let rewards = self.reward.finite_rewards(&[context], &slates)?; // [S]
        let mean = rewards.iter().copied().map(f64::from).sum::<f64>() / samples as f64;
        let mut g = WeightedSum::new(self.draws.actions());
        for (at, reward) in rewards.iter().enumerate() {
            let weight = (f64::from(*reward) - mean) / (samples - 1) as f64;
            for action in slates.slate(at) {
                g.add(weight, *action);
            }
        }
        Ok(RowEstimate { rewards, g: g.rounded() })
    }
}

impl Estimator for Covariance {
    fn gradient(&self, rows: BatchRows<'_>) -> Result<Gradient> {
        let _span = trace_span!("sampling").entered();
        let Sampling { slate_size, seed, .. } = *self.draws.sampling();
        let stream = |row| rows.stream(seed, Purpose::Slates, row);
        let estimates = match &self.draws {
            Draws::Dense(policy) => {
                policy.visit(policy.actions().beta(), rows, |row, distribution| {
                    let mut stream = stream(row);
                    self.estimate(rows.contexts[row], |slate| {
                        policy.complete(distribution, slate, &mut stream);
                    })
                })?
            }
            Draws::Rejection(sampler) => {
                let visited = sampler.visit(rows, |row, envelope| {
                    let mut stream = stream(row);
                    self.estimate(rows.contexts[row], |slate| {
                        envelope.complete(slate, slate_size, &mut stream);
                    })
                })?;
                visited.0
            }
        };
        RowEstimate::gather(estimates, self.draws.actions().latent_dim())
    }
}
