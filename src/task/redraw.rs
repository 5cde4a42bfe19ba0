//! A task in, the same task with other halves of the training users' items out.

use std::sync::Arc;

use rayon::prelude::*;

use super::Task;
use super::contexts::Profiles;
use crate::dataset::{ActionSets, Sessions, Split, Times};
use crate::encoder::encode_all;
use crate::seed::{Purpose, Seed};

/// Items with their times; a time is 0 where none is known.
type Part = Vec<(u32, i64)>;

impl Task {
    /// This task with the items of every training user observed and hidden anew: as many of each as
    /// before, or, where a split by time hid the latest, those before and after a random moment.
    /// `epoch` addresses the draws. None for a reward that knows the halves by itself
    /// ([`SlateReward::on`](crate::reward::SlateReward::on)), and on a log, whose rows have no halves.
    #[must_use]
    pub fn redrawn(&self, seed: Seed, epoch: u64) -> Option<Self> {
        if self.is_on_log() {
            return None;
        }
        // A reward that stays on its halves is asked first: drawing others takes a while.
        self.reward.on(&self.sessions)?;
        let contexts = self.sessions.observed.contexts().into_par_iter();
        let parts: Vec<[Part; 2]> = contexts.map(|of| self.halves(of, seed, epoch)).collect();
        let sets = |half: usize| {
            let sizes: Vec<usize> = parts.iter().map(|parts| parts[half].len()).collect();
            ActionSets::filled(&sizes, |context, set| {
                let items = parts[context as usize][half].iter().map(|(item, _)| *item);
                set.iter_mut().zip(items).for_each(|(to, item)| *to = item);
            })
        };
        let sessions = Arc::new(Sessions {
            observed: sets(0),
            hidden: sets(1),
            split: self.sessions.split.clone(),
            num_actions: self.sessions.num_actions,
        });
        let times = |half: usize| {
            parts.iter().flat_map(|parts| parts[half].iter().map(|(_, time)| *time)).collect()
        };
        let has_times = self.profiles.times.is_some();
        let times = has_times.then(|| Times { observed: times(0), hidden: times(1) });
        let profiles = Profiles { times, ..Profiles::clone(&self.profiles) };
        let mut task = Self {
            reward: self.reward.on(&sessions)?,
            sessions,
            profiles: Arc::new(profiles),
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

    /// What an epoch observes of a context and what it hides, both ascending.
    fn halves(&self, context: u32, seed: Seed, epoch: u64) -> [Part; 2] {
        let Sessions { observed, hidden, split, .. } = self.sessions.as_ref();
        let with_times = |sets: &ActionSets, times: Option<&Vec<i64>>| -> Part {
            let items = sets.of(context).iter().copied();
            match times {
                None => items.map(|item| (item, 0)).collect(),
                Some(times) => items.zip(sets.values_of(context, times).iter().copied()).collect(),
            }
        };
        let times = self.order.as_deref().or(self.profiles.times.as_ref());
        let mut first = with_times(observed, times.map(|times| &times.observed));
        let mut second = with_times(hidden, times.map(|times| &times.hidden));
        let items = first.len() + second.len();
        if split[context as usize] != Split::Train || items < 2 {
            return [first, second];
        }
        let mut cut = first.len();
        first.append(&mut second);
        let mut stream = seed.stream(Purpose::Redraw, epoch, context.into());
        if self.order.is_some() {
            first.sort_unstable_by_key(|&(item, time)| (time, item));
            let between = u32::try_from(items - 1).unwrap_or(u32::MAX);
            cut = 1 + stream.below(between) as usize;
        } else {
            first.sort_unstable();
            stream.shuffle(&mut first);
        }
        second = first.split_off(cut);
        first.sort_unstable();
        second.sort_unstable();
        [first, second]
    }
}
