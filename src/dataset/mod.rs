//! Files → sessions. A session `[X, Y]` is one user's observed and hidden actions; the policy
//! sees X, and Y makes the reward (section 4.1).
//!
//! [`read()`] turns a log into [`Interactions`]; [`synthetic()`] generates them where there is no
//! log, and [`synthesize`] writes a synthetic log of any size. [`assemble`] turns interactions into a
//! [`Dataset`]. [`tables`] keeps it as three Parquet files, and training and serving read only those.
//! All that reads logs is behind the feature `train`.

mod catalogue;
mod features;
mod folds;
#[cfg(feature = "train")]
mod halves;
pub(crate) mod parquet;
#[cfg(feature = "train")]
mod prepare;
mod products;
#[cfg(feature = "train")]
pub mod registry;
mod statistics;
pub mod tables;
mod vectors;

use polars::prelude::DataFrame;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

pub use catalogue::{Catalogue, ITEM_ID, Ids, Items, read_item_ids, read_user_ids};
pub(crate) use catalogue::{Label, USER_ID, as_text};
pub use features::{FeatureColumn, FeatureTable, UserFeatures};
pub use folds::Folds;
#[cfg(feature = "train")]
pub(crate) use halves::{Halved, shuffled};
#[cfg(feature = "train")]
pub(crate) use prepare::{
    BadRows, Batch, Model, Newcomer, Numbered, Packed, Taste, Wanted, as_ids, read_text,
};
#[cfg(feature = "train")]
pub use prepare::{
    FeatureSource, Filters, Frames, Given, Interactions, ItemSource, ItemTable, Moment,
    PAPER_SHAPES, RowFilter, Shape, Source, SplitKind, SplitSettings, Synthesized, SyntheticLog,
    SyntheticSettings, UserTable, assemble, digest, distinct, read, read_frames, read_given,
    synthesize, synthetic,
};
#[cfg(feature = "train")]
pub(crate) use statistics::percent;
pub use statistics::{Count, Statistics};
pub(crate) use vectors::read_vectors;

/// What a session is for. A user has one session, or up to one of each, in this order, where a part
/// of each user's actions is held out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    /// To train on.
    Train,
    /// To watch while training, and to choose checkpoints and settings on.
    Validation,
    /// To judge on once, at the end.
    Test,
}

impl Split {
    const ALL: [Self; 3] = [Self::Train, Self::Validation, Self::Test];

    fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Validation => "validation",
            Self::Test => "test",
        }
    }
}

impl std::fmt::Display for Split {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Sorted sets of actions, one per context (compressed sparse rows).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionSets {
    offsets: Vec<usize>,
    actions: Vec<u32>,
}

impl ActionSets {
    /// Makes one set for each of `sizes`. `fill` puts different actions into a slice of that size, in
    /// any order; it is called in parallel.
    pub(crate) fn filled(sizes: &[usize], fill: impl Fn(u32, &mut [u32]) + Sync) -> Self {
        let mut offsets = Vec::with_capacity(sizes.len() + 1);
        offsets.push(0);
        offsets.extend(sizes.iter().scan(0, |end, size| {
            *end += size;
            Some(*end)
        }));
        let actions = vec![0; offsets[sizes.len()]];
        let mut sets = Self { offsets, actions };
        sets.change(fill);
        sets
    }

    /// Changes each set in its place, in parallel; `change` leaves different actions, in any order.
    fn change(&mut self, change: impl Fn(u32, &mut [u32]) + Sync) {
        let mut rest = self.actions.as_mut_slice();
        let mut sets = Vec::with_capacity(self.offsets.len());
        for (context, ends) in (0_u32..).zip(self.offsets.windows(2)) {
            let set = rest.split_off_mut(..ends[1] - ends[0]).unwrap_or_default();
            sets.push((context, set));
        }
        sets.into_par_iter().for_each(|(context, set)| {
            change(context, set);
            set.sort_unstable();
            debug_assert!(set.is_sorted_by(|a, b| a < b), "different actions");
        });
    }

    /// Gives each action another number, `numbers[action]`.
    #[cfg(feature = "train")]
    pub(crate) fn renumber(&mut self, numbers: &[u32]) {
        self.change(|_, set| set.iter_mut().for_each(|action| *action = numbers[*action as usize]));
    }

    /// No sets yet, for [`push_set`](Self::push_set).
    pub(crate) fn none() -> Self {
        Self { offsets: vec![0], actions: Vec::new() }
    }

    /// Adds the set of the next context, empty.
    pub(crate) fn push_set(&mut self) {
        self.offsets.push(self.actions.len());
    }

    /// Adds an action, greater than its others, to the last set.
    pub(crate) fn push(&mut self, action: u32) {
        self.actions.push(action);
        if let Some(end) = self.offsets.last_mut() {
            *end += 1;
        }
    }

    /// Makes sets of `(context, action)` pairs, in any order; equal pairs count once.
    #[must_use]
    pub fn from_pairs(
        num_contexts: usize,
        pairs: impl Iterator<Item = (u32, u32)> + Clone,
    ) -> Self {
        let mut offsets = vec![0; num_contexts + 1];
        for (context, _) in pairs.clone() {
            offsets[context as usize + 1] += 1;
        }
        for context in 0..num_contexts {
            offsets[context + 1] += offsets[context];
        }
        let mut next = offsets.clone();
        let mut actions = vec![0; offsets[num_contexts]];
        for (context, action) in pairs {
            actions[next[context as usize]] = action;
            next[context as usize] += 1;
        }
        let mut kept = 0;
        let mut start = 0;
        for context in 0..num_contexts {
            let end = offsets[context + 1];
            actions[start..end].sort_unstable();
            for at in start..end {
                if at == start || actions[at] != actions[at - 1] {
                    actions[kept] = actions[at];
                    kept += 1;
                }
            }
            start = end;
            offsets[context + 1] = kept;
        }
        actions.truncate(kept);
        Self { offsets, actions }
    }

    /// Number of contexts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// All contexts.
    ///
    /// # Panics
    /// On 2³² contexts or more, which nothing here can number.
    #[must_use]
    pub fn contexts(&self) -> std::ops::Range<u32> {
        0..u32::try_from(self.len()).expect("contexts are numbered by u32")
    }

    /// True if there is no context.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The actions of a context, ascending.
    #[must_use]
    pub fn of(&self, context: u32) -> &[u32] {
        let context = context as usize;
        &self.actions[self.offsets[context]..self.offsets[context + 1]]
    }

    /// The part of `values` that belongs to a context; `values` holds one for each pair, in order.
    #[must_use]
    pub fn values_of<'a, T>(&self, context: u32, values: &'a [T]) -> &'a [T] {
        let context = context as usize;
        &values[self.offsets[context]..self.offsets[context + 1]]
    }

    /// True if `action` belongs to `context`; O(log n).
    #[must_use]
    pub fn contains(&self, context: u32, action: u32) -> bool {
        self.of(context).binary_search(&action).is_ok()
    }

    /// The number of `contexts` that have each action, `[num_actions]`.
    #[must_use]
    pub fn popularity(
        &self,
        contexts: impl IntoIterator<Item = u32>,
        num_actions: usize,
    ) -> Vec<u32> {
        let mut counts = vec![0; num_actions];
        for context in contexts {
            self.of(context).iter().for_each(|&action| counts[action as usize] += 1);
        }
        counts
    }

    /// Number of pairs.
    #[must_use]
    pub fn num_pairs(&self) -> usize {
        self.actions.len()
    }
}

/// All sessions of a data set. Actions are numbered by falling popularity among the training
/// users, so that ties, and an empty context, resolve to popular actions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sessions {
    /// X of each context.
    pub observed: ActionSets,
    /// Y of each context.
    pub hidden: ActionSets,
    /// The split of each context.
    pub split: Vec<Split>,
    /// P.
    pub num_actions: usize,
}

impl Sessions {
    /// U.
    #[must_use]
    pub fn num_contexts(&self) -> usize {
        self.split.len()
    }

    /// The number of `contexts` that have each action, observed or hidden, `[P]`.
    #[must_use]
    pub fn popularity(&self, contexts: &[u32]) -> Vec<u32> {
        let of = |part: &ActionSets| part.popularity(contexts.iter().copied(), self.num_actions);
        of(&self.observed).into_iter().zip(of(&self.hidden)).map(|(x, y)| x + y).collect()
    }

    /// The contexts of one split, ascending.
    #[must_use]
    pub fn contexts(&self, split: Split) -> Vec<u32> {
        let contexts = (0_u32..).zip(&self.split).filter(|(_, s)| **s == split);
        contexts.map(|(context, _)| context).collect()
    }
}

/// When each interaction of some [`Sessions`] last happened, in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Times {
    /// Times of the pairs of [`Sessions::observed`], in their order.
    pub observed: Vec<i64>,
    /// Times of the pairs of [`Sessions::hidden`], in their order.
    pub hidden: Vec<i64>,
}

/// Sessions with the names of their users and actions.
#[derive(Clone, Debug)]
pub struct Dataset {
    /// X, Y and the split of each context.
    pub sessions: Sessions,
    /// Times of the interactions, if they were asked for.
    pub times: Option<Times>,
    /// `context: u32`, `user_id: i64 | str` and, where a user may have several contexts, `split: str`;
    /// row i is context i.
    pub contexts: DataFrame,
    /// `action: u32`, `item_id: i64 | str` and, where the input has titles or groups,
    /// `title: str | null`, `group: str | null`; row i is action i.
    pub actions: DataFrame,
    /// Numbers of users, actions and interactions.
    pub statistics: Statistics,
}
