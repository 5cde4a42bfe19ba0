//! Takes scored actions one after another and keeps the K best, best first; equal scores go to the
//! lower action.

use crate::embedding::ActionEmbeddings;
use crate::matrix::{dot, touch};
use crate::retrieval::is_excluded;

/// True if `score` is above `threshold`, or either is a NaN.
#[allow(clippy::inline_always, reason = "must be compiled into the dispatch")]
#[allow(clippy::neg_cmp_op_on_partial_ord, reason = "a NaN is neither")]
#[inline(always)]
pub(super) fn is_above(score: f32, threshold: f32) -> bool {
    !(score <= threshold)
}

/// Numbers of rows that are fetched from memory together: half of what the nearest cache of a core holds.
const TOGETHER: usize = 1 << 12;

/// Writes the K best of `found`, best first, with `hᵀβ_a` summed in one fixed order, so that scores do
/// not depend on the block of the query or on the index.
pub(super) fn rank(
    query: &[f32],
    embeddings: &ActionEmbeddings,
    found: impl Iterator<Item = u32>,
    actions: &mut [u32],
    scores: &mut [f32],
) {
    let found: Vec<u32> = found.collect();
    let mut keys = Vec::with_capacity(found.len());
    for some in found.chunks((TOGETHER / query.len()).max(1)) {
        // Rows of a large catalogue are in no cache. To ask for some at once takes one wait, not one for each;
        // the first is asked for by its product.
        some.iter().skip(1).for_each(|action| touch(embeddings.row(*action)));
        keys.extend(some.iter().map(|action| key(dot(query, embeddings.row(*action)), *action)));
    }
    keys.sort_unstable();
    for (key, (action, score)) in keys.into_iter().zip(actions.iter_mut().zip(scores)) {
        (*score, *action) = unpack(key);
    }
}

/// Writes the K best of `scores` `[P]` without the `excluded` actions, which are ascending. K is the
/// length of `actions`.
pub(crate) fn best_of_scores(
    scores: &[f32],
    excluded: &[u32],
    actions: &mut [u32],
    best_scores: &mut [f32],
) {
    let mut best = TopKeys::new(actions.len(), 0.0);
    let mut threshold = f32::NAN;
    for (action, &score) in (0_u32..).zip(scores) {
        if is_above(score, threshold)
            && !is_excluded(excluded, action)
            && let Some(higher) = best.offer(score, action)
        {
            threshold = higher;
        }
    }
    best.keys.sort_unstable();
    for (key, (action, score)) in best.keys.into_iter().zip(actions.iter_mut().zip(best_scores)) {
        (*score, *action) = unpack(key);
    }
}

/// Collects [`key`]s: the K best so far, the ones within `rounding` of them, and some to be dropped.
pub(super) struct TopKeys {
    pub(super) keys: Vec<u64>,
    slate_size: usize,
    rounding: f32,
    /// The number of keys that starts a pruning: twice as many as the last one kept, which are many where many
    /// scores are equal.
    crowd: usize,
}

impl TopKeys {
    pub(super) fn new(slate_size: usize, rounding: f32) -> Self {
        Self { keys: Vec::new(), slate_size, rounding, crowd: 2 * slate_size }
    }

    /// Adds an action. Returns the score that later ones must exceed, when it changes; they have
    /// higher numbers, so an equal score loses.
    pub(super) fn offer(&mut self, score: f32, action: u32) -> Option<f32> {
        self.keys.push(key(score, action));
        if self.keys.len() < self.crowd { None } else { self.prune() }
    }

    /// Drops the keys that cannot be among the K best. Returns the threshold, once there are K keys.
    pub(super) fn prune(&mut self) -> Option<f32> {
        if self.keys.len() < self.slate_size {
            return None;
        }
        let (_, last, _) = self.keys.select_nth_unstable(self.slate_size - 1);
        let (score, action) = unpack(*last);
        let threshold = score - self.rounding;
        let last = key(threshold, action);
        let mut at = 0;
        // The K best come first and stay, even if an overflow makes the threshold a NaN.
        self.keys.retain(|key| {
            at += 1;
            at <= self.slate_size || *key <= last
        });
        self.crowd = 2 * self.keys.len();
        Some(threshold)
    }
}

/// An integer that sorts by falling score, then by rising action: one comparison instead of two.
pub(super) fn key(score: f32, action: u32) -> u64 {
    // `+ 0.0` makes a negative zero positive: they are equal scores.
    u64::from(descending((score + 0.0).to_bits())) << 32 | u64::from(action)
}

#[allow(clippy::cast_possible_truncation, reason = "the high word and the low word")]
pub(super) fn unpack(key: u64) -> (f32, u32) {
    (f32::from_bits(descending((key >> 32) as u32)), key as u32)
}

/// Maps the bits of a float to a number that descends as floats ascend, and back. The bits of negative
/// floats descend already.
fn descending(bits: u32) -> u32 {
    const SIGN: u32 = 1 << 31;
    if bits & SIGN == 0 { bits ^ !SIGN } else { bits }
}
