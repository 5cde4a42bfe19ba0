//! Sessions in, the same sessions with other halves of their items out.

use rayon::prelude::*;

use super::{ActionSets, Sessions, Times};
use crate::seed::Stream;

/// Items with their times, which are 0 where none count.
pub(crate) type Part = Vec<(u32, i64)>;

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

    /// These sessions, of which each context observes and hides what `halves` gives, in any order; and
    /// the times of the items.
    pub(crate) fn with_halves(&self, halves: impl Fn(u32) -> [Part; 2] + Sync) -> (Self, Times) {
        let parts: Vec<[Part; 2]> = self
            .observed
            .contexts()
            .into_par_iter()
            .map(|context| {
                let mut both = halves(context);
                for part in &mut both {
                    part.sort_unstable();
                }
                both
            })
            .collect();
        let sets = |half: usize| {
            let sizes: Vec<usize> = parts.iter().map(|parts| parts[half].len()).collect();
            ActionSets::filled(&sizes, |context, set| {
                let items = parts[context as usize][half].iter().map(|(item, _)| *item);
                set.iter_mut().zip(items).for_each(|(to, item)| *to = item);
            })
        };
        let times = |half: usize| {
            parts.iter().flat_map(|parts| parts[half].iter().map(|(_, time)| *time)).collect()
        };
        let sessions = Self {
            observed: sets(0),
            hidden: sets(1),
            split: self.split.clone(),
            num_actions: self.num_actions,
        };
        (sessions, Times { observed: times(0), hidden: times(1) })
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
