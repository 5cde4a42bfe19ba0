//! Sessions in, the same sessions with other halves of their items out.

use std::borrow::Cow;

use rayon::prelude::*;

use super::{ActionSets, Sessions, Times};
use crate::seed::Stream;

/// Items with their times, which are 0 where none count.
pub(crate) type Part = Vec<(u32, i64)>;

/// What becomes of a context's halves. Most contexts stay as they are, and take no memory of their own.
pub(crate) enum Halved {
    /// They stay.
    AsBefore,
    /// Everything is observed.
    Observed,
    /// It observes and hides these, in any order.
    Into([Part; 2]),
}

impl Sessions {
    /// What a context observes and what it hides, both ascending.
    pub(crate) fn halves(&self, context: u32, times: Option<&Times>) -> [Part; 2] {
        let with_times = |sets: &ActionSets, times: Option<&Vec<i64>>| -> Part {
            let items = sets.of(context).iter().copied();
            match times {
                None => items.map(|item| (item, 0)).collect(),
                Some(times) => items.zip(sets.values_of(context, times).iter().copied()).collect(),
            }
        };
        [
            with_times(&self.observed, times.map(|times| &times.observed)),
            with_times(&self.hidden, times.map(|times| &times.hidden)),
        ]
    }

    /// These sessions with what `halved` makes of each context, and the times of the items, if they have
    /// `times`.
    pub(crate) fn with_halves(
        &self,
        times: Option<&Times>,
        halved: impl Fn(u32) -> Halved + Sync,
    ) -> (Self, Option<Times>) {
        let contexts = self.observed.contexts().into_par_iter();
        let halved: Vec<Halved> = contexts.map(|context| halved(context).sorted()).collect();
        let parts = |context: u32| match &halved[context as usize] {
            Halved::AsBefore => Cow::Owned(self.halves(context, times)),
            Halved::Observed => {
                let mut all = self.halves(context, times).concat();
                all.sort_unstable();
                Cow::Owned([all, Part::new()])
            }
            Halved::Into(parts) => Cow::Borrowed(parts),
        };
        let size = |context: u32, half: usize| {
            let before = [self.observed.of(context).len(), self.hidden.of(context).len()];
            match &halved[context as usize] {
                Halved::AsBefore => before[half],
                Halved::Observed => [before[0] + before[1], 0][half],
                Halved::Into(parts) => parts[half].len(),
            }
        };
        let sets = |half: usize| {
            let sizes: Vec<usize> =
                self.observed.contexts().map(|context| size(context, half)).collect();
            ActionSets::filled(&sizes, |context, set| {
                let parts = parts(context);
                set.iter_mut().zip(&parts[half]).for_each(|(to, (item, _))| *to = *item);
            })
        };
        let sessions = Self {
            observed: sets(0),
            hidden: sets(1),
            split: self.split.clone(),
            num_actions: self.num_actions,
        };
        let times = times.is_some().then(|| {
            let (mut observed, mut hidden) = (Vec::new(), Vec::new());
            for context in self.observed.contexts() {
                let parts = parts(context);
                observed.extend(parts[0].iter().map(|(_, time)| *time));
                hidden.extend(parts[1].iter().map(|(_, time)| *time));
            }
            Times { observed, hidden }
        });
        (sessions, times)
    }
}

impl Halved {
    /// Items ascending.
    fn sorted(mut self) -> Self {
        if let Self::Into(parts) = &mut self {
            for part in parts {
                part.sort_unstable();
            }
        }
        self
    }
}

/// Any of the items of both halves in each, as many as before.
pub(crate) fn shuffled([mut first, mut second]: [Part; 2], stream: &mut Stream) -> [Part; 2] {
    let cut = first.len();
    first.append(&mut second);
    first.sort_unstable();
    stream.shuffle(&mut first);
    second = first.split_off(cut);
    [first, second]
}
