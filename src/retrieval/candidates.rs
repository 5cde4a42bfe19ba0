//! Shared candidates take centres and the perturbed queries around them, search once for the M best
//! actions of each centre, and rank these M for each of its queries by a small product. Actions outside
//! the M are missed; audits measure how many, which depends on the noise. Where a GPU searches, it ranks,
//! too: it makes the products of many centres at once.

use std::sync::Arc;

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};
use rayon::prelude::*;

use crate::device::{floats, rows_to_device};
use crate::embedding::{ActionEmbeddings, Blocks};
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::retrieval::best::{best_of_scores, key, unpack};
use crate::retrieval::{Queries, Retriever, Slates, check};

/// Searches once for all queries around a centre.
#[derive(Clone, Debug)]
pub struct Candidates {
    retriever: Arc<dyn Retriever>,
    actions: Arc<ActionEmbeddings>,
    count: usize,
}

impl Candidates {
    /// Finds the `count` (M, at least 2K) best of `actions` by `retriever`, fewer where exclusion
    /// leaves fewer.
    #[must_use]
    pub fn new(
        retriever: Arc<dyn Retriever>,
        actions: Arc<ActionEmbeddings>,
        count: usize,
    ) -> Self {
        Self { retriever, actions, count }
    }

    /// The most candidates of a centre, M.
    #[must_use]
    pub fn most(&self, slate_size: usize) -> usize {
        self.count.max(2 * slate_size).min(self.actions.num_actions())
    }

    /// The candidates of each of `centres` `[N, L]`, `[N, M]`.
    ///
    /// # Errors
    /// Fails if the retriever fails.
    pub fn pools(&self, centres: Queries<'_>) -> Result<Slates> {
        let (count, slate_size) = (centres.latent.rows(), centres.slate_size);
        let num_actions = self.actions.num_actions();
        check(centres, num_actions, self.actions.latent_dim())?;
        let excluded = (0..count).map(|i| centres.excluded_of(i).len()).max().unwrap_or(0);
        let pool_size = self.most(slate_size).min(num_actions - excluded);
        self.retriever.search(Queries { slate_size: pool_size, ..centres })
    }

    /// The vectors of some actions, `[M, L]`.
    #[must_use]
    pub fn vectors(&self, actions: &[u32]) -> Matrix {
        self.actions.beta().select(actions)
    }

    /// The top K of each of `queries` `[N · S, L]` among the candidates of its centre, of which there are
    /// N in `pools`. S queries belong to each.
    ///
    /// # Errors
    /// [`Error::Shape`] when N does not divide the number of queries; [`Error::NotFinite`] for a query that
    /// is not finite; fails if the device fails.
    pub fn rank(&self, pools: &Slates, queries: &Matrix, slate_size: usize) -> Result<Slates> {
        let (count, latent_dim) = (pools.len(), self.actions.latent_dim());
        if queries.cols() != latent_dim || !queries.rows().is_multiple_of(count.max(1)) {
            return Err(Error::Shape {
                what: "queries".into(),
                expected: format!("[{count} · S, {latent_dim}]"),
                found: format!("[{}, {}]", queries.rows(), queries.cols()),
            });
        }
        let samples = queries.rows() / count.max(1);
        if samples == 0 {
            return Ok(Slates::new(slate_size, Vec::new(), Vec::new()));
        }
        if let Some(blocks) = self.retriever.blocks() {
            queries.require_finite("query")?;
            return self.rank_on_device(blocks, pools, queries, slate_size);
        }
        let mut actions = vec![0; queries.rows() * slate_size];
        let mut scores = vec![0.0; queries.rows() * slate_size];
        let finite = actions
            .par_chunks_mut(samples * slate_size)
            .zip(scores.par_chunks_mut(samples * slate_size))
            .enumerate()
            .map(|(row, (actions, scores))| {
                let latent = queries.view(row * samples, (row + 1) * samples);
                self.rank_pool(pools.slate(row), latent, actions, scores)
            })
            .reduce(|| true, |all, one| all && one);
        if !finite {
            queries.require_finite("query")?;
        }
        Ok(Slates::new(slate_size, actions, scores))
    }

    /// The top K out of the pool of its centre for each of `queries` `[N · S, L]`. Equal scores go to the
    /// lower action.
    fn rank_on_device(
        &self,
        blocks: &Blocks,
        pools: &Slates,
        queries: &Matrix,
        slate_size: usize,
    ) -> Result<Slates> {
        let (pool_size, latent_dim) = (pools.slate_size(), queries.cols());
        let samples = queries.rows() / pools.len();
        let mut actions = vec![0; queries.rows() * slate_size];
        let mut scores = vec![0.0; actions.len()];
        // Neither the vectors of the pools nor the products are larger than a block of products.
        let most = blocks.products() / (pool_size * samples.max(latent_dim));
        for first in (0..pools.len()).step_by(most.max(1)) {
            let count = most.max(1).min(pools.len() - first);
            let pooled: Vec<Vec<u32>> = (first..first + count)
                .map(|row| {
                    let mut pool = pools.slate(row).to_vec();
                    pool.sort_unstable();
                    pool
                })
                .collect();
            let beta = self.vectors(&pooled.concat());
            let rows = first * samples * latent_dim..(first + count) * samples * latent_dim;
            let up = |numbers: &[f32], length: usize| {
                let rows = rows_to_device(numbers, latent_dim, blocks.device());
                rows.reshape([count, length, latent_dim])
            };
            let products = blocks.attempt(|| {
                let latent = up(&queries.as_slice()[rows.clone()], samples);
                floats(latent.matmul(up(beta.as_slice(), pool_size).swap_dims(1, 2)))
            })?; // [count, S, M]
            let rows = first * samples * slate_size..(first + count) * samples * slate_size;
            actions[rows.clone()]
                .par_chunks_mut(slate_size)
                .zip(scores[rows].par_chunks_mut(slate_size))
                .zip(products.par_chunks(pool_size))
                .enumerate()
                .for_each(|(at, ((actions, scores), products))| {
                    best_of_scores(products, &[], actions, scores);
                    let pool = &pooled[at / samples];
                    for place in actions {
                        *place = pool[*place as usize];
                    }
                });
        }
        Ok(Slates::new(slate_size, actions, scores))
    }

    /// Writes the top K out of `pool` for each of the queries `latent` `[S, L]`, query after query.
    /// True if all scores are finite.
    fn rank_pool(
        &self,
        pool: &[u32],
        latent: MatRef<'_, f32>,
        actions: &mut [u32],
        scores: &mut [f32],
    ) -> bool {
        let samples = latent.nrows();
        let beta = self.vectors(pool); // [M, L]
        let mut products = vec![0.0; samples * pool.len()]; // [S, M]
        let out = MatMut::from_row_major_slice_mut(&mut products, samples, pool.len());
        let pooled = beta.view(0, pool.len()).transpose();
        matmul(out, Accum::Replace, latent, pooled, 1.0, Par::Seq);
        Self::choose(pool, &products, actions, scores);
        products.iter().all(|product| product.is_finite())
    }

    /// Writes the top K out of `pool` `[M]` for each of `scores` `[S, M]`, slate after slate. Equal scores
    /// go to the lower action.
    pub(crate) fn choose(
        pool: &[u32],
        scores: &[f32],
        actions: &mut [u32],
        best_scores: &mut [f32],
    ) {
        let slate_size = actions.len() / (scores.len() / pool.len());
        let mut best = Vec::with_capacity(slate_size + 1);
        let slates =
            actions.chunks_exact_mut(slate_size).zip(best_scores.chunks_exact_mut(slate_size));
        for (scores, (actions, best_scores)) in scores.chunks_exact(pool.len()).zip(slates) {
            best.clear();
            // The pool comes best first for the centre, so few keys are inserted after the first K.
            for (&score, &action) in scores.iter().zip(pool) {
                let key = key(score, action);
                if best.len() < slate_size || key < best[slate_size - 1] {
                    best.insert(best.partition_point(|other| *other < key), key);
                    best.truncate(slate_size);
                }
            }
            for (key, (action, score)) in best.iter().zip(actions.iter_mut().zip(best_scores)) {
                (*score, *action) = unpack(*key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retrieval::exact::normals;
    use crate::retrieval::{Exact, overlap};

    const SAMPLES: usize = 6;

    /// What `candidates` find for `queries` around the centres that are `asked` about.
    fn ranked(candidates: &Candidates, asked: Queries<'_>, queries: &Matrix) -> Result<Slates> {
        candidates.rank(&candidates.pools(asked)?, queries, asked.slate_size)
    }

    /// Queries around each of `centres`, off by `noise` times a standard normal.
    fn around(centres: &Matrix, noise: f32) -> Matrix {
        let mut queries = normals(9, centres.rows() * SAMPLES, centres.cols());
        for at in 0..queries.rows() {
            let centre = centres.row(at / SAMPLES).to_vec();
            for (value, centre) in queries.row_mut(at).iter_mut().zip(centre) {
                *value = centre + noise * *value;
            }
        }
        queries
    }

    fn setup() -> (Arc<ActionEmbeddings>, Arc<Exact>, Matrix, Vec<Vec<u32>>) {
        let actions = Arc::new(ActionEmbeddings::new(normals(1, 2000, 16)).unwrap());
        let exact = Arc::new(Exact::new(Arc::clone(&actions)));
        let excluded = (0..8).map(|i| (i..2000).step_by(3 + i as usize).collect()).collect();
        (actions, exact, normals(2, 8, 16), excluded)
    }

    /// The answer to every query by itself.
    fn by_itself(exact: &Exact, queries: &Matrix, excluded: &[Vec<u32>]) -> Slates {
        let rows: Vec<&[u32]> =
            excluded.iter().flat_map(|row| std::iter::repeat_n(row.as_slice(), SAMPLES)).collect();
        exact.search(Queries { latent: queries, slate_size: 5, excluded: Some(&rows) }).unwrap()
    }

    #[test]
    fn all_actions_as_candidates_are_an_exact_search() {
        let (actions, exact, centres, excluded) = setup();
        let queries = around(&centres, 1.0);
        let rows: Vec<&[u32]> = excluded.iter().map(Vec::as_slice).collect();
        let asked = Queries { latent: &centres, slate_size: 5, excluded: Some(&rows) };
        let all = ranked(&Candidates::new(exact.clone(), actions, 2000), asked, &queries).unwrap();
        // The row with the most exclusions decides how many candidates there are for all.
        let expected = by_itself(&exact, &queries, &excluded);
        assert!(overlap(&all, &expected) > 0.99);
        assert!((0..all.len()).all(|at| {
            let shown = all.slate(at);
            shown.len() == 5 && !shown.iter().any(|action| excluded[at / SAMPLES].contains(action))
        }));
        let none: Vec<Vec<u32>> = vec![Vec::new(); 8];
        let asked = Queries { latent: &centres, slate_size: 5, excluded: None };
        let all = Candidates::new(exact.clone(), Arc::clone(exact.actions()), 2000);
        let (all, expected) =
            (ranked(&all, asked, &queries).unwrap(), by_itself(&exact, &queries, &none));
        for at in 0..all.len() {
            assert_eq!(all.slate(at), expected.slate(at));
            let scores = all.scores(at).iter().zip(expected.scores(at));
            assert!(scores.into_iter().all(|(a, b)| (a - b).abs() < 1e-5));
        }
    }

    #[test]
    fn few_candidates_cover_small_noise_and_miss_some_of_large() {
        let (actions, exact, centres, _) = setup();
        let none: Vec<Vec<u32>> = vec![Vec::new(); 8];
        let candidates = Candidates::new(exact.clone(), actions, 100);
        let asked = Queries { latent: &centres, slate_size: 5, excluded: None };
        let covered = |noise| {
            let queries = around(&centres, noise);
            let found = ranked(&candidates, asked, &queries).unwrap();
            overlap(&found, &by_itself(&exact, &queries, &none))
        };
        assert!((covered(0.1) - 1.0).abs() < 1e-12);
        assert!(covered(3.0) < 0.9);
    }

    #[test]
    fn queries_that_are_not_around_the_centres_are_refused() {
        let (actions, exact, centres, _) = setup();
        let candidates = Candidates::new(exact, actions, 100);
        let asked = Queries { latent: &centres, slate_size: 5, excluded: None };
        for (rows, cols) in [(9, 16), (16, 15)] {
            let error = ranked(&candidates, asked, &normals(3, rows, cols)).unwrap_err();
            assert!(matches!(error, Error::Shape { .. }), "{error}");
        }
        assert!(
            ranked(&candidates, asked, &Matrix::new(Vec::new(), 16).unwrap()).unwrap().is_empty()
        );
    }
}
