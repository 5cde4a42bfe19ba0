//! Training interactions go in; the most popular actions come out, for everybody.

use super::asked::{Asked, Fitted};
use crate::dataset::ActionSets;
use crate::error::Result;
use crate::retrieval::{Slates, best_of_scores, is_excluded};

/// All actions, by falling number of training contexts.
#[derive(Debug)]
pub(super) struct Popularity {
    actions: Vec<u32>,
    counts: Vec<f32>,
}

impl Popularity {
    pub(super) fn new(contexts_of: &ActionSets) -> Self {
        let count = |action| contexts_of.of(action).len() as f32;
        let unordered: Vec<f32> = contexts_of.contexts().map(count).collect();
        let (mut actions, mut counts) = (vec![0; unordered.len()], vec![0.0; unordered.len()]);
        best_of_scores(&unordered, &[], &mut actions, &mut counts);
        Self { actions, counts }
    }
}

impl Fitted for Popularity {
    fn slates(&self, asked: Asked<'_>) -> Result<Slates> {
        asked.check(self.actions.len())?;
        let (mut actions, mut scores) = (Vec::new(), Vec::new());
        for &context in asked.contexts {
            let excluded = asked.excluded(context);
            let ranked = self.actions.iter().zip(&self.counts);
            let shown = ranked.filter(|(action, _)| !is_excluded(excluded, **action));
            for (&action, &count) in shown.take(asked.slate_size) {
                actions.push(action);
                scores.push(count);
            }
        }
        Ok(Slates::new(asked.slate_size, actions, scores))
    }
}
