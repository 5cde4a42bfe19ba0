//! What a log says of a policy's gradient: rows that another policy drew, weighed by how much likelier this
//! one is to draw them. `g = w r / (1 + λ w r) ∇_h log w` ascends the logarithmically smoothed value, and
//! `g = w (r − b) ∇_h log w` the plain one. A step searches nothing and knows neither K nor P.

use std::sync::Arc;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{BatchRows, Estimator, Gradient};
use crate::error::Result;
use crate::logged::Logged;
use crate::matrix::Matrix;

/// The estimate of the value that is ascended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// `1/λ log(1 + λ w r)`: rows of large weights count less, so that what is learned can be trusted.
    #[default]
    Smoothed,
    /// `w r + b (1 − w)`, unbiased; b is the mean reward, and what it multiplies has the mean 0.
    Plain,
}

/// The gradient of the value of a policy, from rows of a log. The contexts of a batch are its rows.
#[derive(Clone, Debug)]
pub struct LatentImportance {
    logged: Arc<Logged>,
    objective: Objective,
    lambda: f64,
    baseline: f64,
}

impl LatentImportance {
    /// Ascends `objective` on the rows of `logged` that are learned from.
    #[must_use]
    pub fn new(logged: Arc<Logged>, objective: Objective) -> Self {
        let (lambda, baseline) = (logged.lambda(), logged.mean_reward());
        Self { logged, objective, lambda, baseline }
    }
}

impl Estimator for LatentImportance {
    fn gradient(&self, rows: BatchRows<'_>) -> Result<Gradient> {
        let mut h = Matrix::zeros(rows.h.rows(), rows.h.cols()); // [B, L]
        let gradient = |((out, query), row): ((&mut [f32], &[f32]), &u32)| {
            let (drawn, reward) = (self.logged.drawn(*row), self.logged.mapped_reward(*row));
            let weight = drawn.ratio(self.logged.rule, query).log_weight.exp();
            let factor = match self.objective {
                Objective::Smoothed => weight * reward / (1.0 + self.lambda * weight * reward),
                Objective::Plain => weight * (reward - self.baseline),
            };
            drawn.score(self.logged.rule, query, out);
            #[allow(clippy::cast_possible_truncation, reason = "a gradient is as precise as h")]
            let (factor, reward) = (factor as f32, (weight * reward) as f32);
            for score in out {
                *score *= factor;
            }
            reward
        };
        let rewards = h
            .par_rows_mut()
            .zip(rows.h.as_slice().par_chunks_exact(rows.h.cols()))
            .zip(rows.contexts)
            .map(gradient)
            .collect();
        Ok(Gradient { h, rewards })
    }
}
