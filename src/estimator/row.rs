//! Takes the rewards and the gradient of single rows, and joins them into the gradient of a batch.

use super::Gradient;
use crate::embedding::ActionEmbeddings;
use crate::error::Result;
use crate::matrix::Matrix;

/// The estimate for one row of a batch.
#[derive(Debug)]
pub(super) struct RowEstimate {
    /// `[S]`.
    pub(super) rewards: Vec<f32>,
    /// `[L]`.
    pub(super) g: Vec<f32>,
}

impl RowEstimate {
    /// Joins the estimates of all rows of a batch, in their order.
    pub(super) fn gather(estimates: Vec<Self>, latent_dim: usize) -> Result<Gradient> {
        let (mut rewards, mut h) = (Vec::new(), Vec::new());
        for estimate in estimates {
            rewards.extend(estimate.rewards);
            h.extend(estimate.g);
        }
        Ok(Gradient { h: Matrix::new(h, latent_dim)?, rewards })
    }
}

/// The sum `Σ w β_a` `[L]`, in f64.
pub(super) struct WeightedSum<'a> {
    actions: &'a ActionEmbeddings,
    sums: Vec<f64>,
}

impl<'a> WeightedSum<'a> {
    pub(super) fn new(actions: &'a ActionEmbeddings) -> Self {
        Self { actions, sums: vec![0.0; actions.latent_dim()] }
    }

    pub(super) fn add(&mut self, weight: f64, action: u32) {
        // Most rewards are zero most of the time; a zero weight needs no β.
        if weight != 0.0 {
            for (sum, beta) in self.sums.iter_mut().zip(self.actions.row(action)) {
                *sum += weight * f64::from(*beta);
            }
        }
    }

    pub(super) fn rounded(self) -> Vec<f32> {
        #[allow(clippy::cast_possible_truncation, reason = "a gradient is as precise as h")]
        self.sums.into_iter().map(|sum| sum as f32).collect()
    }
}
