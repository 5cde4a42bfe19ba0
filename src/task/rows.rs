//! A task whose contexts are the rows of a log.

use std::sync::Arc;

use super::Task;
use crate::dataset::{ActionSets, Sessions, Split};
use crate::logged::Logged;
use crate::matrix::Matrix;

impl Task {
    /// The task of learning from a log: the contexts are its rows, and nothing is hidden. What a query
    /// earns is told by the rows' weights.
    #[must_use]
    pub fn on_log(self, logged: Arc<Logged>) -> Self {
        let known = ActionSets::filled(&vec![0; logged.len()], |_, _| {});
        let (parts, people) = (logged.parts.clone(), logged.people.clone());
        let task = self.on_rows(logged.contexts.clone(), known, parts, people);
        Self { logged: Some(logged), ..task }
    }

    /// The task whose contexts `[n, D]` are the rows of a log: `known` are the actions that each row's
    /// person is known by, `parts` says what a row is for, and `people` whose it is. Nothing is hidden.
    #[must_use]
    pub fn on_rows(
        self,
        contexts: Matrix,
        known: ActionSets,
        parts: Vec<Split>,
        people: Vec<u32>,
    ) -> Self {
        let sessions = Sessions {
            hidden: ActionSets::filled(&vec![0; parts.len()], |_, _| {}),
            observed: known,
            split: parts,
            num_actions: self.sessions.num_actions,
        };
        let before = Some(Arc::new(self.clone()));
        let sessions = Arc::new(sessions);
        let (contexts, people) = (Arc::new(contexts), Some(Arc::new(people)));
        Self { sessions, contexts, cross: None, order: None, before, people, ..self }
    }

    /// The persons whose contexts these are, where one person may have several.
    #[must_use]
    pub fn people_of(&self, contexts: &[u32]) -> Option<Vec<u32>> {
        let people = self.people.as_ref()?;
        Some(contexts.iter().map(|context| people[*context as usize]).collect())
    }

    /// The rows that the contexts are, if what a query earns is told by their weights.
    #[must_use]
    pub fn logged(&self) -> Option<&Logged> {
        self.logged.as_deref()
    }

    /// True if the contexts are the rows of a log.
    pub(super) fn is_on_log(&self) -> bool {
        self.before.is_some()
    }
}
