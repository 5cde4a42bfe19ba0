//! Contexts in, queries out: the trained parameters, which are θ, θ and a factor of σ, or β.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};

use crate::embedding::ActionEmbeddings;
use crate::error::Result;
use crate::matrix::Matrix;
use crate::tower::{Tower, to_device, to_host};

/// The trained parameters of a policy.
#[derive(Module, Debug)]
pub struct Model {
    /// h_θ; none where β is learned: then `h = M(X)`.
    pub tower: Option<Tower>,
    /// The learned factor of σ, if σ is learned.
    pub sigma: Option<SigmaFactor>,
    /// β `[P, L]`, where it is learned.
    pub actions: Option<Param<Tensor<2>>>,
}

/// A learned factor of σ, `floor + (1 − floor) e^ρ`: 1 at ρ = 0, and never below its floor, so
/// that `1/σ` stays finite however much the reward prefers a policy without noise.
#[derive(Module, Debug)]
pub struct SigmaFactor {
    /// ρ, `[1]`.
    pub rho: Param<Tensor<1>>,
    #[module(skip)]
    floor: f32,
}

impl SigmaFactor {
    /// The factor 1.
    #[must_use]
    pub fn new(floor: f32, device: &Device) -> Self {
        Self { rho: Param::from_tensor(Tensor::zeros([1], device)), floor }
    }

    /// The factor, `[1]`.
    #[must_use]
    pub fn forward(&self) -> Tensor<1> {
        self.rho.val().exp() * (1.0 - self.floor) + self.floor
    }
}

impl From<Tower> for Model {
    fn from(tower: Tower) -> Self {
        Self { tower: Some(tower), sigma: None, actions: None }
    }
}

impl Model {
    /// A model that learns β, from the given one on.
    #[must_use]
    pub fn of_actions(actions: &ActionEmbeddings, device: &Device) -> Self {
        let beta = Param::from_tensor(to_device(actions.beta(), device));
        Self { tower: None, sigma: None, actions: Some(beta) }
    }

    /// `[B, D]` contexts → `[B, L]` queries, in step `step` of training.
    #[must_use]
    pub fn forward_in_training(&self, contexts: Tensor<2>, step: u64) -> Tensor<2> {
        match &self.tower {
            Some(tower) => tower.forward_in_training(contexts, step),
            None => contexts,
        }
    }

    /// The queries of host contexts `[B, D]`, back on the host `[B, L]`.
    ///
    /// # Errors
    /// [`crate::Error::Library`] when the device fails.
    pub fn latent(&self, contexts: &Matrix) -> Result<Matrix> {
        match &self.tower {
            Some(tower) => tower.latent(contexts),
            None => Ok(contexts.clone()),
        }
    }

    /// The factor of σ; 1 if σ is not learned.
    ///
    /// # Errors
    /// [`crate::Error::Library`] when the device fails.
    pub fn sigma_factor(&self) -> Result<f32> {
        match &self.sigma {
            Some(sigma) => Ok(to_host(sigma.forward().reshape([1, 1]))?.as_slice()[0]),
            None => Ok(1.0),
        }
    }

    /// β as it stands, where it is learned.
    ///
    /// # Errors
    /// [`crate::Error::Library`] when the device fails, [`crate::Error::NotFinite`].
    pub fn learned_actions(&self) -> Result<Option<ActionEmbeddings>> {
        self.actions.as_ref().map(|beta| ActionEmbeddings::new(to_host(beta.val())?)).transpose()
    }
}
