//! Users of a split in, what a recommender earns from them out: each is asked about several halves of the
//! own items where they are few and another answer costs little.
//!
//! On small logs a hundred users validate. By one half of their items each, they could not tell a gain of
//! three percent from chance, and the start was served in its place.

use std::borrow::Cow;

use super::Evaluation;
use crate::dataset::Split;
use crate::error::Result;
use crate::seed::Seed;
use crate::task::Task;

/// The inner products for which users are asked again.
const PRODUCTS: usize = 100_000_000;

/// Users who judge, and how often each is asked.
#[derive(Clone, Debug)]
pub struct Judges<'a> {
    task: &'a Task,
    split: Split,
    contexts: Vec<u32>,
    halves: u64,
    seed: Seed,
}

impl<'a> Judges<'a> {
    /// These `contexts` of a split, asked once.
    #[must_use]
    pub fn new(task: &'a Task, split: Split, contexts: Vec<u32>) -> Self {
        Self { task, split, contexts, halves: 1, seed: Seed::default() }
    }

    /// Asked about up to so many `halves` of their items each, but for no more answers than `most`; about one
    /// where they have no others. The seed draws them.
    #[must_use]
    pub fn asked(self, halves: u64, most: usize, seed: Seed) -> Self {
        let (users, actions) = (self.contexts.len().max(1), self.task.sessions.num_actions.max(1));
        let affordable = (PRODUCTS / actions).min(most) / users;
        let has_others = self.task.has_other_halves(self.split);
        let halves = if has_others { halves.min(affordable as u64).max(1) } else { 1 };
        Self { halves, seed, ..self }
    }

    /// The halves that each of them is asked about.
    #[must_use]
    pub fn halves(&self) -> u64 {
        self.halves
    }

    /// The contexts.
    #[must_use]
    pub fn contexts(&self) -> &[u32] {
        &self.contexts
    }

    /// The task.
    #[must_use]
    pub fn task(&self) -> &'a Task {
        self.task
    }

    /// A task of the same users with each of the halves that they are asked about: first those that it has.
    pub fn tasks<'t>(&self, of: &'t Task) -> impl Iterator<Item = Cow<'t, Task>> {
        let (split, seed) = (self.split, self.seed);
        let others = (1..self.halves).map_while(move |draw| of.redrawn(split, seed, draw));
        std::iter::once(Cow::Borrowed(of)).chain(others.map(Cow::Owned))
    }

    /// The mean of what `evaluate` finds on each of the halves.
    ///
    /// # Errors
    /// Those of `evaluate`.
    pub fn evaluate(
        &self,
        evaluate: impl Fn(&Task, &[u32]) -> Result<Evaluation>,
    ) -> Result<Evaluation> {
        Evaluation::mean_of(self.tasks(self.task).map(|task| evaluate(&task, &self.contexts)))
    }
}
