//! LGP and LRP take a query, add noise S times and retrieve a slate each time (section 3 and the
//! appendix "LRP"): `A_K = argsort^K (h + σε)ᵀβ_a`, where ε has the density q. The score function of
//! the perturbed query is `∇_h log q((h' − h)/σ) = −(∇ log q)(ε)/σ`, for Gaussian noise ε/σ. The 1/σ
//! is common to a query's samples and multiplies their sum. Where the samples of a query share candidates,
//! the sum of Gaussian scores is projected on the span of their vectors, which leaves its mean as it is.

use std::sync::Arc;

use rayon::prelude::*;
use tracing::trace_span;

use super::{BatchRows, Drawn, Noise, Sampling, Scale, SlatePolicy, span};
use crate::error::Result;
use crate::matrix::{Matrix, Spare, rows_worth_a_fork};
use crate::retrieval::{Candidates, Queries, Retriever, Slates, excluded_lists};
use crate::seed::Purpose;

/// A policy that perturbs the query and retrieves.
#[derive(Clone, Debug)]
pub struct LatentPerturbation {
    scale: Scale,
    noise: Arc<dyn Noise>,
    retriever: Arc<dyn Retriever>,
    candidates: Option<Candidates>,
    sampling: Sampling,
    spare: Spare,
}

/// The perturbed queries of some rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Perturbed {
    /// h + σε, `[rows · S, L]`.
    pub queries: Matrix,
    /// −(∇ log q)(ε), `[rows · S, L]`.
    pub scores: Matrix,
}

impl LatentPerturbation {
    /// A policy that adds `noise` times the σ of `scale` and searches with `retriever`.
    ///
    /// # Errors
    /// [`crate::Error::Setting`] when S or K is 0.
    pub fn new(
        scale: Scale,
        noise: Arc<dyn Noise>,
        retriever: Arc<dyn Retriever>,
        sampling: Sampling,
    ) -> Result<Self> {
        sampling.validate()?;
        Ok(Self { scale, noise, retriever, candidates: None, sampling, spare: Spare::default() })
    }

    /// Searches once for each query: its samples choose among the `candidates` of the query itself.
    #[must_use]
    pub fn with_candidates(self, candidates: Candidates) -> Self {
        Self { candidates: Some(candidates), ..self }
    }

    /// The slates of the perturbed queries of `rows`, `[rows · S, K]`, and the candidates `[rows, M]` among
    /// which they were chosen, if queries share any.
    ///
    /// # Errors
    /// Fails if the retriever fails.
    pub fn search(
        &self,
        rows: BatchRows<'_>,
        perturbed: &Matrix,
    ) -> Result<(Slates, Option<Slates>)> {
        let slate_size = self.sampling.slate_size;
        let excluding = self.sampling.excluded.as_deref();
        match &self.candidates {
            None => {
                let samples = self.sampling.num_samples;
                let excluded = excluded_lists(excluding, rows.contexts, samples);
                let excluded = excluded.as_deref();
                let found =
                    self.retriever.search(Queries { latent: perturbed, slate_size, excluded })?;
                Ok((found, None))
            }
            Some(candidates) => {
                let excluded = excluded_lists(excluding, rows.contexts, 1);
                let excluded = excluded.as_deref();
                let pools = candidates.pools(Queries { latent: rows.h, slate_size, excluded })?;
                Ok((candidates.rank(&pools, perturbed, slate_size)?, Some(pools)))
            }
        }
    }

    /// The perturbed queries and their scores; each row draws its noise from its own stream.
    #[must_use]
    pub fn perturbed(&self, rows: BatchRows<'_>) -> Perturbed {
        let (s, l) = (self.sampling.num_samples, rows.h.cols());
        let mut queries = self.spare.take(rows.h.rows() * s, l);
        let mut scores = self.spare.take(queries.rows(), l);
        let blocks = queries.as_mut_slice().par_chunks_exact_mut(s * l);
        blocks
            .zip(scores.as_mut_slice().par_chunks_exact_mut(s * l))
            .with_min_len(rows_worth_a_fork(s * l))
            .enumerate()
            .for_each(|(row, (queries, noise))| {
                let mut stream = rows.stream(self.sampling.seed, Purpose::Noise, row);
                self.noise.fill(&mut stream, noise);
                let (h, sigma) = (rows.h.row(row), self.sigma(rows, row));
                for (query, noise) in queries.chunks_exact_mut(l).zip(noise.chunks_exact(l)) {
                    for ((query, h), noise) in query.iter_mut().zip(h).zip(noise) {
                        *query = h + sigma * noise;
                    }
                }
                self.noise.scores(noise);
            });
        Perturbed { queries, scores }
    }

    /// σ of one of `rows`.
    fn sigma(&self, rows: BatchRows<'_>, row: usize) -> f32 {
        self.scale.sigma(rows.h.row(row))
    }
}

impl SlatePolicy for LatentPerturbation {
    fn sampling(&self) -> &Sampling {
        &self.sampling
    }

    fn sample(&self, rows: BatchRows<'_>) -> Result<Drawn> {
        let span = trace_span!("noise").entered();
        let Perturbed { queries, scores } = self.perturbed(rows);
        drop(span);
        let _span = trace_span!("retrieval").entered();
        let (slates, pools) = self.search(rows, &queries)?; // [rows·S, K], [rows, M]
        self.spare.give_back(queries);
        Ok(Drawn { slates, scores, pools })
    }

    fn to_gradient(
        &self,
        rows: BatchRows<'_>,
        row: usize,
        pools: Option<&Slates>,
        sum: &mut [f32],
    ) {
        // As many vectors as dimensions span everything.
        if let (Some(candidates), Some(pools)) = (&self.candidates, pools)
            && pools.slate_size() < sum.len()
            && self.noise.has_independent_parts()
            && sum.iter().any(|score| *score != 0.0)
        {
            span::project(&candidates.vectors(pools.slate(row)), sum);
        }
        let sigma = self.sigma(rows, row);
        for score in &mut *sum {
            *score /= sigma;
        }
        self.scale.project(rows.h.row(row), sum);
    }

    fn reuse(&self, scores: Matrix) {
        self.spare.give_back(scores);
    }
}
