//! The linear tower takes M and returns `h = M θ` (equation 10, "param", section 4.1).

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};

use super::to_device;
use crate::matrix::Matrix;

/// `h = M θ`, θ `[D, L]`.
#[derive(Module, Debug)]
pub struct LinearTower {
    /// θ `[D, L]`.
    pub theta: Param<Tensor<2>>,
}

impl LinearTower {
    /// A tower that starts at `theta` `[D, L]`.
    #[must_use]
    pub fn new(theta: &Matrix, device: &Device) -> Self {
        Self { theta: Param::from_tensor(to_device(theta, device)) }
    }

    /// `[B, D]` → `[B, L]`.
    #[must_use]
    pub fn forward(&self, contexts: Tensor<2>) -> Tensor<2> {
        contexts.matmul(self.theta.val())
    }
}

/// `[I; 0]` of shape `[D, L]`, D ≥ L: the first L context columns are the latent mean.
pub(super) fn identity(context_dim: usize, latent_dim: usize) -> Matrix {
    let mut theta = Matrix::zeros(context_dim, latent_dim);
    for i in 0..latent_dim {
        theta.row_mut(i)[i] = 1.0;
    }
    theta
}
