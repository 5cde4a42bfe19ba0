//! A task in, the same task with other halves of the training users' items out.

use std::sync::Arc;

use super::Task;
use crate::dataset::{ActionSets, Sessions, Split};
use crate::encoder::encode_all;
use crate::seed::{Purpose, Seed};

impl Task {
    /// This task with the items of every training user observed and hidden anew, as many of each as
    /// before; `epoch` addresses the draws. None for a reward of the caller's own, which knows the
    /// halves by itself.
    #[must_use]
    pub fn redrawn(&self, seed: Seed, epoch: u64) -> Option<Self> {
        let kind = self.reward_kind?;
        let Sessions { observed, hidden, split, num_actions } = self.sessions.as_ref();
        let drawn = |context: u32| {
            let mut items = [observed.of(context), hidden.of(context)].concat();
            if split[context as usize] == Split::Train {
                items.sort_unstable();
                seed.stream(Purpose::Redraw, epoch, context.into()).shuffle(&mut items);
            }
            items
        };
        let part = |sizes: &ActionSets, skipped: Option<&ActionSets>| {
            let lengths: Vec<usize> = sizes.contexts().map(|of| sizes.of(of).len()).collect();
            ActionSets::filled(&lengths, |context, set| {
                let first = skipped.map_or(0, |skipped| skipped.of(context).len());
                set.copy_from_slice(&drawn(context)[first..first + set.len()]);
            })
        };
        let sessions = Arc::new(Sessions {
            observed: part(observed, None),
            hidden: part(hidden, Some(observed)),
            split: split.clone(),
            num_actions: *num_actions,
        });
        let mut task = Self {
            reward: kind.init(self.slate_size, Arc::clone(&sessions), &self.actions),
            sessions,
            ..self.clone()
        };
        if self.cross.is_some() {
            return Some(task.with_fold_contexts());
        }
        let users = task.sessions.contexts(Split::Train);
        let known = |context| task.profiles.observed(&task.sessions, context);
        let rows = encode_all(task.encoder.as_ref(), &users, known);
        for (context, row) in users.iter().zip(rows.iter_rows()) {
            task.contexts.row_mut(*context as usize).copy_from_slice(row);
        }
        Some(task)
    }
}
