//! Sharded search takes queries to every part of a catalogue that is cut by rows, perhaps each in a
//! process of its own, and merges what the parts answer. Exact parts give the answer of an exact search
//! of the whole, bit for bit.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::retrieval::best::{key, unpack};
use crate::retrieval::{Queries, Retriever, Slates, check};

/// The K best of a part of the catalogue for each of N queries, with the numbers that the whole gives
/// them. Rows for which the part has fewer than K end with [`Partial::NOBODY`] and −∞.
#[derive(Clone, Debug, PartialEq)]
pub struct Partial {
    /// `[N · K]`.
    pub actions: Vec<u32>,
    /// `hᵀβ_a` `[N · K]`.
    pub scores: Vec<f32>,
}

impl Partial {
    /// The number in the place of an action where there is none.
    pub const NOBODY: u32 = u32::MAX;

    /// No action for any of `rows` queries.
    #[must_use]
    pub fn nothing(rows: usize, slate_size: usize) -> Self {
        let count = rows * slate_size;
        Self { actions: vec![Self::NOBODY; count], scores: vec![f32::NEG_INFINITY; count] }
    }
}

/// Rows `range` of β: the part of a catalogue that one process searches.
#[derive(Clone, Debug)]
pub struct Shard {
    retriever: Arc<dyn Retriever>,
    range: Range<u32>,
}

impl Shard {
    /// The actions `range`, which `retriever` numbers from 0.
    #[must_use]
    pub fn new(retriever: Arc<dyn Retriever>, range: Range<u32>) -> Self {
        Self { retriever, range }
    }

    /// Picks the actions that are here, ascending, and numbers them as here.
    fn own(&self, actions: &[u32]) -> Vec<u32> {
        let Range { start, end } = self.range;
        let before = |end| actions.partition_point(|&action| action < end);
        actions[before(start)..before(end)].iter().map(|action| action - start).collect()
    }

    /// What this part of the catalogue has for `queries`, whose excluded actions are those of the whole.
    ///
    /// # Errors
    /// The errors of [`Retriever::search`], but for too few actions.
    pub fn search(&self, queries: Queries<'_>) -> Result<Partial> {
        let (rows, slate_size) = (queries.latent.rows(), queries.slate_size);
        let excluded: Vec<Vec<u32>> =
            (0..rows).map(|row| self.own(queries.excluded_of(row))).collect();
        let mut found = Partial::nothing(rows, slate_size);
        // A row for which fewer than K are left is asked for as many as there are.
        let mut rows_of: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        #[allow(clippy::cast_possible_truncation, reason = "queries of a batch")]
        for (row, excluded) in (0..rows as u32).zip(&excluded) {
            let left = self.range.len() - excluded.len();
            rows_of.entry(slate_size.min(left)).or_default().push(row);
        }
        rows_of.remove(&0);
        for (length, rows) in rows_of {
            let latent = queries.latent.select(&rows);
            let lists: Vec<&[u32]> = rows.iter().map(|&row| &*excluded[row as usize]).collect();
            let of_rows = Queries { latent: &latent, slate_size: length, excluded: Some(&lists) };
            let slates = self.retriever.search(of_rows)?;
            for (at, row) in rows.into_iter().enumerate() {
                let start = row as usize * slate_size;
                let actions = &mut found.actions[start..start + length];
                for (action, local) in actions.iter_mut().zip(slates.slate(at)) {
                    *action = self.range.start + local;
                }
                found.scores[start..start + length].copy_from_slice(slates.scores(at));
            }
        }
        Ok(found)
    }
}

/// Takes queries to all parts of a catalogue.
pub trait FanOut: Send + Sync + Debug {
    /// What each part answers, as [`Shard::search`] does, in the order of the parts.
    ///
    /// # Errors
    /// Fails if a part does not answer.
    fn ask(&self, queries: Queries<'_>) -> Result<Vec<Partial>>;
}

impl FanOut for Vec<Shard> {
    fn ask(&self, queries: Queries<'_>) -> Result<Vec<Partial>> {
        self.par_iter().map(|shard| shard.search(queries)).collect()
    }
}

/// Searches a catalogue in parts.
#[derive(Clone, Debug)]
pub struct Sharded {
    fan_out: Arc<dyn FanOut>,
    num_actions: usize,
    latent_dim: usize,
}

impl Sharded {
    /// The parts behind `fan_out`, P actions of L numbers together.
    #[must_use]
    pub fn new(fan_out: Arc<dyn FanOut>, num_actions: usize, latent_dim: usize) -> Self {
        Self { fan_out, num_actions, latent_dim }
    }
}

impl Retriever for Sharded {
    fn search(&self, queries: Queries<'_>) -> Result<Slates> {
        check(queries, self.num_actions, self.latent_dim)?;
        let parts = self.fan_out.ask(queries)?;
        let (rows, slate_size) = (queries.latent.rows(), queries.slate_size);
        for part in &parts {
            if part.actions.len() != rows * slate_size || part.scores.len() != part.actions.len() {
                return Err(Error::Shape {
                    what: "the answer of a shard".into(),
                    expected: format!("[{rows}, {slate_size}]"),
                    found: format!("{} actions, {} scores", part.actions.len(), part.scores.len()),
                });
            }
            let beyond = |action: &&u32| {
                **action != Partial::NOBODY && **action as usize >= self.num_actions
            };
            if let Some(action) = part.actions.iter().find(beyond) {
                return Err(Error::Shape {
                    what: "the answer of a shard".into(),
                    expected: format!("actions below {}", self.num_actions),
                    found: format!("action {action}"),
                });
            }
        }
        merge(&parts, rows, slate_size)
    }
}

/// The K best of what all parts found for each of N queries; equal scores go to the lower action.
///
/// # Errors
/// [`Error::SlateTooLarge`] where the parts have fewer than K together, as when one of them is missing.
pub(crate) fn merge(parts: &[Partial], rows: usize, slate_size: usize) -> Result<Slates> {
    let mut actions = vec![0; rows * slate_size];
    let mut scores = vec![0.0; rows * slate_size];
    let mut keys = Vec::with_capacity(parts.len() * slate_size);
    for row in 0..rows {
        let place = row * slate_size..(row + 1) * slate_size;
        keys.clear();
        for part in parts {
            let found = part.actions[place.clone()].iter().zip(&part.scores[place.clone()]);
            let found = found.filter(|(action, _)| **action != Partial::NOBODY);
            keys.extend(found.map(|(&action, &score)| key(score, action)));
        }
        if keys.len() < slate_size {
            let why = " (no other shard answered)".into();
            return Err(Error::SlateTooLarge { slate_size, available: keys.len(), why });
        }
        keys.sort_unstable();
        let slate = actions[place.clone()].iter_mut().zip(&mut scores[place]);
        for ((action, score), key) in slate.zip(&keys) {
            (*score, *action) = unpack(*key);
        }
    }
    Ok(Slates::new(slate_size, actions, scores))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedding::ActionEmbeddings;
    use crate::matrix::Matrix;
    use crate::retrieval::Exact;
    use crate::retrieval::exact::normals;

    const ACTIONS: u32 = 1000;

    /// β, in which actions of several shards are equal.
    fn beta() -> Matrix {
        let mut beta = normals(1, ACTIONS as usize, 8);
        for (action, of) in [(999, 3), (500, 3), (251, 700)] {
            let row = beta.row(of).to_vec();
            beta.row_mut(action).copy_from_slice(&row);
        }
        beta
    }

    fn exact(beta: Matrix) -> Arc<Exact> {
        Arc::new(Exact::new(Arc::new(ActionEmbeddings::new(beta).unwrap())))
    }

    fn shards(beta: &Matrix, count: u32) -> Vec<Shard> {
        let start = |at| ACTIONS * at / count;
        let shard = |at| {
            let rows: Vec<u32> = (start(at)..start(at + 1)).collect();
            Shard::new(exact(beta.select(&rows)), start(at)..start(at + 1))
        };
        (0..count).map(shard).collect()
    }

    fn sharded(shards: Vec<Shard>) -> Sharded {
        Sharded::new(Arc::new(shards), ACTIONS as usize, 8)
    }

    #[test]
    fn shards_together_are_the_whole_bit_for_bit() {
        let (beta, mut latent) = (beta(), normals(2, 20, 8));
        // Equal vectors are at the top of one query, and another has no direction.
        let top = beta.row(3).to_vec();
        latent.row_mut(0).copy_from_slice(&top);
        latent.row_mut(1).fill(0.0);
        let whole = exact(beta.clone());
        // The row at i leaves i actions of the first half; the others leave all.
        let excluded: Vec<Vec<u32>> = (0..20).map(|left| (left..500).collect()).collect();
        let lists: Vec<&[u32]> = excluded.iter().map(Vec::as_slice).collect();
        for (count, slate_size) in [(1, 5), (2, 5), (4, 10), (7, 200), (300, 7)] {
            for excluded in [None, Some(lists.as_slice())] {
                let queries = Queries { latent: &latent, slate_size, excluded };
                let found = sharded(shards(&beta, count)).search(queries).unwrap();
                assert_eq!(found, whole.search(queries).unwrap(), "{count} shards");
            }
        }
    }

    #[test]
    fn scores_of_another_measure_in_one_shard_are_noticed() {
        let (beta, latent) = (beta(), normals(2, 200, 8));
        let queries = Queries { latent: &latent, slate_size: 5, excluded: None };
        let mut shifted = shards(&beta, 4);
        let larger: Vec<f32> = beta.select(&(250..500).collect::<Vec<_>>()).into_vec();
        let larger = larger.into_iter().map(|value| 1.01 * value).collect();
        shifted[1] = Shard::new(exact(Matrix::new(larger, 8).unwrap()), 250..500);
        let found = sharded(shifted).search(queries).unwrap();
        assert_ne!(found.actions(), exact(beta).search(queries).unwrap().actions());
    }

    #[test]
    fn a_shard_that_answers_another_question_is_refused() {
        #[derive(Debug)]
        struct Short(Vec<Shard>);
        impl FanOut for Short {
            fn ask(&self, queries: Queries<'_>) -> Result<Vec<Partial>> {
                let mut parts = self.0.ask(queries)?;
                parts[1].actions.pop();
                Ok(parts)
            }
        }
        let (beta, latent) = (beta(), normals(2, 3, 8));
        let queries = Queries { latent: &latent, slate_size: 5, excluded: None };
        let fan_out = Arc::new(Short(shards(&beta, 2)));
        let error = Sharded::new(fan_out, ACTIONS as usize, 8).search(queries).unwrap_err();
        assert!(error.to_string().contains("the answer of a shard"), "{error}");
        let few = Sharded::new(Arc::new(shards(&beta, 300)[..1].to_vec()), ACTIONS as usize, 8);
        let error = few.search(queries).unwrap_err();
        assert!(matches!(error, Error::SlateTooLarge { available: 3, .. }), "{error}");
    }
}
