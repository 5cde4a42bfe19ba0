//! Contexts in, queries out: the trained parameters, which are θ or β.

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
    /// β `[P, L]`, where it is learned.
    pub actions: Option<Param<Tensor<2>>>,
}

impl From<Tower> for Model {
    fn from(tower: Tower) -> Self {
        Self { tower: Some(tower), actions: None }
    }
}

impl Model {
    /// A model that learns β, from the given one on.
    #[must_use]
    pub fn of_actions(actions: &ActionEmbeddings, device: &Device) -> Self {
        let beta = Param::from_tensor(to_device(actions.beta(), device));
        Self { tower: None, actions: Some(beta) }
    }

    /// `[B, D]` contexts → `[B, L]` queries.
    #[must_use]
    pub fn forward(&self, contexts: Tensor<2>) -> Tensor<2> {
        match &self.tower {
            Some(tower) => tower.forward(contexts),
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

    /// β as it stands, where it is learned.
    ///
    /// # Errors
    /// [`crate::Error::Library`] when the device fails, [`crate::Error::NotFinite`].
    pub fn learned_actions(&self) -> Result<Option<ActionEmbeddings>> {
        self.actions.as_ref().map(|beta| ActionEmbeddings::new(to_host(beta.val())?)).transpose()
    }
}
