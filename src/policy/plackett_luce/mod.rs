//! Plackett–Luce takes queries and returns slates drawn from `π_θ(A_K | x) = Π_k e^{f(a_k)} / Z_k` with
//! `f(a) = hᵀβ_a` (equation 5), and their score functions. It scores every action, O(P L) a context;
//! the S slates of a context share that pass. [`Distribution`] draws slates, [`gradient`]
//! differentiates by the scores, and a second pass over β leads from the scores to the query.

mod dense;
pub mod distribution;
pub mod gradient;

use std::sync::Arc;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use tracing::trace_span;

use super::{BatchRows, Drawn, Sampling, SlatePolicy};
use crate::embedding::{ActionEmbeddings, Blocks};
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::retrieval::{Slates, check_slate_size};
use crate::seed::Purpose;

pub use distribution::Distribution;
pub use gradient::{GradientSum, RankTerms, ScoreGradient};

/// The way slates are drawn. All are exact; rejection scores the best actions and few others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SlateDraws {
    /// Binary search in the running sums of weights: [`Distribution::complete`].
    #[default]
    PrefixSums,
    /// The Gumbel trick (section 2): [`Distribution::complete_gumbel`].
    Gumbel,
    /// Rejection by maximum inner product search (appendix "Accelerating Plackett-Luce training").
    Rejection,
}

/// The Plackett–Luce policy.
#[derive(Clone, Debug)]
pub struct PlackettLuce {
    actions: Arc<ActionEmbeddings>,
    draws: SlateDraws,
    sampling: Sampling,
    blocks: Option<Arc<Blocks>>,
}

impl PlackettLuce {
    /// Refuses draws by rejection.
    ///
    /// # Errors
    /// [`Error::Setting`] with the reason.
    pub fn check_draws(draws: SlateDraws) -> Result<()> {
        if draws == SlateDraws::Rejection {
            return Err(Error::setting(
                "method.draws",
                "the score of a slate needs the weight of every action, which \"rejection\" spares \
                 itself; use it with method.kind = \"covariance\"",
            ));
        }
        Ok(())
    }

    /// A policy over `actions`.
    ///
    /// # Errors
    /// [`Error::Setting`] for draws by rejection, which have no score.
    pub fn new(
        actions: Arc<ActionEmbeddings>,
        draws: SlateDraws,
        sampling: Sampling,
    ) -> Result<Self> {
        sampling.validate()?;
        Self::check_draws(draws)?;
        Ok(Self { actions, draws, sampling, blocks: None })
    }

    /// Makes the products of both passes on the GPU that has β in `blocks`, if there is one.
    #[must_use]
    pub fn on(self, blocks: Option<&Arc<Blocks>>) -> Self {
        Self { blocks: blocks.cloned(), ..self }
    }

    /// The blocks that hold `beta`.
    fn blocks_of(&self, beta: &Matrix) -> Option<&Blocks> {
        self.blocks.as_deref().filter(|blocks| std::ptr::eq(blocks.actions().beta(), beta))
    }

    /// β.
    #[must_use]
    pub fn actions(&self) -> &Arc<ActionEmbeddings> {
        &self.actions
    }

    /// Draws the S slates of one row, `[S · K]`.
    #[must_use]
    pub fn draw(&self, distribution: &Distribution, rows: BatchRows<'_>, row: usize) -> Vec<u32> {
        let Sampling { num_samples, slate_size, seed, .. } = self.sampling;
        let mut stream = rows.stream(seed, Purpose::Slates, row);
        let mut slates = Vec::with_capacity(num_samples * slate_size);
        let mut slate = Vec::with_capacity(slate_size);
        for _ in 0..num_samples {
            match self.draws {
                SlateDraws::Gumbel => {
                    distribution.complete_gumbel(&mut slate, slate_size, &mut stream);
                }
                _ => distribution.complete(&mut slate, slate_size, &mut stream),
            }
            slates.append(&mut slate);
        }
        slates
    }

    /// Calls `visit` with each row's number and its distribution under `beta` `[P, L]`, and returns
    /// the results in the order of the rows.
    ///
    /// # Errors
    /// [`Error::NotFinite`] for a query or a score that is not finite, [`Error::Shape`] for queries
    /// of another dimension, [`Error::SlateTooLarge`]; fails if `visit` fails.
    pub fn visit<T: Send>(
        &self,
        beta: &Matrix,
        rows: BatchRows<'_>,
        visit: impl Fn(usize, &Distribution) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let mut scores = self.buffer(beta, rows)?;
        let mut visited = Vec::with_capacity(rows.h.rows());
        for start in (0..rows.h.rows()).step_by(dense::GROUP) {
            let visit = |row, distribution: &Distribution, _: &mut [f32]| visit(row, distribution);
            visited.extend(self.visit_group(beta, rows, start, &mut scores, visit)?);
        }
        Ok(visited)
    }

    /// Calls `visit` like [`visit`](Self::visit); it returns n gradients in the scores, n being the
    /// same for every row. Returns the gradients in the queries, `[B · n, L]`, and the other results.
    ///
    /// # Errors
    /// Fails as [`visit`](Self::visit) does.
    pub fn latent_gradients<T: Send>(
        &self,
        beta: &Matrix,
        rows: BatchRows<'_>,
        visit: impl Fn(usize, &Distribution) -> Result<(Vec<ScoreGradient>, T)> + Sync,
    ) -> Result<(Matrix, Vec<T>)> {
        let latent_dim = beta.cols();
        let mut buffer = self.buffer(beta, rows)?;
        let (mut latent, mut others) = (Vec::new(), Vec::with_capacity(rows.h.rows()));
        for start in (0..rows.h.rows()).step_by(dense::GROUP) {
            // The weights of a row's tail replace its scores.
            let visit = |row, distribution: &Distribution, buffer: &mut [f32]| {
                distribution.tail_weights(buffer);
                visit(row, distribution)
            };
            let visited = self.visit_group(beta, rows, start, &mut buffer, visit)?;
            let tail_sums = match self.blocks_of(beta) {
                Some(blocks) => dense::weighted_sums_on(blocks, &buffer)?,
                None => dense::weighted_sums(beta, &buffer),
            }; // [GROUP, L]
            for ((gradients, other), tail_sum) in
                visited.into_iter().zip(tail_sums.chunks_exact(latent_dim))
            {
                let first = latent.len();
                latent.resize(first + gradients.len() * latent_dim, 0.0);
                let out = latent[first..].par_chunks_exact_mut(latent_dim);
                out.zip(&gradients).for_each(|(out, gradient)| {
                    gradient.to_latent(beta, tail_sum, out);
                });
                others.push(other);
            }
        }
        Ok((Matrix::new(latent, latent_dim)?, others))
    }

    /// Visits up to [`dense::GROUP`] rows from `start` on. Each visitor may overwrite its row of
    /// `scores` `[GROUP, P]`.
    fn visit_group<T: Send>(
        &self,
        beta: &Matrix,
        rows: BatchRows<'_>,
        start: usize,
        scores: &mut Matrix,
        visit: impl Fn(usize, &Distribution, &mut [f32]) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let end = (start + dense::GROUP).min(rows.h.rows());
        match self.blocks_of(beta) {
            Some(blocks) => dense::scores_on(blocks, rows.h, start, end, scores)?,
            None => dense::scores(beta, rows.h, start, end, scores),
        }
        let visit = |(row, scores): (usize, &mut [f32])| {
            let excluded = self.sampling.excluded_of(rows.contexts[row]);
            let of_row = scores.iter().map(|&score| f64::from(score)).collect();
            let distribution = Distribution::new(of_row, excluded, self.sampling.slate_size)?;
            visit(row, &distribution, scores)
        };
        let visited: Vec<Result<T>> =
            (start..end).into_par_iter().zip(scores.par_rows_mut()).map(visit).collect();
        visited.into_iter().collect()
    }

    /// Checks that `rows` fit `beta`, and returns a buffer for the scores of a group, `[GROUP, P]`.
    fn buffer(&self, beta: &Matrix, rows: BatchRows<'_>) -> Result<Matrix> {
        if rows.h.cols() != beta.cols() {
            return Err(Error::Shape {
                what: "queries".into(),
                expected: format!("[N, {}]", beta.cols()),
                found: format!("[{}, {}]", rows.h.rows(), rows.h.cols()),
            });
        }
        rows.h.require_finite("query")?;
        check_slate_size(self.sampling.slate_size, beta.rows(), 0)?;
        Ok(Matrix::zeros(dense::GROUP, beta.rows()))
    }
}

impl SlatePolicy for PlackettLuce {
    fn sampling(&self) -> &Sampling {
        &self.sampling
    }

    fn sample(&self, rows: BatchRows<'_>) -> Result<Drawn> {
        let _span = trace_span!("sampling").entered();
        let slate_size = self.sampling.slate_size;
        let (scores, drawn) =
            self.latent_gradients(self.actions.beta(), rows, |row, distribution| {
                let slates = self.draw(distribution, rows, row);
                let score = |slate| ScoreGradient::log_prob(distribution, slate);
                let gradients = slates.chunks_exact(slate_size).map(score).collect();
                #[allow(clippy::cast_possible_truncation, reason = "they were f32 products")]
                let of_slates: Vec<f32> =
                    slates.iter().map(|&action| distribution.score(action) as f32).collect();
                Ok((gradients, (slates, of_slates)))
            })?; // [rows·S, L]
        let (slates, of_slates): (Vec<_>, Vec<_>) = drawn.into_iter().unzip();
        let slates = Slates::new(slate_size, slates.concat(), of_slates.concat());
        Ok(Drawn { slates, scores })
    }
}
