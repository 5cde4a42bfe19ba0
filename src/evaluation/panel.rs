//! Users of a split in, what a recommender earns from them out: each is asked about as many halves of the
//! own items as time allows.
//!
//! On small logs a hundred users validate. By one half of their items each, they cannot tell a gain of
//! three percent from chance, and the start is served in its place; sixteen halves leave four tenths of the
//! standard error. On Gowalla two to eight halves of 1 500 users,
//! fewer with longer vectors, leave half of the standard error or more.

use std::borrow::Cow;
use std::ops::Range;

use super::Evaluation;
use crate::dataset::Split;
use crate::error::Result;
use crate::task::Task;

/// The numbers that are multiplied for all that users are asked, about two seconds of two cores.
const PRODUCTS: usize = 300_000_000_000;
/// The time of copying a number, in products; other halves of some users copy the contexts and items of all.
const COPY: usize = 150;
/// How many times as many are multiplied where a gain is in doubt at the end.
const DOUBTED: usize = 3;
/// The numbers in the contexts of a task, `[U, D]`, up to which other halves are drawn, which copies them: 800 MB.
const COPIED: usize = 200_000_000;

/// Users who judge, and how often each is asked.
#[derive(Clone, Debug)]
pub struct Panel<'a> {
    task: &'a Task,
    split: Split,
    contexts: Vec<u32>,
    /// The draws of halves; 0 are those that the task has.
    halves: Range<u64>,
}

impl<'a> Panel<'a> {
    /// These `contexts` of a split, asked once.
    #[must_use]
    pub fn new(task: &'a Task, split: Split, contexts: Vec<u32>) -> Self {
        Self { task, split, contexts, halves: 0..1 }
    }

    /// Asked about up to so many `halves` of their items each: about one where they have no others, or where
    /// users, items and the length of their vectors make it long to ask.
    #[must_use]
    pub fn with_halves(self, halves: u64) -> Self {
        self.within(PRODUCTS, halves)
    }

    /// Asked about further halves of their items each, up to so many with those before, in three times the
    /// time of [`with_halves`](Self::with_halves) for all of them; none where that allows no more. They are fewer,
    /// or none, where the reward cannot be asked about them.
    #[must_use]
    pub fn further(&self, halves: u64) -> Option<Self> {
        let all = self.clone().within(DOUBTED * PRODUCTS, halves);
        let halves = self.halves.end..all.halves.end;
        (!halves.is_empty()).then_some(Self { halves, ..all })
    }

    fn within(self, products: usize, halves: u64) -> Self {
        let (users, actions) = (self.contexts.len(), &self.task.actions);
        let copied = self.task.sessions.num_contexts().saturating_mul(self.task.shape()[0]);
        let once = products_of(users, actions.num_actions(), actions.latent_dim());
        let affordable = affordable(products, once.saturating_add(COPY.saturating_mul(copied)));
        if copied > COPIED { self } else { self.with_all_halves(halves.min(affordable)) }
    }

    /// Asked about so many `halves` of their items each, however long it takes; about one where they have no
    /// others.
    #[must_use]
    pub fn with_all_halves(self, halves: u64) -> Self {
        let again = self.task.has_other_halves(self.split);
        Self { halves: 0..if again { halves.max(1) } else { 1 }, ..self }
    }

    /// The task.
    #[must_use]
    pub fn task(&self) -> &'a Task {
        self.task
    }

    /// The split.
    #[must_use]
    pub fn split(&self) -> Split {
        self.split
    }

    /// The contexts.
    #[must_use]
    pub fn contexts(&self) -> &[u32] {
        &self.contexts
    }

    /// The halves that each of them is asked about.
    #[must_use]
    pub fn halves(&self) -> u64 {
        self.halves.end - self.halves.start
    }

    /// A task of the same users with each of these halves.
    pub fn halves_of<'t>(&self, task: &'t Task) -> impl Iterator<Item = Cow<'t, Task>> {
        let (split, seed) = (self.split, task.split_seed());
        self.draws(task, move |draw| task.redrawn(split, seed, draw))
    }

    /// [`evaluate`](Self::evaluate) for recommenders that look at users' items alone: contexts are not
    /// encoded again.
    ///
    /// # Errors
    /// The errors of `evaluate`.
    pub fn evaluate_items(
        &self,
        evaluate: impl Fn(&Task, &[u32]) -> Result<Evaluation>,
    ) -> Result<Evaluation> {
        let (task, split, seed) = (self.task, self.split, self.task.split_seed());
        let all = self.draws(task, |draw| task.asked_anew(split, seed, draw));
        Evaluation::mean_of(all.map(|task| evaluate(&task, &self.contexts)))
    }

    /// A task with each of the halves: as it is, or what `drawn` makes of it.
    fn draws<'t>(
        &self,
        task: &'t Task,
        drawn: impl Fn(u64) -> Option<Task>,
    ) -> impl Iterator<Item = Cow<'t, Task>> {
        self.halves.clone().map_while(move |draw| match draw {
            0 => Some(Cow::Borrowed(task)),
            _ => drawn(draw).map(Cow::Owned),
        })
    }

    /// The mean of what `evaluate` finds on each of the halves.
    ///
    /// # Errors
    /// The errors of `evaluate`.
    pub fn evaluate(
        &self,
        evaluate: impl Fn(&Task, &[u32]) -> Result<Evaluation>,
    ) -> Result<Evaluation> {
        Evaluation::mean_of(self.halves_of(self.task).map(|task| evaluate(&task, &self.contexts)))
    }
}

/// The products of asking so many users once.
fn products_of(users: usize, num_actions: usize, latent_dim: usize) -> usize {
    users.saturating_mul(num_actions).saturating_mul(latent_dim)
}

/// The halves that can be asked about in the time of so many products, where one takes that of `once`.
fn affordable(products: usize, once: usize) -> u64 {
    ((products / once.max(1)) as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_users_items_or_dimensions_are_asked_about_few_halves() {
        let halves = |products, users, of_all: usize, num_actions, latent_dim| {
            let once = products_of(users, num_actions, latent_dim);
            affordable(products, once + COPY * of_all * latent_dim)
        };
        // Gowalla with vectors of two lengths, MovieLens, a large shop, and many users of few items.
        assert_eq!(halves(PRODUCTS, 1_561, 29_858, 40_981, 2048), 2);
        assert_eq!(halves(PRODUCTS, 1_561, 29_858, 40_981, 512), 8);
        assert!(halves(PRODUCTS, 136, 2_000, 9_000, 200) > 900);
        assert_eq!(halves(DOUBTED * PRODUCTS, 10_000, 1_000_000, 2_230_000, 100), 1);
        assert_eq!(halves(PRODUCTS, 10_000, 300_000, 2_000, 512), 9);
    }
}
