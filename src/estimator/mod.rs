//! An estimator takes the queries of a batch, draws slates, asks for their rewards and returns
//! `g_b = ∂R̂/∂h_b` `[B, L]`, the gradient of the estimated reward with respect to each query. With β
//! fixed, every method of the paper has this form, so an estimator is ordinary Rust without autodiff;
//! the learner continues the gradient through the tower.

mod covariance;
mod fopo;
mod importance;
mod learned_actions;
mod pl_rank;
mod row;
mod score_function;

pub use covariance::{Covariance, CovarianceForm, Draws};
pub use fopo::Fopo;
pub use importance::{LatentImportance, Objective};
pub use learned_actions::LearnedActions;
pub use pl_rank::PlRank;
pub use score_function::{ControlVariate, ScoreFunction};

use std::fmt::Debug;
use std::sync::Arc;

use crate::error::Result;
use crate::matrix::Matrix;
pub use crate::policy::BatchRows;

/// The estimated gradient of the reward of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Gradient {
    /// g, with respect to each query, `[B, L]`.
    pub h: Matrix,
    /// r̂ of each sampled slate, `[B · S]`; their mean estimates `R̂(π_θ)` on the batch.
    pub rewards: Vec<f32>,
}

/// The estimated gradient of a batch's mean reward with respect to β.
#[derive(Clone, Debug)]
pub struct ActionsGradient {
    /// `∂R̂/∂β`, `[P, L]`.
    pub beta: Matrix,
    /// r̂ of each sampled slate, `[B · S]`.
    pub rewards: Vec<f32>,
}

/// An estimator of either kind.
#[derive(Clone, Debug)]
pub enum AnyEstimator {
    /// Differentiates by the queries, with β fixed: every method of the paper.
    Queries(Arc<dyn Estimator>),
    /// Differentiates by β.
    Actions(Arc<LearnedActions>),
}

impl<E: Estimator + 'static> From<E> for AnyEstimator {
    fn from(estimator: E) -> Self {
        Self::Queries(Arc::new(estimator))
    }
}

/// A gradient estimate with respect to the queries.
pub trait Estimator: Send + Sync + Debug {
    /// Draws S slates for each row, looks up their rewards, and estimates g.
    ///
    /// # Errors
    /// Fails if the policy fails.
    fn gradient(&self, rows: BatchRows<'_>) -> Result<Gradient>;
}
