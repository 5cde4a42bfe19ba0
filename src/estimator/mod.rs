//! Estimators: samples and rewards → `g_b = ∂R̂/∂h_b` `[B, L]`, the gradient of the estimated
//! reward with respect to each query. With β fixed, every method of the paper is of this form, so
//! an estimator is ordinary Rust and knows nothing of autodiff; the tower's part of the gradient is
//! the learner's.

mod score_function;

pub use score_function::{Baseline, ScoreFunction, ScoreFunctionSettings};

use std::fmt::Debug;

use crate::error::Result;
use crate::matrix::Matrix;

/// Consecutive rows of a global batch. A batch may be split over workers by rows; what is drawn
/// for a row depends on its place in the global batch only.
#[derive(Clone, Copy, Debug)]
pub struct BatchRows<'a> {
    /// Training step, from 0.
    pub step: u64,
    /// Place of the first of these rows in the global batch.
    pub first: usize,
    /// The contexts of these rows, `[rows]`.
    pub contexts: &'a [u32],
}

/// What was drawn for some rows of a batch, S samples a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples {
    /// r̂, `[rows · S]`.
    pub rewards: Vec<f32>,
    /// ε, `[rows · S, L]`.
    pub noise: Matrix,
    /// σ of each row, `[rows]`.
    pub sigma: Vec<f32>,
}

impl Samples {
    /// The samples of these rows followed by those of the next ones.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] when the two do not have the same L.
    pub fn join(mut self, next: Self) -> Result<Self> {
        let cols = self.noise.cols();
        let mut noise = self.noise.into_vec();
        noise.extend(next.noise.into_vec());
        self.rewards.extend(next.rewards);
        self.sigma.extend(next.sigma);
        Ok(Self { rewards: self.rewards, noise: Matrix::new(noise, cols)?, sigma: self.sigma })
    }

    /// Mean reward: an unbiased estimate of R̂(π_θ) on the batch.
    #[must_use]
    pub fn mean_reward(&self) -> f32 {
        self.rewards.iter().sum::<f32>() / self.rewards.len().max(1) as f32
    }
}

/// A gradient estimate in two phases: retrieval and rewards may be split by rows, what needs the
/// whole batch (a baseline over contexts) waits for all of them.
pub trait Estimator: Send + Sync + Debug {
    /// Draws S slates for each row of `h` `[rows, L]` and looks up their rewards.
    ///
    /// # Errors
    /// Those of the retriever.
    fn sample(&self, h: &Matrix, rows: BatchRows<'_>) -> Result<Samples>;

    /// g `[B, L]`, from the queries `[B, L]` and the samples of the whole batch.
    fn finish(&self, h: &Matrix, samples: &Samples) -> Matrix;
}
