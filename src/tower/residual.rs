//! A residual tower takes M and returns `h = M_L + s · MLP(M / s)`: the query of the embeddings plus
//! the output of an MLP.
//!
//! With balance a context begins with two means of the same user, M₁ and the balanced M₂ (`encoder::mean`),
//! and `M₁ + c (M₂ − M₁)` takes their place in M. A reward for the whole slate may want several tastes in
//! it, and how much each counts for depends on the user's actions in a way that no function of M₁ knows. c
//! is one number for everybody, so it learns from all users at once what a matrix of L × L learns of each.
//!
//! The MLP may leave the first numbers of M alone: where neighbours stand beside a decomposition
//! (`embedding::neighbours`), these are a thousand nearly random directions, in which a matrix learns by heart what its
//! users did. On five splits of MovieLens the best checkpoint gained 1.9 percent for validation users without neighbours, 1.1 with
//! them, and 1.6 where their numbers are left alone.

use std::ops::Range;

use burn::module::{Module, Param};
use burn::tensor::activation::{gelu, relu, sigmoid};
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};

use super::{TowerSettings, to_device, to_host};
use crate::error::Result;
use crate::matrix::{Matrix, dot};
use crate::seed::{Purpose, Seed};

/// The activation after each hidden layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activation {
    /// `max(0, z)`.
    Relu,
    /// `z Φ(z)`.
    Gelu,
    /// The hyperbolic tangent.
    Tanh,
    /// `1 / (1 + e^{−z})`. It alone is not 0 at 0, so that a context of zeros may get another query
    /// than 0, which stands for the most popular actions.
    Sigmoid,
}

impl Activation {
    fn of(self, z: Tensor<2>) -> Tensor<2> {
        match self {
            Self::Relu => relu(z),
            Self::Gelu => gelu(z),
            Self::Tanh => z.tanh(),
            Self::Sigmoid => sigmoid(z),
        }
    }

    /// The variance of an initial weight times the number of its layer's inputs: 2 where half of the
    /// inputs are cut off (He et al., "Delving Deep into Rectifiers", ICCV 2015), otherwise 1
    /// (`LeCun` et al., "Efficient `BackProp`", 1998).
    fn gain(self) -> f32 {
        match self {
            Self::Relu | Self::Gelu => 2.0,
            Self::Tanh | Self::Sigmoid => 1.0,
        }
    }
}

/// `h = M_L + s · a(… a(M/s W₁) …) W_n`: the first L columns of M `[D]`, D ≥ L, plus an MLP without
/// biases whose last layer starts at 0. Step 0 equals θ = I of [`LinearTower`](super::LinearTower) bit
/// for bit, and weight decay pulls towards it, but for c, which does not decay.
///
/// The MLP leaves the first `fixed` numbers of M and of h alone: W₁ begins, and W_n ends, without them.
///
/// s is the root mean square of the training contexts' numbers. It makes decisions and training
/// independent of the scale of β: a factor of β becomes a factor of h.
#[derive(Module, Debug)]
pub struct ResidualMlp {
    /// W₁ `[D − fixed, H₁]`, W₂ `[H₁, H₂]`, …
    pub hidden: Vec<Param<Tensor<2>>>,
    /// W_n, `[H, L − fixed]`; without hidden layers `[D − fixed, L − fixed]`.
    pub output: Param<Tensor<2>>,
    /// c over its pace, `[1, 1]`, where tastes are balanced.
    pub balance: Option<Param<Tensor<2>>>,
    #[module(skip)]
    pub(super) activation: Activation,
    #[module(skip)]
    pub(super) scale: f32,
    #[module(skip)]
    pub(super) pace: f32,
    #[module(skip)]
    pub(super) fixed: usize,
}

/// How far c goes while a number of W goes by 1, for each dimension: the learning rate is smaller for longer
/// vectors, because what L numbers do adds up, and c is one.
const PACE: f32 = 0.05;

impl ResidualMlp {
    /// The initial tower of `settings` for the training `contexts` `[U, D]`.
    pub(super) fn init(
        settings: &TowerSettings,
        contexts: &Matrix,
        latent_dim: usize,
        seed: Seed,
        device: &Device,
    ) -> Self {
        let on_device = |matrix: &Matrix| Param::from_tensor(to_device(matrix, device));
        let balance = settings.balance.then(|| on_device(&Matrix::zeros(1, 1)));
        let balanced = if settings.balance { latent_dim } else { 0 };
        let fixed = settings.fixed;
        let mut inputs = contexts.cols() - balanced - fixed;
        let hidden = (0..).zip(&settings.hidden).map(|(layer, &units)| {
            let mut weights = Matrix::zeros(inputs, units);
            seed.stream(Purpose::Initial, 0, layer).fill_normals(weights.as_mut_slice());
            let deviation = (settings.activation.gain() / inputs as f32).sqrt();
            weights.as_mut_slice().iter_mut().for_each(|weight| *weight *= deviation);
            inputs = units;
            on_device(&weights)
        });
        Self {
            hidden: hidden.collect(),
            output: on_device(&Matrix::zeros(inputs, latent_dim - fixed)),
            balance,
            activation: settings.activation,
            scale: root_mean_square(contexts, latent_dim..latent_dim + balanced),
            pace: PACE * (latent_dim - fixed) as f32,
            fixed,
        }
    }

    /// `[B, D]` → `[B, L]`.
    #[must_use]
    pub fn forward(&self, contexts: Tensor<2>) -> Tensor<2> {
        let learned = self.output.dims()[1];
        let contexts = self.balanced(contexts, self.fixed + learned);
        let part = |first, length| contexts.clone().narrow(1, first, length);
        let identity = part(self.fixed, learned); // [B, L − fixed]
        let seen = part(self.fixed, contexts.dims()[1] - self.fixed); // [B, D − fixed]
        let hidden = self.hidden.iter().fold(seen.div_scalar(self.scale), |x, weights| {
            self.activation.of(x.matmul(weights.val()))
        }); // [B, H]
        let h = identity + hidden.matmul(self.output.val()).mul_scalar(self.scale);
        if self.fixed == 0 { h } else { Tensor::cat(vec![part(0, self.fixed), h], 1) }
    }

    /// W₁ … W_n of the tower that looks at all of M and does the same: zeros for what is fixed.
    pub(super) fn whole_layers(&self) -> Result<Vec<Matrix>> {
        let params = self.hidden.iter().chain([&self.output]);
        let mut layers = params.map(|param| to_host(param.val())).collect::<Result<Vec<_>>>()?;
        if let Some(first) = layers.first_mut() {
            *first = padded(first, [self.fixed, 0]);
        }
        if let Some(last) = layers.last_mut() {
            *last = padded(last, [0, self.fixed]);
        }
        Ok(layers)
    }

    /// c.
    ///
    /// # Errors
    /// [`Error::Library`](crate::Error::Library) when the device fails.
    pub fn share(&self) -> Result<Option<f32>> {
        let share = self.balance.as_ref().map(|balance| to_host(balance.val())).transpose()?;
        Ok(share.map(|share| share.as_slice()[0] * self.pace))
    }

    /// M of contexts that hold two means.
    fn balanced(&self, contexts: Tensor<2>, latent_dim: usize) -> Tensor<2> {
        let Some(balance) = &self.balance else { return contexts };
        let rest = contexts.dims()[1] - 2 * latent_dim;
        let part = |first, length| contexts.clone().narrow(1, first, length);
        let (first, second) = (part(0, latent_dim), part(latent_dim, latent_dim));
        let share = balance.val().mul_scalar(self.pace); // [1, 1]
        let mean = first.clone() + (second - first) * share;
        if rest == 0 { mean } else { Tensor::cat(vec![mean, part(2 * latent_dim, rest)], 1) }
    }
}

/// A matrix after so many rows and columns of zeros.
fn padded(matrix: &Matrix, [rows, cols]: [usize; 2]) -> Matrix {
    let mut padded = Matrix::zeros(rows + matrix.rows(), cols + matrix.cols());
    for (at, row) in matrix.iter_rows().enumerate() {
        padded.row_mut(rows + at)[cols..].copy_from_slice(row);
    }
    padded
}

/// The root mean square of the numbers of `contexts` outside `but`; 1 where they are all 0.
fn root_mean_square(contexts: &Matrix, but: Range<usize>) -> f32 {
    let square = |numbers: &[f32]| f64::from(dot(numbers, numbers));
    let of_row = |row: &[f32]| square(&row[..but.start]) + square(&row[but.end..]);
    let squares: f64 = contexts.iter_rows().map(of_row).sum();
    let count = contexts.rows() * (contexts.cols() - but.len());
    let mean = squares / count.max(1) as f64;
    #[allow(clippy::cast_possible_truncation, reason = "contexts are f32")]
    let root = mean.sqrt() as f32;
    if root > 0.0 && root.is_finite() { root } else { 1.0 }
}
