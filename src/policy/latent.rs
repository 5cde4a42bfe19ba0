//! LGP and LRP, latent perturbations (section 3 and the appendix "LRP"):
//! `A_K ~ argsort^K (h + σε)ᵀβ_a` with ε of a density q. The score function of the perturbed query
//! is `∇_h log q((h' − h)/σ) = −(∇ log q)(ε)/σ`, for Gaussian noise ε/σ.

use std::sync::Arc;

use rayon::prelude::*;
use tracing::trace_span;

use super::{BatchRows, Coupling, Drawn, Noise, Sampling, Scale, SlatePolicy};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::retrieval::{Candidates, Queries, Retriever, Slates};
use crate::seed::Purpose;

/// A policy that perturbs the query and retrieves.
#[derive(Clone, Debug)]
pub struct LatentPerturbation {
    scale: Scale,
    noise: Arc<dyn Noise>,
    coupling: Coupling,
    retriever: Arc<dyn Retriever>,
    candidates: Option<Candidates>,
    sampling: Sampling,
}

/// The perturbed queries of some rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Perturbed {
    /// ε, `[rows · S, L]`.
    pub noise: Matrix,
    /// h + σε, `[rows · S, L]`.
    pub queries: Matrix,
    /// σ of each row, `[rows]`.
    pub sigma: Vec<f32>,
}

impl LatentPerturbation {
    /// A policy with independent components of `noise`, scaled by `scale`, that retrieves through
    /// `retriever`.
    ///
    /// # Errors
    /// [`crate::Error::Setting`] for a coupling that the noise or S does not have.
    pub fn new(
        scale: Scale,
        noise: Arc<dyn Noise>,
        coupling: Coupling,
        retriever: Arc<dyn Retriever>,
        sampling: Sampling,
    ) -> Result<Self> {
        sampling.validate()?;
        coupling.validate(noise.as_ref(), sampling.num_samples)?;
        Ok(Self { scale, noise, coupling, retriever, candidates: None, sampling })
    }

    /// The same with one search for all samples of a query, among `candidates` of the query itself.
    #[must_use]
    pub fn with_candidates(self, candidates: Candidates) -> Self {
        Self { candidates: Some(candidates), ..self }
    }

    /// The slates of the perturbed queries of `rows`, `[rows · S, K]`.
    ///
    /// # Errors
    /// Those of the retriever.
    pub fn search(&self, rows: BatchRows<'_>, perturbed: &Matrix) -> Result<Slates> {
        let slate_size = self.sampling.slate_size;
        match &self.candidates {
            None => {
                let excluded = self.excluded(rows.contexts, self.sampling.num_samples);
                let excluded = excluded.as_deref();
                self.retriever.search(Queries { latent: perturbed, slate_size, excluded })
            }
            Some(candidates) => {
                let excluded = self.excluded(rows.contexts, 1);
                let excluded = excluded.as_deref();
                candidates.search(Queries { latent: rows.h, slate_size, excluded }, perturbed)
            }
        }
    }

    /// h + σε of every sample, each row's noise from a stream of its own.
    #[must_use]
    pub fn perturbed(&self, rows: BatchRows<'_>) -> Perturbed {
        let (s, l) = (self.sampling.num_samples, rows.h.cols());
        let mut noise = Matrix::zeros(rows.h.rows() * s, l);
        noise.as_mut_slice().par_chunks_exact_mut(s * l).enumerate().for_each(|(row, block)| {
            let mut stream = rows.stream(self.sampling.seed, Purpose::Noise, row);
            self.coupling.fill(self.noise.as_ref(), &mut stream, l, block);
        });
        let sigma: Vec<f32> =
            rows.h.iter_rows().map(|h| self.scale.sigma(h) * rows.sigma_factor).collect();
        let mut queries = Matrix::zeros(noise.rows(), l);
        queries.par_rows_mut().enumerate().for_each(|(at, query)| {
            let (h, sigma) = (rows.h.row(at / s), sigma[at / s]);
            for ((query, h), noise) in query.iter_mut().zip(h).zip(noise.row(at)) {
                *query = h + sigma * noise;
            }
        });
        Perturbed { noise, queries, sigma }
    }

    /// The actions that each of `times` queries of each row must not show, if any.
    fn excluded(&self, contexts: &[u32], times: usize) -> Option<Vec<&[u32]>> {
        let sessions = self.sampling.excluded.as_ref()?;
        let of = |&context| std::iter::repeat_n(sessions.observed.of(context), times);
        Some(contexts.iter().flat_map(of).collect())
    }
}

impl SlatePolicy for LatentPerturbation {
    fn sampling(&self) -> &Sampling {
        &self.sampling
    }

    fn sample(&self, rows: BatchRows<'_>) -> Result<Drawn> {
        let s = self.sampling.num_samples;
        let span = trace_span!("noise").entered();
        let Perturbed { noise: mut scores, queries, sigma } = self.perturbed(rows);
        drop(span);
        let span = trace_span!("retrieval").entered();
        let slates = self.search(rows, &queries)?; // [rows·S, K]
        drop(span);
        let _span = trace_span!("estimator").entered();
        let mut sigma_scores = vec![0.0; scores.rows()];
        scores.par_rows_mut().zip(&mut sigma_scores).enumerate().for_each(
            |(at, (noise, sigma_score))| {
                *sigma_score = self.score(noise, sigma[at / s]);
                self.scale.project(rows.h.row(at / s), noise);
            },
        );
        Ok(Drawn { slates, scores, sigma_scores })
    }

    fn check_leave_one_out(&self) -> Result<()> {
        self.coupling.check_leave_one_out(self.sampling.num_samples)
    }
}

impl LatentPerturbation {
    /// Turns ε `[L]` into the score with respect to h, and returns that with respect to log σ,
    /// `−Σ_i (1 + ε_i (log q)'(ε_i))`.
    fn score(&self, noise: &mut [f32], sigma: f32) -> f32 {
        let mut sum = 0.0;
        for value in noise {
            #[allow(clippy::cast_possible_truncation, reason = "a score is as precise as its ε")]
            let slope = self.noise.score(f64::from(*value)) as f32;
            sum -= 1.0 + *value * slope;
            *value = -slope / sigma;
        }
        sum
    }
}
