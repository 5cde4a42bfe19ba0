//! The learner step, Burn's `TrainStep`: forward through the tower, the estimator's gradient with
//! respect to the queries, the REINFORCE surrogate loss, backward through the tower. S and K never
//! reach the autodiff tape.

use std::sync::Arc;

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Device, ExecutionError, Tensor};
use burn::train::metric::{Adaptor, LossInput};
use burn::train::{InferenceStep, ItemLazy, TrainOutput, TrainStep};

use crate::error::Result;
use crate::estimator::{BatchRows, Estimator};
use crate::matrix::Matrix;
use crate::tower::{Tower, to_device, to_host};

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
    fn rows(&self) -> BatchRows<'_> {
        BatchRows { step: self.step, first: 0, contexts: &self.contexts }
    }
}

/// What a step reports: the mean reward of its sampled slates, or why it could not be taken.
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
        LossInput::new(Tensor::from_floats([loss], &Device::default()))
    }
}

/// A tower and the estimator that trains it.
#[derive(Module, Debug)]
pub struct Learner {
    tower: Tower,
    #[module(skip)]
    estimator: Arc<dyn Estimator>,
}

impl Learner {
    /// A learner of `tower`, whose parameters it puts on the autodiff tape.
    #[must_use]
    pub fn new(tower: Tower, estimator: Arc<dyn Estimator>) -> Self {
        Self { tower: tower.train(), estimator }
    }

    /// The tower as it stands.
    #[must_use]
    pub fn tower(&self) -> &Tower {
        &self.tower
    }

    /// Algorithm 1 without the update: samples noise, retrieves slates, looks up rewards, and
    /// backpropagates `−⟨h, g⟩ / B`, whose gradient in θ is minus that of the reward.
    fn gradient(&self, batch: &Batch) -> Result<(GradientsParams, f32)> {
        let device = self.tower.devices().swap_remove(0);
        let h = self.tower.forward(to_device(&batch.inputs, &device)); // [B, L]
        let latent = to_host(h.clone().inner())?; // waits for the device
        let samples = self.estimator.sample(&latent, batch.rows())?;
        let g = self.estimator.finish(&latent, &samples); // [B, L]
        let surrogate =
            (h * to_device(&g, &device)).sum().neg().div_scalar(batch.contexts.len() as f32);
        let gradients = GradientsParams::from_grads(surrogate.backward(), self);
        Ok((gradients, samples.mean_reward()))
    }
}

impl TrainStep for Learner {
    type Input = Batch;
    type Output = StepOutput;

    fn step(&self, batch: Batch) -> TrainOutput<StepOutput> {
        // The trait has no way to fail: a step that could not be taken changes no parameter and
        // says so in its output.
        let (grads, reward) = match self.gradient(&batch) {
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
        let latent = self.tower.latent(&batch.inputs);
        let samples = latent.and_then(|latent| self.estimator.sample(&latent, batch.rows()));
        StepOutput { reward: samples.map(|samples| samples.mean_reward()) }
    }
}
