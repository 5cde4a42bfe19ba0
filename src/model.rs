//! Contexts in, queries out: the trained parameters, which are θ or β.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};

use crate::embedding::ActionEmbeddings;
use crate::error::Result;
use crate::matrix::Matrix;
use crate::tower::{Correction, Radius, Tower, latent, to_device, to_host};

/// The trained parameters of a policy.
#[derive(Module, Debug)]
pub struct Model {
    /// h_θ; none where β is learned: then `h = M(X)`.
    pub tower: Option<Tower>,
    /// β `[P, L]`, where it is learned.
    pub actions: Option<Param<Tensor<2>>>,
    /// What was learned from logs since, one after the other. The last is trained; the tower and the
    /// others stay as they are.
    pub corrections: Vec<Correction>,
}

impl From<Tower> for Model {
    fn from(tower: Tower) -> Self {
        Self { tower: Some(tower), actions: None, corrections: Vec::new() }
    }
}

impl Model {
    /// A model that learns β, from the given one on.
    #[must_use]
    pub fn of_actions(actions: &ActionEmbeddings, device: &Device) -> Self {
        let beta = Param::from_tensor(to_device(actions.beta(), device));
        Self { tower: None, actions: Some(beta), corrections: Vec::new() }
    }

    /// This model with one more correction, which changes nothing yet, for contexts and queries
    /// of the `shape` [D, L].
    #[must_use]
    pub fn corrected(mut self, radius: Radius, shape: [usize; 2]) -> Self {
        let device = self.devices().swap_remove(0);
        let delta = Matrix::zeros(shape[0], shape[1]);
        self.corrections.push(Correction::new(&delta, radius, &device));
        self
    }

    /// `[B, D]` contexts → `[B, L]` queries.
    #[must_use]
    pub fn forward(&self, contexts: Tensor<2>) -> Tensor<2> {
        let Some(tower) = &self.tower else { return contexts };
        let h = tower.forward(contexts.clone());
        // Only the last in the chain is on the autodiff tape.
        self.corrections
            .iter()
            .fold(h, |h, correction| correction.forward(contexts.clone(), h.detach()))
    }

    /// The queries of host contexts `[B, D]`, back on the host `[B, L]`.
    ///
    /// # Errors
    /// [`crate::Error::Library`] when the device fails.
    pub fn latent(&self, contexts: &Matrix) -> Result<Matrix> {
        if self.tower.is_none() {
            return Ok(contexts.clone());
        }
        let device = self.devices().swap_remove(0);
        latent(contexts, &device, |contexts| self.forward(contexts))
    }

    /// β as it stands, where it is learned.
    ///
    /// # Errors
    /// [`crate::Error::Library`] when the device fails, [`crate::Error::NotFinite`].
    pub fn learned_actions(&self) -> Result<Option<ActionEmbeddings>> {
        self.actions.as_ref().map(|beta| ActionEmbeddings::new(to_host(beta.val())?)).transpose()
    }
}
