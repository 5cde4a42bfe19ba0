//! Optimiser settings in, Adam out: its decay, the longest gradient, and its file in a checkpoint.

use std::path::Path;

use burn::module::{Module, ModuleVisitor, Param, ParamGroup};
use burn::optim::{
    AdamConfig, GradientsParams, LearningRate, ModuleOptimizer, Optimizer, RecordState, StateSink,
    StateSource,
};
use burn::tensor::{Device, Tensor};

use super::adamw::OnePass;
use crate::device::{self, floats};
use crate::error::{Error, Result};
use crate::run::Checkpoint;
use crate::settings::OptimizerSettings;

/// Adam with these settings, at its first step. Only the layers of towers decay: a learned β means nothing
/// near 0, and the balance of tastes is one number that all users share.
#[must_use]
pub fn adam(settings: &OptimizerSettings) -> ModuleOptimizer {
    let adam = AdamConfig::new()
        .with_beta_1(settings.beta_1)
        .with_beta_2(settings.beta_2)
        .with_epsilon(settings.epsilon)
        .build();
    let adam = ReadByHost(adam);
    // AdamW rounds otherwise even without decay.
    if settings.weight_decay == 0.0 {
        return ModuleOptimizer::from(adam);
    }
    ModuleOptimizer::from(ReadByHost(OnePass::new(settings)))
        .with_group(ParamGroup::from_predicate("actions"), adam.clone(), None)
        .with_group(ParamGroup::from_predicate("balance"), adam, None)
}

/// An optimiser whose state is read into the host's memory; its next step moves it to the weights' device.
/// Burn would read it onto its default device: the GPU of a build that has one, which a run on the CPU
/// does not need and a machine may lack.
#[derive(Clone)]
struct ReadByHost<O>(O);

impl<O: Optimizer> Optimizer for ReadByHost<O> {
    type State<const D: usize> = ReadByHost<O::State<D>>;

    fn step<const D: usize>(
        &self,
        rate: LearningRate,
        weights: Tensor<D>,
        gradient: Tensor<D>,
        state: Option<Self::State<D>>,
    ) -> (Tensor<D>, Option<Self::State<D>>) {
        let (weights, state) = self.0.step(rate, weights, gradient, state.map(|state| state.0));
        (weights, state.map(ReadByHost))
    }

    fn to_device<const D: usize>(state: Self::State<D>, device: &Device) -> Self::State<D> {
        ReadByHost(O::to_device(state.0, device))
    }
}

impl<S: RecordState> RecordState for ReadByHost<S> {
    fn state_flatten(&self, prefix: &str, out: &mut StateSink) {
        self.0.state_flatten(prefix, out);
    }

    fn state_unflatten(prefix: &str, source: &mut StateSource, _: &Device) -> Option<Self> {
        S::state_unflatten(prefix, source, &device::host()).map(ReadByHost)
    }
}

/// The optimiser's file in a checkpoint.
const ADAM: &str = "adam.bpk";

/// Writes the optimiser's state into a checkpoint's folder.
///
/// # Errors
/// [`Error::Library`] naming the file.
pub(super) fn save_adam(adam: &ModuleOptimizer, folder: &Path) -> Result<()> {
    let path = folder.join(ADAM);
    adam.save(&path).map_err(|error| Error::library(path.display().to_string(), error))
}

/// `adam` with the state that a checkpoint holds.
///
/// # Errors
/// [`Error::Io`] and [`Error::Library`] naming the file.
pub(super) fn load_adam(adam: ModuleOptimizer, checkpoint: &Checkpoint) -> Result<ModuleOptimizer> {
    let failed = |error| Error::library(checkpoint.path().join(ADAM).display().to_string(), error);
    adam.from_bytes(checkpoint.read(ADAM)?).map_err(failed)
}

/// Shortens the gradient of all parameters of `module` taken together to the length `longest`, if it
/// is longer: its direction stays, unlike under Burn's clipping, which looks at each tensor alone.
///
/// # Errors
/// [`Error::Library`] when the device fails.
pub(super) fn clip<M: Module>(
    gradients: &mut GradientsParams,
    module: &M,
    longest: f32,
) -> Result<()> {
    let mut squares = Squares { gradients, sum: None };
    module.visit(&mut squares);
    let Some(sum) = squares.sum else { return Ok(()) };
    let sums = floats(sum)?; // waits for the device
    let norm = sums.into_iter().sum::<f32>().sqrt();
    // What is not finite stays as it is, and the next step's query says so.
    if norm.is_finite() && norm > longest {
        module.visit(&mut Scaled { gradients, factor: longest / norm });
    }
    Ok(())
}

/// Adds up the squares of all gradients, on their device.
struct Squares<'a> {
    gradients: &'a GradientsParams,
    sum: Option<Tensor<1>>,
}

impl ModuleVisitor for Squares<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = self.gradients.get::<D>(param.id) {
            let squares = gradient.square().sum();
            self.sum = Some(match self.sum.take() {
                Some(sum) => sum + squares,
                None => squares,
            });
        }
    }
}

/// Multiplies all gradients by a factor.
struct Scaled<'a> {
    gradients: &'a mut GradientsParams,
    factor: f32,
}

impl ModuleVisitor for Scaled<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = self.gradients.remove::<D>(param.id) {
            self.gradients.register(param.id, gradient.mul_scalar(self.factor));
        }
    }
}
