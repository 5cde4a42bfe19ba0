//! A correction takes a context M(X) `[D]` and a query `[L]`, and returns a query that is at most a radius
//! away: `h + δ min(1, r/‖δ‖)` with `δ = M Δ`. A policy that learns from a log stays so near to the one
//! that logged.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};

use super::to_device;
use crate::matrix::Matrix;

/// r, the longest way from a query h to the corrected one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Radius {
    /// The same for every query.
    Fixed(f32),
    /// So many times ‖h‖.
    Relative(f32),
}

/// The square of the shortest radius.
const TINY: f32 = 1e-30;

/// `h + δ min(1, r/‖δ‖)`, `δ = M Δ`, Δ `[D, L]`.
#[derive(Module, Debug)]
pub struct Correction {
    /// Δ `[D, L]`.
    pub delta: Param<Tensor<2>>,
    #[module(skip)]
    radius: Radius,
}

impl Correction {
    /// A correction with Δ `[D, L]`.
    #[must_use]
    pub fn new(delta: &Matrix, radius: Radius, device: &Device) -> Self {
        Self { delta: Param::from_tensor(to_device(delta, device)), radius }
    }

    /// r.
    #[must_use]
    pub fn radius(&self) -> Radius {
        self.radius
    }

    /// Contexts `[B, D]` and their queries `[B, L]` → corrected queries `[B, L]`.
    #[must_use]
    pub fn forward(&self, contexts: Tensor<2>, h: Tensor<2>) -> Tensor<2> {
        // Squares of lengths, [B, 1]: the root is taken of numbers above 0 only, where it has a slope.
        let square = |x: Tensor<2>| x.square().sum_dim(1);
        let radius = match self.radius {
            Radius::Fixed(radius) => square(h.clone()).zeros_like().add_scalar(radius * radius),
            Radius::Relative(share) => square(h.clone()).mul_scalar(share * share),
        };
        let radius = radius.clamp_min(TINY);
        let delta = contexts.matmul(self.delta.val());
        let longest = square(delta.clone()).max_pair(radius.clone());
        h + delta * (radius / longest).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_correction_of_zero_has_a_gradient() {
        let device = crate::device::choose(Some("ndarray")).unwrap().device.autodiff();
        let contexts = Matrix::new(vec![1.0, 2.0, -1.0, 0.5, 0.0, 0.0], 2).unwrap();
        let h = Matrix::new(vec![3.0, 4.0, 0.6, 0.8, 0.0, 0.0], 2).unwrap();
        for radius in [Radius::Fixed(0.5), Radius::Relative(0.1)] {
            let correction = Correction::new(&Matrix::zeros(2, 2), radius, &device);
            let (contexts, h) = (to_device(&contexts, &device), to_device(&h, &device));
            let out = correction.forward(contexts, h);
            let gradients = out.sum().backward();
            let gradient = correction.delta.val().grad(&gradients).unwrap();
            let gradient = super::super::to_host(gradient).unwrap();
            // The sum of the contexts, for each column.
            assert_eq!(gradient.as_slice(), [0.0, 0.0, 2.5, 2.5], "{radius:?}");
        }
    }
}
