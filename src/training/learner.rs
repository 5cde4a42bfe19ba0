//! The learner step, Burn's `TrainStep`: forward through the tower, the estimator's gradient with
//! respect to the queries, the REINFORCE surrogate loss, backward through the tower. S and K never
//! reach the autodiff tape. Learning β is the one experiment with a second path.

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{ExecutionError, Tensor};
use burn::train::metric::{Adaptor, LossInput};
use burn::train::{InferenceStep, ItemLazy, TrainOutput, TrainStep};
use tracing::trace_span;

use super::optimizer::clip;
use crate::device;
use crate::error::{Error, Result};
use crate::estimator::{AnyEstimator, BatchRows, Estimator, LearnedActions};
use crate::matrix::Matrix;
use crate::model::Model;
use crate::tower::{to_device, to_host};

/// The contexts of one step.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Step, from 0; part of the address of the noise.
    pub step: u64,
    /// Contexts, `[B]`.
    pub contexts: Vec<u32>,
    /// Their vectors M(X), `[B, D]`.
    pub inputs: Matrix,
}

impl Batch {
    fn rows<'a>(&'a self, h: &'a Matrix) -> BatchRows<'a> {
        BatchRows { step: self.step, contexts: &self.contexts, h }
    }
}

/// The report of a step: the mean reward of its sampled slates, or the error that prevented it.
#[derive(Debug)]
pub struct StepOutput {
    /// Mean sampled reward, an estimate of R̂(π_θ) on the batch.
    pub reward: Result<f32>,
}

impl ItemLazy for StepOutput {
    fn sync(self) -> Result<Self, ExecutionError> {
        Ok(self)
    }
}

/// For Burn's own trainer: the loss is minus the reward, NaN for a step that was not taken.
impl Adaptor<LossInput> for StepOutput {
    fn adapt(&self) -> LossInput {
        let loss = self.reward.as_ref().map_or(f32::NAN, |reward| -reward);
        LossInput::new(Tensor::from_floats([loss], &device::host()))
    }
}

/// A model and the estimator that trains it.
#[derive(Module, Debug)]
pub struct Learner {
    model: Model,
    #[module(skip)]
    estimator: AnyEstimator,
    #[module(skip)]
    clipping: f32,
}

impl Learner {
    /// A learner of `model`, whose trained parameters it puts on the autodiff tape.
    #[must_use]
    pub fn new(model: Model, estimator: AnyEstimator) -> Self {
        Self { model: model.with_the_rest_frozen().train(), estimator, clipping: 0.0 }
    }

    /// Limits the length of a step's gradient, all parameters together, to `clipping`; 0 means no
    /// limit.
    #[must_use]
    pub fn with_clipping(self, clipping: f32) -> Self {
        Self { clipping, ..self }
    }

    /// Replaces the estimator.
    #[must_use]
    pub(super) fn with_estimator(self, estimator: AnyEstimator) -> Self {
        Self { estimator, ..self }
    }

    /// The model as it stands.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The gradient of a batch, as long as it is, and the mean reward of its sampled slates.
    pub(super) fn gradient(&self, batch: &Batch) -> Result<(GradientsParams, f32)> {
        let (surrogate, reward) = match &self.estimator {
            AnyEstimator::Queries(estimator) => self.of_queries(estimator.as_ref(), batch)?,
            AnyEstimator::Actions(estimator) => self.of_actions(estimator, batch)?,
        };
        let _backward = trace_span!("backward").entered();
        Ok((GradientsParams::from_grads(surrogate.backward(), self), reward))
    }

    /// Algorithm 1 without the update: samples slates and looks up their rewards. The surrogate
    /// `−⟨h, g⟩ / B` has minus the reward's gradient in θ.
    fn of_queries(&self, estimator: &dyn Estimator, batch: &Batch) -> Result<(Tensor<1>, f32)> {
        let device = self.model.devices().swap_remove(0);
        let forward = trace_span!("forward").entered();
        let h = self.model.forward(to_device(&batch.inputs, &device)); // [B, L]
        let latent = to_host(h.clone().inner())?; // waits for the device
        drop(forward);
        let g = estimator.gradient(batch.rows(&latent))?;
        g.h.require_finite("the gradient in h")?;
        let surrogate =
            (h * to_device(&g.h, &device)).sum().neg().div_scalar(batch.contexts.len() as f32);
        Ok((surrogate, mean(&g.rewards)))
    }

    /// Surrogate and mean reward where β is learned: the surrogate is `−⟨β, ∂R̂/∂β⟩`.
    fn of_actions(&self, estimator: &LearnedActions, batch: &Batch) -> Result<(Tensor<1>, f32)> {
        let Some(beta) = &self.model.actions else {
            return Err(Error::setting("method.learn_actions", "this model does not learn β"));
        };
        let host = to_host(beta.val().inner())?; // waits for the device
        host.require_finite("the learned β")?;
        let found = estimator.gradient(&host, batch.rows(&batch.inputs))?;
        found.beta.require_finite("the gradient in β")?;
        let device = self.model.devices().swap_remove(0);
        let surrogate = (beta.val() * to_device(&found.beta, &device)).sum().neg();
        Ok((surrogate, mean(&found.rewards)))
    }
}

impl Learner {
    fn clipped_gradient(&self, batch: &Batch) -> Result<(GradientsParams, f32)> {
        let (mut gradients, reward) = self.gradient(batch)?;
        if self.clipping > 0.0 {
            clip(&mut gradients, self, self.clipping)?;
        }
        Ok((gradients, reward))
    }

    fn sampled_reward(&self, batch: &Batch) -> Result<f32> {
        let latent = self.model.latent(&batch.inputs)?;
        let rows = batch.rows(&latent);
        match &self.estimator {
            AnyEstimator::Queries(estimator) => Ok(mean(&estimator.gradient(rows)?.rewards)),
            AnyEstimator::Actions(_) => Ok(self.gradient(batch)?.1),
        }
    }
}

fn mean(rewards: &[f32]) -> f32 {
    rewards.iter().sum::<f32>() / rewards.len().max(1) as f32
}

impl TrainStep for Learner {
    type Input = Batch;
    type Output = StepOutput;

    fn step(&self, batch: Batch) -> TrainOutput<StepOutput> {
        // The trait has no way to fail: a step that could not be taken changes no parameter and
        // says so in its output.
        let (grads, reward) = match self.clipped_gradient(&batch) {
            Ok((grads, reward)) => (grads, Ok(reward)),
            Err(error) => (GradientsParams::new(), Err(error)),
        };
        TrainOutput { grads, item: StepOutput { reward } }
    }
}

/// The reward of the policy's sampled slates, without a gradient.
impl InferenceStep for Learner {
    type Input = Batch;
    type Output = StepOutput;

    fn step(&self, batch: Batch) -> StepOutput {
        StepOutput { reward: self.sampled_reward(&batch) }
    }
}
