//! LGP and LRP take a query, add noise S times and retrieve a slate each time (section 3 and the
//! appendix "LRP"): `A_K = argsort^K (h + σε)ᵀβ_a`, where ε has the density q. The score function of
//! the perturbed query is `∇_h log q((h' − h)/σ) = −(∇ log q)(ε)/σ`, for Gaussian noise ε/σ. The 1/σ
//! is common to a query's samples and multiplies their sum. Where the samples of a query share fewer
//! candidates than ε has numbers, Gaussian noise is drawn in the candidates' products with it (`span`).

use std::sync::Arc;

use rayon::prelude::*;
use tracing::trace_span;

use super::{BatchRows, Drawn, Noise, Sampling, Scale, SlatePolicy, Span};
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

    /// The slates of the perturbed queries of `rows`, `[rows · S, K]`.
    ///
    /// # Errors
    /// Fails if the retriever fails.
    pub fn search(&self, rows: BatchRows<'_>, perturbed: &Matrix) -> Result<Slates> {
        let slate_size = self.sampling.slate_size;
        if let Some(candidates) = &self.candidates {
            return candidates.rank(&self.pools(candidates, rows)?, perturbed, slate_size);
        }
        let excluding = self.sampling.excluded.as_deref();
        let excluded = excluded_lists(excluding, rows.contexts, self.sampling.num_samples);
        let excluded = excluded.as_deref();
        self.retriever.search(Queries { latent: perturbed, slate_size, excluded })
    }

    /// The `candidates` of `rows`, `[rows, M]`.
    fn pools(&self, candidates: &Candidates, rows: BatchRows<'_>) -> Result<Slates> {
        let Sampling { slate_size, excluded, .. } = &self.sampling;
        let excluded = excluded_lists(excluded.as_deref(), rows.contexts, 1);
        let excluded = excluded.as_deref();
        candidates.pools(Queries { latent: rows.h, slate_size: *slate_size, excluded })
    }

    /// Draws the scores of the `candidates` of each row, without the noise that makes them.
    fn draw_among(&self, candidates: &Candidates, rows: BatchRows<'_>) -> Result<Drawn> {
        let retrieval = trace_span!("retrieval").entered();
        let pools = self.pools(candidates, rows)?;
        drop(retrieval);
        let _span = trace_span!("noise").entered();
        let (s, k, m) = (self.sampling.num_samples, self.sampling.slate_size, pools.slate_size());
        let mut normals = self.spare.take(rows.h.rows() * s, m);
        let mut actions = vec![0; rows.h.rows() * s * k];
        let mut scores = vec![0.0; actions.len()];
        let spans = normals
            .as_mut_slice()
            .par_chunks_exact_mut(s * m)
            .zip(actions.par_chunks_exact_mut(s * k).zip(scores.par_chunks_exact_mut(s * k)))
            .enumerate()
            .map(|(row, (normals, (actions, scores)))| {
                let span = Span::of(candidates.vectors(pools.slate(row)))?;
                let mut stream = rows.stream(self.sampling.seed, Purpose::Noise, row);
                self.noise.fill(&mut stream, normals);
                let mut products = vec![0.0; normals.len()]; // [S, M]
                span.products(normals, &mut products);
                let (sigma, centre) = (self.sigma(rows, row), pools.scores(row));
                for products in products.chunks_exact_mut(m) {
                    products.iter_mut().zip(centre).for_each(|(x, h)| *x = h + sigma * *x);
                }
                Candidates::choose(pools.slate(row), &products, actions, scores);
                Ok(span)
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(Drawn { slates: Slates::new(k, actions, scores), scores: normals, spans: Some(spans) })
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
        if let Some(candidates) = &self.candidates
            && self.noise.has_independent_parts()
            && candidates.most(self.sampling.slate_size) < rows.h.cols()
        {
            return self.draw_among(candidates, rows);
        }
        let span = trace_span!("noise").entered();
        let Perturbed { queries, scores } = self.perturbed(rows);
        drop(span);
        let _span = trace_span!("retrieval").entered();
        let slates = self.search(rows, &queries)?;
        self.spare.give_back(queries);
        Ok(Drawn { slates, scores, spans: None })
    }

    fn to_gradient(
        &self,
        rows: BatchRows<'_>,
        row: usize,
        span: Option<&Span>,
        sum: Vec<f32>,
    ) -> Vec<f32> {
        let mut g = match span {
            Some(span) => span.gradient(&sum),
            None => sum,
        };
        let sigma = self.sigma(rows, row);
        for g in &mut g {
            *g /= sigma;
        }
        self.scale.project(rows.h.row(row), &mut g);
        g
    }

    fn reuse(&self, scores: Matrix) {
        self.spare.give_back(scores);
    }
}
