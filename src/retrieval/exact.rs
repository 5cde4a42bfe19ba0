//! Exact search: blocked products with a running top-K. A block of queries meets one panel of
//! actions after another; each panel's scores are scanned against the K-th best so far and then
//! forgotten, so memory is O(queries · K) whatever P is.

use std::sync::Arc;

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, Par};
use rayon::prelude::*;

use crate::embedding::ActionEmbeddings;
use crate::error::Result;
use crate::matrix::dot;
use crate::retrieval::{Queries, Retriever, Slates, check, is_excluded};

/// Numbers of β in a panel: 256 KB stay in a core's second-level cache while a block passes.
const PANEL_NUMBERS: usize = 1 << 16;
/// The most queries in a block: their scores against a panel stay in that cache too.
const BLOCK_QUERIES: usize = 128;
/// Scores compared with the K-th best at once; few groups hold any that exceed it.
const GROUP: usize = 16;

/// Scores every action for every query.
#[derive(Clone, Debug)]
pub struct Exact {
    actions: Arc<ActionEmbeddings>,
}

impl Exact {
    /// Searches among `actions`.
    #[must_use]
    pub fn new(actions: Arc<ActionEmbeddings>) -> Self {
        Self { actions }
    }

    /// β.
    #[must_use]
    pub fn actions(&self) -> &Arc<ActionEmbeddings> {
        &self.actions
    }

    /// The top K of queries `start..`, one for each K-chunk of `actions` and `scores`.
    fn search_block(
        &self,
        queries: Queries<'_>,
        start: usize,
        actions: &mut [u32],
        scores: &mut [f32],
    ) {
        let beta = self.actions.beta();
        let block = actions.len() / queries.slate_size;
        let panel = (PANEL_NUMBERS / beta.cols()).clamp(GROUP, 4096).min(beta.rows());
        let latent = queries.latent.view(start, start + block);
        let mut best = vec![Best::new(queries.slate_size); block];
        let mut products = vec![0.0; block * panel]; // [block, panel]

        for first in (0..beta.rows()).step_by(panel) {
            let last = (first + panel).min(beta.rows());
            let width = last - first;
            let products = &mut products[..block * width];
            let out = MatMut::from_row_major_slice_mut(&mut *products, block, width);
            let panel = beta.view(first, last).transpose();
            // One thread: the blocks of queries are what runs in parallel.
            matmul(out, Accum::Replace, latent, panel, 1.0, Par::Seq);
            for (i, row) in products.chunks_exact(width).enumerate() {
                best[i].offer(row, first, queries.excluded_of(start + i));
            }
        }

        let rows =
            actions.chunks_mut(queries.slate_size).zip(scores.chunks_mut(queries.slate_size));
        for ((i, best), (actions, scores)) in best.iter().enumerate().zip(rows) {
            let found = best.entries.iter().map(|&(_, action)| action);
            rank(queries.latent.row(start + i), &self.actions, found, actions, scores);
        }
    }
}

impl Retriever for Exact {
    fn search(&self, queries: Queries<'_>) -> Result<Slates> {
        check(queries, self.actions.num_actions(), self.actions.latent_dim())?;
        let (count, slate_size) = (queries.latent.rows(), queries.slate_size);
        let mut actions = vec![0; count * slate_size];
        let mut scores = vec![0.0; count * slate_size];
        // Equal blocks, as many for each thread: none waits for the others' last one.
        let threads = rayon::current_num_threads();
        let blocks = threads * count.div_ceil(threads * BLOCK_QUERIES).max(1);
        let block = count.div_ceil(blocks).max(1);
        actions
            .par_chunks_mut(block * slate_size)
            .zip(scores.par_chunks_mut(block * slate_size))
            .enumerate()
            .for_each(|(i, (actions, scores))| {
                self.search_block(queries, i * block, actions, scores);
            });
        Ok(Slates::new(slate_size, actions, scores))
    }
}

/// Writes `found` best first, with `hᵀβ_a` summed in one fixed order: the scores of a query do not
/// depend on the block it came in, nor on the index that found them.
pub(super) fn rank(
    query: &[f32],
    embeddings: &ActionEmbeddings,
    found: impl Iterator<Item = u32>,
    actions: &mut [u32],
    scores: &mut [f32],
) {
    let mut ranked: Vec<(f32, u32)> =
        found.map(|action| (dot(query, embeddings.row(action)), action)).collect();
    // `+ 0.0` makes a negative zero positive: `total_cmp` tells them apart.
    ranked.sort_unstable_by(|a, b| (b.0 + 0.0).total_cmp(&(a.0 + 0.0)).then(a.1.cmp(&b.1)));
    for ((score, action), (to_action, to_score)) in
        ranked.into_iter().zip(actions.iter_mut().zip(scores))
    {
        (*to_action, *to_score) = (action, score);
    }
}

/// The K best (score, action) seen so far, best first.
#[derive(Clone)]
struct Best {
    entries: Vec<(f32, u32)>,
    slate_size: usize,
}

impl Best {
    fn new(slate_size: usize) -> Self {
        Self { entries: Vec::with_capacity(slate_size + 1), slate_size }
    }

    /// What a score must exceed. Actions come in ascending order, so an equal score belongs to a
    /// higher action and loses.
    fn threshold(&self) -> f32 {
        if self.entries.len() < self.slate_size {
            return f32::NEG_INFINITY;
        }
        self.entries[self.slate_size - 1].0
    }

    /// Offers the scores of the actions from `first` on.
    fn offer(&mut self, scores: &[f32], first: usize, excluded: &[u32]) {
        for (group, scores) in scores.chunks(GROUP).enumerate() {
            let threshold = self.threshold();
            // Counting instead of stopping at the first lets the compiler compare in vectors.
            let passing: u32 = scores.iter().map(|&score| u32::from(score > threshold)).sum();
            if passing == 0 && self.entries.len() == self.slate_size {
                continue;
            }
            for (i, &score) in scores.iter().enumerate() {
                let full = self.entries.len() == self.slate_size;
                if full && score <= self.threshold() {
                    continue;
                }
                #[allow(clippy::cast_possible_truncation, reason = "actions are numbered by u32")]
                let action = (first + group * GROUP + i) as u32;
                if !is_excluded(excluded, action) {
                    let at = self.entries.partition_point(|&(other, _)| other >= score);
                    self.entries.insert(at, (score, action));
                    self.entries.truncate(self.slate_size);
                }
            }
        }
    }
}

/// Standard normals `[rows, cols]` for tests.
#[cfg(test)]
pub(super) fn normals(seed: u64, rows: usize, cols: usize) -> crate::matrix::Matrix {
    let mut matrix = crate::matrix::Matrix::zeros(rows, cols);
    let mut stream = crate::seed::Seed(seed).stream(crate::seed::Purpose::Synthetic, 1, 0);
    stream.fill_normals(matrix.as_mut_slice());
    matrix
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::matrix::Matrix;

    /// Every score, sorted.
    fn brute_force(embeddings: &ActionEmbeddings, queries: Queries<'_>) -> Slates {
        let (mut actions, mut scores) = (Vec::new(), Vec::new());
        for (i, query) in queries.latent.iter_rows().enumerate() {
            let mut all: Vec<(f32, u32)> = (0_u32..)
                .zip(embeddings.beta().iter_rows())
                .filter(|(action, _)| !queries.excluded_of(i).contains(action))
                .map(|(action, row)| (dot(query, row), action))
                .collect();
            all.sort_by(|a, b| b.0.partial_cmp(&a.0).unwrap().then(a.1.cmp(&b.1)));
            actions.extend(all[..queries.slate_size].iter().map(|entry| entry.1));
            scores.extend(all[..queries.slate_size].iter().map(|entry| entry.0));
        }
        Slates::new(queries.slate_size, actions, scores)
    }

    /// Small integers: every product is exact, and ties abound.
    fn integers(seed: u64, rows: usize, cols: usize) -> Matrix {
        let mut matrix = normals(seed, rows, cols);
        matrix.as_mut_slice().iter_mut().for_each(|value| *value = value.round());
        matrix
    }

    fn embeddings(beta: Matrix) -> Arc<ActionEmbeddings> {
        Arc::new(ActionEmbeddings::new(beta).unwrap())
    }

    #[test]
    fn search_is_brute_force_with_ties_and_exclusion() {
        // 5000 × 40: three whole panels of 1638 and a ragged one; 1 and 7 actions: less than a group.
        for (num_actions, latent_dim) in [(5000, 40), (1000, 3), (7, 3), (1, 1)] {
            let actions = embeddings(integers(1, num_actions, latent_dim));
            for count in [1, 3, 33] {
                let latent = integers(2, count, latent_dim);
                let lists: Vec<Vec<u32>> = (0..count)
                    .map(|i| {
                        (0..u32::try_from(num_actions).unwrap())
                            .step_by(i % 5 + 2)
                            .skip(1)
                            .collect()
                    })
                    .collect();
                let rows: Vec<&[u32]> = lists.iter().map(Vec::as_slice).collect();
                for slate_size in [1, 5, 100, 400] {
                    for excluded in [None, Some(rows.as_slice())] {
                        let queries = Queries { latent: &latent, slate_size, excluded };
                        let Ok(found) = Exact::new(actions.clone()).search(queries) else {
                            assert!(slate_size > num_actions / 2);
                            continue;
                        };
                        assert_eq!(found, brute_force(&actions, queries));
                    }
                }
            }
        }
    }

    #[test]
    fn a_query_is_answered_alike_alone_and_in_a_batch() {
        let actions = embeddings(normals(1, 3000, 50));
        let latent = normals(2, 64, 50);
        let exact = Exact::new(actions);
        let all =
            exact.search(Queries { latent: &latent, slate_size: 20, excluded: None }).unwrap();
        for i in 0..64 {
            let one = latent.select(&[i]);
            let one =
                exact.search(Queries { latent: &one, slate_size: 20, excluded: None }).unwrap();
            assert_eq!(one.slate(0), all.slate(i as usize));
            assert_eq!(one.scores(0), all.scores(i as usize));
        }
    }

    #[test]
    fn a_zero_query_gets_the_lowest_actions_that_are_not_excluded() {
        let actions = embeddings(normals(1, 500, 10));
        let latent = Matrix::zeros(1, 10);
        let queries = Queries { latent: &latent, slate_size: 3, excluded: Some(&[&[0, 2]]) };
        let found = Exact::new(actions).search(queries).unwrap();
        assert_eq!((found.slate(0), found.scores(0)), (&[1, 3, 4][..], &[0.0; 3][..]));
    }

    #[test]
    fn more_actions_than_there_are_is_an_error() {
        let exact = Exact::new(embeddings(normals(1, 10, 4)));
        let latent = normals(2, 2, 4);
        let search = |slate_size, excluded| {
            exact.search(Queries { latent: &latent, slate_size, excluded }).map(|found| found.len())
        };
        assert!(matches!(search(11, None), Err(Error::SlateTooLarge { available: 10, .. })));
        let excluded: [&[u32]; 2] = [&[], &[1, 5]];
        let error = search(9, Some(&excluded)).unwrap_err().to_string();
        assert!(error.contains("only 8 can be chosen (2 of 10 are excluded)"), "{error}");
        assert_eq!(search(8, Some(&excluded)).unwrap(), 2);
        assert!(matches!(search(0, None), Err(Error::SlateTooLarge { .. })));
    }

    #[test]
    fn queries_that_do_not_fit_are_refused() {
        let exact = Exact::new(embeddings(normals(1, 10, 4)));
        let search = |latent: &Matrix, excluded| {
            exact.search(Queries { latent, slate_size: 2, excluded }).map(|found| found.len())
        };
        assert!(matches!(search(&normals(2, 2, 5), None), Err(Error::Shape { .. })));
        assert!(matches!(search(&normals(2, 2, 4), Some(&[&[]])), Err(Error::Shape { .. })));
        let mut latent = normals(2, 2, 4);
        latent.row_mut(1)[2] = f32::NAN;
        let error = search(&latent, None).unwrap_err();
        assert!(matches!(error, Error::NotFinite { row: 1, column: 2, .. }));
        assert_eq!(search(&Matrix::new(Vec::new(), 4).unwrap(), None).unwrap(), 0);
    }
}
