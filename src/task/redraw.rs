//! A task in, the same task with other halves of its users' items out.

use std::sync::Arc;

use super::Task;
use super::contexts::Profiles;
use crate::dataset::{Halved, Split, Times, shuffled};
use crate::encoder::encode_all;
use crate::seed::{Purpose, Seed};

impl Task {
    /// This task with the items of every user of `split`, of training users those who teach, observed and hidden
    /// anew: as many of each as before, or, of a training user where a split by time hid the latest, those before and after a random
    /// moment. `draw` addresses the draws. None for a reward that knows the halves by itself
    /// ([`SlateReward::on`](crate::reward::SlateReward::on)), on a log, whose rows have no halves, and for
    /// held-out users of whom the split hid other items than any.
    #[must_use]
    pub fn redrawn(&self, split: Split, seed: Seed, draw: u64) -> Option<Self> {
        Some(self.asked_anew(split, seed, draw)?.with_contexts_of(split))
    }

    /// [`redrawn`](Self::redrawn) for those who look at users' items alone: contexts stay those of the halves
    /// before.
    #[must_use]
    pub fn asked_anew(&self, split: Split, seed: Seed, draw: u64) -> Option<Self> {
        // Asked first: drawing others takes a while.
        if !self.has_other_halves(split) {
            return None;
        }
        let teaches = |context| self.cross.as_ref().is_none_or(|it| it.folds.of(context).is_some());
        let (sessions, times) = self.sessions.with_halves(self.times(), |context| {
            let is_of_split = self.sessions.split[context as usize] == split;
            if is_of_split && (split != Split::Train || teaches(context)) {
                self.halves_in(context, seed, draw)
            } else {
                Halved::AsBefore
            }
        });
        let sessions = Arc::new(sessions);
        let times = times.filter(|_| self.profiles.times.is_some());
        let profiles = Profiles { times, ..Profiles::clone(&self.profiles) };
        Some(Self {
            reward: self.reward.on(&sessions)?,
            sessions,
            profiles: Arc::new(profiles),
            ..self.clone()
        })
    }

    /// Encodes the users of `split` as their halves are.
    fn with_contexts_of(mut self, split: Split) -> Self {
        if split == Split::Train && self.cross.is_some() {
            return self.with_fold_contexts();
        }
        let users = self.sessions.contexts(split);
        let known = |context| self.profiles.observed(&self.sessions, context);
        let rows = encode_all(self.encoder.as_ref(), &users, known);
        let contexts = Arc::make_mut(&mut self.contexts);
        for (context, row) in users.iter().zip(rows.iter_rows()) {
            contexts.row_mut(*context as usize).copy_from_slice(row);
        }
        self
    }

    /// True if the users of `split` might as well observe and hide other items.
    #[must_use]
    pub fn has_other_halves(&self, split: Split) -> bool {
        let any = split == Split::Train || self.held_out_at_random;
        any && !self.is_on_log() && self.reward.on(&self.sessions).is_some()
    }

    /// When the users acted, if anything asks for it.
    fn times(&self) -> Option<&Times> {
        self.order.as_deref().or(self.profiles.times.as_ref())
    }

    /// What a draw observes of a context and what it hides.
    fn halves_in(&self, context: u32, seed: Seed, draw: u64) -> Halved {
        let halves = self.sessions.halves(context, self.times());
        let items = halves[0].len() + halves[1].len();
        if items < 2 {
            return Halved::AsBefore;
        }
        let mut stream = seed.stream(Purpose::Redraw, draw, context.into());
        if self.order.is_none() {
            return Halved::Into(shuffled(halves, &mut stream));
        }
        let mut first = halves.concat();
        first.sort_unstable();
        // Items of one time are in no order; by number, the popular ones would come first.
        stream.shuffle(&mut first);
        first.sort_by_key(|&(_, time)| time);
        // What is observed leaves a slate of others.
        let (actions, shown) = (self.actions.num_actions(), self.slate_size);
        let most = if self.exclude_observed { actions.saturating_sub(shown).max(1) } else { items };
        let between = u32::try_from(most.min(items - 1)).unwrap_or(u32::MAX);
        let second = first.split_off(1 + stream.below(between) as usize);
        Halved::Into([first, second])
    }
}
