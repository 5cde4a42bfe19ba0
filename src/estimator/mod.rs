//! Estimators: samples and rewards → `g_b = ∂R̂/∂h_b` `[B, L]`, the gradient of the estimated
//! reward with respect to each query. With β fixed, every method of the paper is of this form, so
//! an estimator is ordinary Rust and knows nothing of autodiff; the tower's part of the gradient is
//! the learner's.

mod covariance;
mod fopo;
mod learned_actions;
mod likelihood;
mod pl_rank;
mod score_function;

pub use covariance::{Covariance, CovarianceForm, Draws};
pub use fopo::Fopo;
pub use learned_actions::LearnedActions;
pub use likelihood::Likelihood;
pub use pl_rank::PlRank;
pub use score_function::{Baseline, ScoreFunction};

use std::fmt::Debug;
use std::sync::Arc;

use crate::error::Result;
use crate::matrix::Matrix;
pub use crate::policy::BatchRows;

/// What was drawn for some rows of a batch, S samples a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples {
    /// r̂ of every sampled slate, `[rows · S]`.
    pub rewards: Vec<f32>,
    /// What is known of each row's g, `[rows, L]`: g itself, or its score function where rewards of
    /// other rows may yet serve as a baseline.
    pub terms: Matrix,
    /// The same for log σ, `[rows]`; empty for a policy without σ.
    pub sigma_terms: Vec<f32>,
}

impl Samples {
    /// The samples of these rows followed by those of the next ones.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] when the two do not have the same L.
    pub fn join(mut self, next: Self) -> Result<Self> {
        let cols = self.terms.cols();
        let mut terms = self.terms.into_vec();
        terms.extend(next.terms.into_vec());
        self.rewards.extend(next.rewards);
        self.sigma_terms.extend(next.sigma_terms);
        Ok(Self { terms: Matrix::new(terms, cols)?, ..self })
    }

    /// Mean reward: an unbiased estimate of R̂(π_θ) on the batch.
    #[must_use]
    pub fn mean_reward(&self) -> f32 {
        self.rewards.iter().sum::<f32>() / self.rewards.len().max(1) as f32
    }
}

/// The estimated gradient of the reward of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Gradient {
    /// g, with respect to each query, `[B, L]`.
    pub h: Matrix,
    /// With respect to log σ, the mean over the batch; none for a policy without σ.
    pub log_sigma: Option<f32>,
}

/// What learning β estimates on a batch: the gradient of its mean reward.
#[derive(Clone, Debug)]
pub struct ActionsGradient {
    /// `∂R̂/∂β`, `[P, L]`.
    pub beta: Matrix,
    /// r̂ of every sampled slate, `[B · S]`.
    pub rewards: Vec<f32>,
}

/// A gradient estimate with respect to β instead of h.
pub trait ActionsEstimator: Send + Sync + Debug {
    /// Draws S slates for each row of a whole batch under the scores `hᵀβ_a`, β `[P, L]`.
    ///
    /// # Errors
    /// Those of the policy.
    fn gradient(&self, beta: &Matrix, rows: BatchRows<'_>) -> Result<ActionsGradient>;
}

/// An estimator, by what it differentiates.
#[derive(Clone, Debug)]
pub enum AnyEstimator {
    /// Of the queries, with β fixed: every method of the paper.
    Queries(Arc<dyn Estimator>),
    /// Of β.
    Actions(Arc<dyn ActionsEstimator>),
}

impl<E: Estimator + 'static> From<E> for AnyEstimator {
    fn from(estimator: E) -> Self {
        Self::Queries(Arc::new(estimator))
    }
}

/// A gradient estimate in two phases: retrieval and rewards may be split by rows, what needs the
/// whole batch (a baseline over contexts) waits for all of them.
pub trait Estimator: Send + Sync + Debug {
    /// Draws S slates for each row and looks up their rewards.
    ///
    /// # Errors
    /// Those of the policy.
    fn sample(&self, rows: BatchRows<'_>) -> Result<Samples>;

    /// The gradient, from the samples of the whole batch.
    fn finish(&self, samples: Samples) -> Gradient;
}
