//! Retrieval takes queries and β, and returns the K actions of largest inner product,
//! `argsort^K hᵀβ_a` (equation 2). Scores are inner products, greater is better; nothing ever holds
//! `[queries, P]` of them.

mod best;
pub mod candidates;
pub mod exact;
mod exclusion;
mod graph;
mod heads;
pub mod hnsw;
mod layout;
mod on_device;
pub mod options;
pub mod sharded;
mod slots;
mod store;
mod twins;

use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use crate::embedding::Blocks;
use crate::error::{Error, Result};
use crate::matrix::Matrix;

pub(crate) use best::best_of_scores;
pub use candidates::Candidates;
pub use exact::Exact;
pub(crate) use exclusion::{check_slate_size, excluded_lists, most_excluded};
pub use graph::BuildObserver;
pub(crate) use heads::Heads;
pub use hnsw::Hnsw;
pub use on_device::{OnDevice, Trials, exact_on};
pub use options::{HnswOptions, Scalar, Search};
pub use sharded::{FanOut, Partial, Shard, Sharded};

/// A request for the top K of each row of `latent`.
#[derive(Clone, Copy, Debug)]
pub struct Queries<'a> {
    /// One query per row, `[N, L]`, finite.
    pub latent: &'a Matrix,
    /// K.
    pub slate_size: usize,
    /// Actions that must not be returned, ascending, for each row; `[N]`.
    pub excluded: Option<&'a [&'a [u32]]>,
}

impl<'a> Queries<'a> {
    /// The actions that row `i` must not return.
    #[must_use]
    pub fn excluded_of(&self, i: usize) -> &'a [u32] {
        self.excluded.map_or(&[], |rows| rows[i])
    }
}

/// The answer: K actions per query, best first; equal scores go to the lower action.
#[derive(Clone, Debug, PartialEq)]
pub struct Slates {
    slate_size: usize,
    actions: Vec<u32>,
    scores: Vec<f32>,
}

impl Slates {
    /// `[N·K]` actions and scores, query after query.
    #[must_use]
    pub(crate) fn new(slate_size: usize, actions: Vec<u32>, scores: Vec<f32>) -> Self {
        debug_assert_eq!(actions.len(), scores.len());
        Self { slate_size, actions, scores }
    }

    /// Slates that nobody has scored.
    #[must_use]
    pub fn unscored(slate_size: usize, actions: Vec<u32>) -> Self {
        Self { slate_size, scores: vec![0.0; actions.len()], actions }
    }

    /// The first `slate_size` actions of each slate.
    #[must_use]
    pub(crate) fn first(&self, slate_size: usize) -> Cow<'_, Self> {
        if slate_size == self.slate_size {
            return Cow::Borrowed(self);
        }
        let first = (0..self.len()).flat_map(|at| &self.slate(at)[..slate_size]).copied();
        Cow::Owned(Self::unscored(slate_size, first.collect()))
    }

    /// All slates, one after the other, `[N · K]`.
    #[must_use]
    pub fn actions(&self) -> &[u32] {
        &self.actions
    }

    /// K.
    #[must_use]
    pub fn slate_size(&self) -> usize {
        self.slate_size
    }

    /// Number of queries answered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.actions.len() / self.slate_size
    }

    /// True without queries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// The slate of query `i`, `[K]`.
    #[must_use]
    pub fn slate(&self, i: usize) -> &[u32] {
        &self.actions[i * self.slate_size..(i + 1) * self.slate_size]
    }

    /// `hᵀβ_a` of each action on the slate of query `i`, `[K]`.
    #[must_use]
    pub fn scores(&self, i: usize) -> &[f32] {
        &self.scores[i * self.slate_size..(i + 1) * self.slate_size]
    }
}

/// The relative difference below which scores count as equal.
const SAME_SCORE: f32 = 1e-6;

/// Recall: the mean share of `wanted` that `found` holds, in `[0, 1]`, in any order; 1 without slates.
/// An action whose score equals the last score of `wanted` counts as found, since items with the same
/// users have the same embedding.
#[must_use]
pub fn overlap(found: &Slates, wanted: &Slates) -> f64 {
    if wanted.is_empty() {
        return 1.0;
    }
    let row = |of: &Slates, i: usize| {
        of.slate(i).iter().copied().zip(of.scores(i).iter().copied()).collect::<Vec<_>>()
    };
    let hits = (0..wanted.len()).map(|i| hits(&row(found, i), &row(wanted, i)));
    hits.sum::<usize>() as f64 / (wanted.len() * wanted.slate(0).len()) as f64
}

/// How many of the `found` items, each with its score, are among the `wanted` ones, the best first, or
/// score no less than the last of them.
pub(crate) fn hits<T: Eq + Hash>(found: &[(T, f32)], wanted: &[(T, f32)]) -> usize {
    let Some((_, last)) = wanted.last() else { return 0 };
    let set: HashSet<&T> = wanted.iter().map(|(item, _)| item).collect();
    // Scores that were summed in another order are off by rounding.
    let enough = last - SAME_SCORE * last.abs();
    found.iter().filter(|(item, score)| set.contains(item) || *score >= enough).count()
}

/// Maximum inner product search over fixed action embeddings.
///
/// Every row gets exactly K actions. A query of norm zero has no direction; its answer is the
/// lowest-numbered actions, which are the most popular ones.
pub trait Retriever: Send + Sync + std::fmt::Debug {
    /// The K best actions of each query.
    ///
    /// # Errors
    /// [`Error::SlateTooLarge`] when fewer than K actions are left for a query,
    /// [`Error::NotFinite`] for a query that is not finite, [`Error::Shape`] for queries of another
    /// dimension, [`Error::Library`] from the index.
    fn search(&self, queries: Queries<'_>) -> Result<Slates>;

    /// The search on a GPU that this is, if it is one.
    fn on_device(&self) -> Option<&OnDevice> {
        None
    }

    /// β on the GPU that searches, if one does.
    fn blocks(&self) -> Option<&Arc<Blocks>> {
        self.on_device().map(OnDevice::blocks)
    }
}

/// Fails unless every query can be answered with K of `num_actions` actions.
pub(crate) fn check(queries: Queries<'_>, num_actions: usize, latent_dim: usize) -> Result<()> {
    let shape =
        |what: &str, expected, found| Err(Error::Shape { what: what.into(), expected, found });
    let (rows, cols) = (queries.latent.rows(), queries.latent.cols());
    if cols != latent_dim {
        return shape("queries", format!("[N, {latent_dim}]"), format!("[{rows}, {cols}]"));
    }
    if let Some(excluded) = queries.excluded
        && excluded.len() != rows
    {
        return shape("excluded actions", format!("[{rows}]"), format!("[{}]", excluded.len()));
    }
    queries.latent.require_finite("query")?;
    let most =
        queries.excluded.map_or(0, |rows| rows.iter().map(|row| row.len()).max().unwrap_or(0));
    check_slate_size(queries.slate_size, num_actions, most)
}

/// True if a row of [`Queries::excluded`] holds `action`.
pub(crate) fn is_excluded(excluded: &[u32], action: u32) -> bool {
    !excluded.is_empty() && excluded.binary_search(&action).is_ok()
}

/// The action at `place`, from 0, among the actions outside `excluded`, which is ascending.
pub(crate) fn nth_included(excluded: &[u32], place: u32) -> u32 {
    // Before the excluded action at i stand `excluded[i] − i` others.
    let (mut before, mut after) = (0, excluded.len());
    while before < after {
        let middle = usize::midpoint(before, after);
        if excluded[middle] as usize - middle <= place as usize {
            before = middle + 1;
        } else {
            after = middle;
        }
    }
    #[allow(clippy::cast_possible_truncation, reason = "actions are numbered by u32")]
    let skipped = before as u32;
    place + skipped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_counts_sets_and_equal_scores() {
        // Actions below 10 score less the greater they are; 22 scores what 2 does, and so on.
        let slates = |actions: [u32; 4]| {
            let scores = actions.map(|action| -((action % 10) as f32));
            Slates::new(2, actions.to_vec(), scores.to_vec())
        };
        let exact = slates([1, 2, 3, 4]);
        for (found, share) in [([1, 2, 3, 4], 1.0), ([2, 1, 4, 9], 0.75), ([1, 22, 3, 25], 0.75)] {
            assert!((overlap(&slates(found), &exact) - share).abs() < 1e-12, "{found:?}");
        }
    }

    #[test]
    fn a_place_counts_what_is_not_excluded() {
        for excluded in [&[][..], &[0], &[0, 1, 2], &[2, 3, 7], &[9], &[0, 4, 5, 9]] {
            let included = (0..10).filter(|action| !excluded.contains(action));
            for (place, action) in (0..).zip(included) {
                assert_eq!(nth_included(excluded, place), action, "{place} without {excluded:?}");
            }
        }
    }
}
