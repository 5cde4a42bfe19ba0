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
        self.corrections.iter().fold(h, |h, correction| correction.forward(contexts.clone(), h))
    }

    /// This model with a gradient for what is trained alone: of a chain of corrections, the last. What
    /// stands on the autodiff tape and is never passed backwards stays there, step after step.
    #[must_use]
    pub(crate) fn with_the_rest_frozen(mut self) -> Self {
        let Some(last) = self.corrections.pop() else { return self };
        let mut model = self.no_grad();
        model.corrections.push(last);
        model
    }

    /// This model with the balance of tastes as it is, which is then not trained.
    #[must_use]
    pub(crate) fn with_balance_frozen(mut self) -> Self {
        if let Some(Tower::ResidualMlp(tower)) = &mut self.tower {
            tower.balance = tower.balance.take().map(Module::no_grad);
        }
        self
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tower::LinearTower;

    #[test]
    fn of_a_chain_the_last_correction_has_a_gradient_and_nothing_else() {
        let device = crate::device::choose(Some("ndarray")).unwrap().device;
        let numbers = Matrix::new(vec![0.5, -1.0, 2.0, 0.25], 2).unwrap();
        let tower = Tower::Linear(LinearTower::new(&numbers, &device));
        let chain = |count| {
            let model = Model::from(tower.clone());
            (0..count).fold(model, |model, _| model.corrected(Radius::Fixed(0.5), [2, 2]))
        };
        for count in 0..3 {
            let model = chain(count).with_the_rest_frozen().train();
            let contexts = to_device(&numbers, &device.clone().autodiff());
            let gradients = model.forward(contexts).sum().backward();
            let Some(Tower::Linear(tower)) = &model.tower else { panic!() };
            assert_eq!(tower.theta.val().grad(&gradients).is_some(), count == 0, "{count}");
            for (at, correction) in model.corrections.iter().enumerate() {
                let gradient = correction.delta.val().grad(&gradients);
                assert_eq!(gradient.is_some(), at + 1 == count, "{at} of {count}");
            }
        }
    }
}
