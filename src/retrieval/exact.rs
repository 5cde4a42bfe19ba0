//! Exact search takes queries and returns their true top K, by blocked products with a running top K. A
//! block of queries meets one panel of actions after another; each panel's scores are compared with the
//! K-th best so far and then dropped, so memory is O(queries · K) whatever P is. Actions within
//! rounding of the K-th best are kept too and ranked by [`dot`](crate::matrix::dot) in the end: the
//! answer is the same on any machine and in any block.

use std::ops::Range;
use std::sync::Arc;

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};
use pulp::Arch;
use rayon::prelude::*;

use crate::embedding::ActionEmbeddings;
use crate::error::Result;
use crate::matrix::norm;
use crate::retrieval::best::{TopKeys, is_above, rank, unpack};
use crate::retrieval::{Queries, Retriever, Slates, check, is_excluded};

/// Actions in a panel: its scores stay in a core's second-level cache until they are compared.
const PANEL: usize = 256;
/// Queries come in groups that fill a vector of the widest machines.
const GROUP: usize = 16;
/// The fewest groups in a block. With fewer queries reading β takes longer than the arithmetic, so
/// threads share the actions instead.
const FEWEST_GROUPS: usize = 4;
/// The most groups in a block: whole tiles of faer's products, with AVX-512 (96) and AVX2 (24).
const MOST_GROUPS: usize = 12;

/// The most queries that are answered one by one. Each takes as long as reading β, less than half the
/// time of a group.
const FEW_QUERIES: usize = 2;

/// Scores every action for every query.
#[derive(Clone, Debug)]
pub struct Exact {
    actions: Arc<ActionEmbeddings>,
    largest_norm: f32,
}

impl Exact {
    /// Searches among `actions`.
    #[must_use]
    pub fn new(actions: Arc<ActionEmbeddings>) -> Self {
        let largest_norm = actions.beta().longest();
        Self { actions, largest_norm }
    }

    /// β.
    #[must_use]
    pub fn actions(&self) -> &Arc<ActionEmbeddings> {
        &self.actions
    }

    /// The largest change of the difference of two scores under another order of summation. Each of
    /// the four sums is off by at most `L ε / 2 ‖h‖ ‖β_a‖`, half of the allowance here.
    fn rounding(&self, query: &[f32]) -> f32 {
        4.0 * query.len() as f32 * f32::EPSILON * norm(query) * self.largest_norm
    }

    /// The largest norm of an action.
    pub(super) fn largest_norm(&self) -> f32 {
        self.largest_norm
    }

    /// The K best of `actions`, and the ones within rounding of them, for each of the queries `rows`.
    fn best_of(
        &self,
        queries: Queries<'_>,
        rows: Range<usize>,
        actions: Range<usize>,
    ) -> Vec<TopKeys> {
        if rows.len() <= FEW_QUERIES {
            rows.map(|row| self.best_of_one(queries, row, actions.clone())).collect()
        } else {
            self.best_of_block(queries, rows, actions)
        }
    }

    fn best_of_one(&self, queries: Queries<'_>, row: usize, actions: Range<usize>) -> TopKeys {
        let (query, excluded) = (queries.latent.row(row), queries.excluded_of(row));
        let mut best = TopKeys::new(queries.slate_size, self.rounding(query));
        let mut threshold = f32::NAN;
        let mut products = [0.0; PANEL];
        for first in actions.clone().step_by(PANEL) {
            let last = (first + PANEL).min(actions.end);
            let products = &mut products[..last - first];
            let out = MatMut::from_column_major_slice_mut(products, last - first, 1);
            let latent = queries.latent.view(row, row + 1).transpose();
            let panel = self.actions.beta().view(first, last);
            matmul(out, Accum::Replace, panel, latent, 1.0, Par::Seq);
            for (action, &score) in (first..).zip(&*products) {
                #[allow(clippy::cast_possible_truncation, reason = "actions are numbered by u32")]
                let action = action as u32;
                if is_above(score, threshold)
                    && !is_excluded(excluded, action)
                    && let Some(higher) = best.offer(score, action)
                {
                    threshold = higher;
                }
            }
        }
        best
    }

    fn best_of_block(
        &self,
        queries: Queries<'_>,
        rows: Range<usize>,
        actions: Range<usize>,
    ) -> Vec<TopKeys> {
        let beta = self.actions.beta();
        let width = rows.len().next_multiple_of(GROUP);
        // Queries side by side, as products read them; zeros fill the last group.
        let mut latent = vec![0.0; beta.cols() * width]; // [L, width]
        for (column, row) in rows.clone().enumerate() {
            for (l, value) in queries.latent.row(row).iter().enumerate() {
                latent[l * width + column] = *value;
            }
        }
        let latent = MatRef::from_row_major_slice(&latent, beta.cols(), width);
        let mut best: Vec<TopKeys> = rows
            .clone()
            .map(|row| TopKeys::new(queries.slate_size, self.rounding(queries.latent.row(row))))
            .collect();
        // Scores must exceed these; every score passes a NaN, and none exceeds infinity.
        let mut thresholds = vec![f32::NAN; width];
        thresholds[rows.len()..].fill(f32::INFINITY);
        let mut products = vec![0.0; PANEL * width]; // [PANEL, width]

        for first in actions.clone().step_by(PANEL) {
            let last = (first + PANEL).min(actions.end);
            let products = &mut products[..(last - first) * width];
            let out = MatMut::from_row_major_slice_mut(products, last - first, width);
            // One thread: the parts of a search run in parallel already.
            matmul(out, Accum::Replace, beta.view(first, last), latent, 1.0, Par::Seq);
            let scores = Scores { products, thresholds: &mut thresholds };
            let offer = |row: usize, column: usize, score| {
                #[allow(clippy::cast_possible_truncation, reason = "actions are numbered by u32")]
                let action = (first + row) as u32;
                let excluded = queries.excluded_of(rows.start + column);
                if is_excluded(excluded, action) { None } else { best[column].offer(score, action) }
            };
            Arch::new().dispatch(
                #[inline(always)]
                || scores.compare(offer),
            );
        }
        best
    }
}

impl Retriever for Exact {
    fn search(&self, queries: Queries<'_>) -> Result<Slates> {
        let num_actions = self.actions.num_actions();
        check(queries, num_actions, self.actions.latent_dim())?;
        let count = queries.latent.rows();
        let (groups, panels) = (count.div_ceil(GROUP), num_actions.div_ceil(PANEL));
        // Equal parts, the same number for each thread, so that no thread waits for another.
        let threads = rayon::current_num_threads();
        let ranges = threads.div_ceil((groups / FEWEST_GROUPS).clamp(1, threads)).min(panels);
        let side = threads / ranges;
        let blocks = (side * groups.div_ceil(side * MOST_GROUPS)).min(groups);
        let found: Vec<Vec<TopKeys>> = (0..ranges * blocks)
            .into_par_iter()
            .map(|part| {
                let (range, block) = (part / blocks, part % blocks);
                let rows = nth_part(groups, blocks, block, GROUP, count);
                let actions = nth_part(panels, ranges, range, PANEL, num_actions);
                self.best_of(queries, rows, actions)
            })
            .collect();
        let found: Vec<TopKeys> = found.into_iter().flatten().collect(); // [ranges, count]

        Ok(self.ranked(queries, &found, |query| self.rounding(query)))
    }
}

impl Exact {
    /// The slates of `queries` out of what parts of the catalogue had for them, `[parts, N]`: scores
    /// that differ by more than `rounding` of a query differ in truth.
    pub(super) fn ranked(
        &self,
        queries: Queries<'_>,
        found: &[TopKeys],
        rounding: impl Fn(&[f32]) -> f32 + Sync,
    ) -> Slates {
        let (count, slate_size) = (queries.latent.rows(), queries.slate_size);
        let mut actions = vec![0; count * slate_size];
        let mut scores = vec![0.0; count * slate_size];
        actions
            .par_chunks_mut(slate_size)
            .zip(scores.par_chunks_mut(slate_size))
            .enumerate()
            .for_each(|(row, (actions, scores))| {
                let query = queries.latent.row(row);
                let mut best = TopKeys::new(slate_size, rounding(query));
                best.keys.extend(found.iter().skip(row).step_by(count).flat_map(|best| &best.keys));
                best.prune();
                let found = best.keys.iter().map(|&key| unpack(key).1);
                rank(query, &self.actions, found, actions, scores);
            });
        Slates::new(slate_size, actions, scores)
    }
}

/// The `at`-th of `parts` equal parts of `total` items, in whole units of `size` items.
fn nth_part(units: usize, parts: usize, at: usize, size: usize, total: usize) -> Range<usize> {
    let start = |at: usize| (units * at / parts * size).min(total);
    start(at)..start(at + 1)
}

/// The scores of a panel's actions, `[panel, width]`, and the thresholds of the queries, `[width]`.
struct Scores<'a> {
    products: &'a [f32],
    thresholds: &'a mut [f32],
}

impl Scores<'_> {
    /// Calls `offer` with action, query and score of each score above its threshold. `offer` returns
    /// the new threshold, if it changes.
    #[allow(clippy::inline_always, reason = "must be compiled into the dispatch")]
    #[inline(always)]
    fn compare(self, mut offer: impl FnMut(usize, usize, f32) -> Option<f32>) {
        let width = self.thresholds.len();
        let (thresholds, _) = self.thresholds.as_chunks_mut::<GROUP>();
        for (action, scores) in self.products.chunks_exact(width).enumerate() {
            let (scores, _) = scores.as_chunks::<GROUP>();
            for (group, (scores, thresholds)) in scores.iter().zip(&mut *thresholds).enumerate() {
                // Comparing all instead of stopping at the first compiles to vector instructions.
                let above = |any, lane| any | is_above(scores[lane], thresholds[lane]);
                if !(0..GROUP).fold(false, above) {
                    continue;
                }
                for (lane, (&score, threshold)) in scores.iter().zip(thresholds).enumerate() {
                    if is_above(score, *threshold)
                        && let Some(higher) = offer(action, group * GROUP + lane, score)
                    {
                        *threshold = higher;
                    }
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
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::matrix::{Matrix, dot};

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
        // Several panels and a part of one; 1 and 7 actions: less than a group.
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

    /// Rows that hold the same numbers in different orders, beside queries of equal numbers: every
    /// score is the same but for rounding, so who wins depends on the order of summation.
    #[test]
    fn rounding_is_the_same_alone_and_in_any_batch() {
        let numbers = normals(1, 1, 53).into_vec();
        let mut stream = crate::seed::Seed(1).stream(crate::seed::Purpose::Synthetic, 0, 0);
        let mut shuffled = || {
            let mut row = numbers.clone();
            stream.shuffle(&mut row);
            row
        };
        let beta: Vec<f32> = (0..3000).flat_map(|_| shuffled()).collect();
        let exact = Exact::new(embeddings(Matrix::new(beta, 53).unwrap()));
        for count in [1, 2, 3, 20, 200] {
            let values = normals(2, 1, count).into_vec();
            let latent: Vec<f32> = values.into_iter().flat_map(|value| [value; 53]).collect();
            let latent = Matrix::new(latent, 53).unwrap();
            let queries = Queries { latent: &latent, slate_size: 5, excluded: None };
            assert_eq!(exact.search(queries).unwrap(), brute_force(exact.actions(), queries));
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
