//! Plackett–Luce takes queries and returns slates drawn from `π_θ(A_K | x) = Π_k e^{f(a_k)} / Z_k` with
//! `f(a) = hᵀβ_a` (equation 5), and their score functions. It scores every action, O(P L) a context;
//! the S slates of a context share that pass. [`Distribution`] draws slates, [`gradient`]
//! differentiates by the scores, and a second pass over β leads from the scores to the query. Where β
//! lies on a GPU, both passes are one there, and the scores stay there.

mod dense;
pub mod distribution;
pub mod gradient;
mod on_device;
mod scores;

use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use tracing::trace_span;

use self::on_device::OnDevice;
use super::{BatchRows, Drawn, Sampling, SlatePolicy};
use crate::embedding::ActionEmbeddings;
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::retrieval::{Retriever, Slates, check_slate_size};
use crate::seed::{Purpose, Stream};

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
    on_device: Option<OnDevice>,
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
        Ok(Self { actions, draws, sampling, on_device: None })
    }

    /// Scores all actions on the GPU where `retriever` searches exactly, if it does on one.
    ///
    /// # Errors
    /// [`Error::Device`] if the device has too little memory.
    pub fn on(self, retriever: &Arc<dyn Retriever>) -> Result<Self> {
        Ok(Self { on_device: OnDevice::new(retriever, &self.sampling)?, ..self })
    }

    /// β.
    #[must_use]
    pub fn actions(&self) -> &Arc<ActionEmbeddings> {
        &self.actions
    }

    /// Extends `slate` to K actions, given the ones it has, the way this policy draws.
    pub fn complete(&self, distribution: &Distribution, slate: &mut Vec<u32>, stream: &mut Stream) {
        let slate_size = self.sampling.slate_size;
        match self.draws {
            SlateDraws::Gumbel => distribution.complete_gumbel(slate, slate_size, stream),
            _ => distribution.complete(slate, slate_size, stream),
        }
    }

    /// Draws the S slates of one row, `[S · K]`.
    #[must_use]
    pub fn draw(&self, distribution: &Distribution, rows: BatchRows<'_>, row: usize) -> Vec<u32> {
        let Sampling { num_samples, slate_size, seed, .. } = self.sampling;
        let mut stream = rows.stream(seed, Purpose::Slates, row);
        let mut slates = Vec::with_capacity(num_samples * slate_size);
        let mut slate = Vec::with_capacity(slate_size);
        for _ in 0..num_samples {
            self.complete(distribution, &mut slate, &mut stream);
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
        let mut all = Vec::with_capacity(rows.h.rows());
        self.visit_groups(beta, rows, false, visit, |visited, _| all.extend(visited))?;
        Ok(all)
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
        let (mut latent, mut others) = (Vec::new(), Vec::with_capacity(rows.h.rows()));
        self.visit_groups(beta, rows, true, visit, |visited, tail_sums| {
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
        })?;
        Ok((Matrix::new(latent, latent_dim)?, others))
    }

    /// Visits the rows group by group. `take` gets what the visits of a group returned and, if asked for,
    /// `Σ_tail e^{f_d − m} β_d` `[group, L]`.
    fn visit_groups<T: Send>(
        &self,
        beta: &Matrix,
        rows: BatchRows<'_>,
        with_sums: bool,
        visit: impl Fn(usize, &Distribution) -> Result<T> + Sync,
        mut take: impl FnMut(Vec<T>, &[f64]),
    ) -> Result<()> {
        if rows.h.cols() != beta.cols() {
            return Err(Error::Shape {
                what: "queries".into(),
                expected: format!("[N, {}]", beta.cols()),
                found: format!("[{}, {}]", rows.h.rows(), rows.h.cols()),
            });
        }
        rows.h.require_finite("query")?;
        let slate_size = self.sampling.slate_size;
        check_slate_size(slate_size, beta.rows(), 0)?;

        if let Some(device) = self.on_device.as_ref().filter(|device| device.has(beta)) {
            for group in groups(rows, device.group()) {
                let (distributions, sums) = device.distributions(rows, group.clone(), with_sums)?;
                let visited = group.into_par_iter().zip(&distributions);
                let visited: Vec<Result<T>> = visited.map(|(row, of)| visit(row, of)).collect();
                take(visited.into_iter().collect::<Result<_>>()?, &sums);
            }
            return Ok(());
        }
        let mut scores = Matrix::zeros(dense::GROUP, beta.rows());
        for group in groups(rows, dense::GROUP) {
            dense::scores(beta, rows.h, group.start, group.end, &mut scores);
            let visit = |(row, scores): (usize, &mut [f32])| {
                let excluded = self.sampling.excluded_of(rows.contexts[row]);
                let of_row = scores.iter().map(|&score| f64::from(score)).collect();
                let distribution = Distribution::new(of_row, excluded, slate_size)?;
                if with_sums {
                    // The weights of a row's tail replace its scores.
                    distribution.tail_weights(scores);
                }
                visit(row, &distribution)
            };
            let visited: Vec<Result<T>> =
                group.into_par_iter().zip(scores.par_rows_mut()).map(visit).collect();
            let visited = visited.into_iter().collect::<Result<_>>()?;
            let sums = if with_sums { dense::weighted_sums(beta, &scores) } else { Vec::new() };
            take(visited, &sums);
        }
        Ok(())
    }
}

/// The rows in groups of `size`; the last one may be smaller.
fn groups(rows: BatchRows<'_>, size: usize) -> impl Iterator<Item = Range<usize>> {
    let count = rows.h.rows();
    (0..count).step_by(size).map(move |start| start..(start + size).min(count))
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
        Ok(Drawn { slates, scores, spans: None })
    }
}
