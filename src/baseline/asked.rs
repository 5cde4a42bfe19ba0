//! Contexts go in, slates come out: what every baseline is asked for, and what it was fitted on.

use std::fmt::Debug;
use std::sync::Arc;

use rayon::prelude::*;

use crate::dataset::{ActionSets, Sessions};
use crate::embedding::{SessionPart, training_matrix};
use crate::error::Result;
use crate::retrieval::{Slates, best_of_scores, check_slate_size};
use crate::seed::Seed;
use crate::task::Task;

/// The training matrix A, by rows and by columns, and the seed for random draws.
#[derive(Debug)]
pub(super) struct Training {
    /// The actions of each training context, X and Y.
    pub(super) actions_of: ActionSets,
    /// The training contexts of each action.
    pub(super) contexts_of: Arc<ActionSets>,
    pub(super) seed: Seed,
}

impl Training {
    pub(super) fn new(sessions: &Sessions, seed: Seed) -> Self {
        let actions_of = training_matrix(sessions, SessionPart::All);
        let contexts_of = Arc::new(actions_of.transposed(sessions.num_actions));
        Self { actions_of, contexts_of, seed }
    }

    /// P.
    pub(super) fn num_actions(&self) -> usize {
        self.contexts_of.len()
    }
}

/// The contexts that need slates, and what a baseline may know of them.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// X of every context; a baseline sees nothing else of it.
    pub observed: &'a ActionSets,
    /// The contexts that need slates.
    pub contexts: &'a [u32],
    /// K.
    pub slate_size: usize,
    /// True to keep a context's observed actions off its slate.
    pub exclude_observed: bool,
}

impl<'a> Asked<'a> {
    /// Asks for the slates that `task` asks of a policy.
    #[must_use]
    pub fn of(task: &'a Task, contexts: &'a [u32]) -> Self {
        Self {
            observed: &task.sessions.observed,
            contexts,
            slate_size: task.slate_size(),
            exclude_observed: task.excluded().is_some(),
        }
    }

    /// The actions that stay off the slate of `context`, ascending.
    pub(super) fn excluded(&self, context: u32) -> &'a [u32] {
        if self.exclude_observed { self.observed.of(context) } else { &[] }
    }

    /// Fails unless `num_actions` leave every context K actions to choose from.
    pub(super) fn check(&self, num_actions: usize) -> Result<()> {
        let most = self.contexts.iter().map(|context| self.excluded(*context).len()).max();
        check_slate_size(self.slate_size, num_actions, most.unwrap_or(0))
    }

    /// The slates of the highest scores. `score_among` receives a few contexts; the function that it
    /// returns receives a place among them and writes that context's scores of all actions, `[P]`.
    pub(super) fn ranked<S: FnMut(usize, &mut [f32])>(
        &self,
        num_actions: usize,
        score_among: impl Fn(&'a [u32]) -> S + Sync,
    ) -> Result<Slates> {
        self.check(num_actions)?;
        let slate_size = self.slate_size;
        let mut actions = vec![0; self.contexts.len() * slate_size];
        let mut scores = vec![0.0; actions.len()];
        self.contexts
            .par_chunks(CHUNK)
            .zip(actions.par_chunks_mut(CHUNK * slate_size))
            .zip(scores.par_chunks_mut(CHUNK * slate_size))
            .for_each_init(
                || vec![0.0; num_actions],
                |all, ((contexts, actions), scores)| {
                    let mut score = score_among(contexts);
                    let slates = actions.chunks_mut(slate_size).zip(scores.chunks_mut(slate_size));
                    for (at, (actions, scores)) in slates.enumerate() {
                        score(at, all);
                        best_of_scores(all, self.excluded(contexts[at]), actions, scores);
                    }
                },
            );
        Ok(Slates::new(slate_size, actions, scores))
    }
}

/// Contexts that a thread scores at once.
const CHUNK: usize = 64;

/// A fitted baseline.
pub trait Fitted: Send + Sync + Debug {
    /// The K actions of each context with the highest scores, best first, and the scores. Among
    /// equal scores the lower action comes first, which is the more popular one. The result does not
    /// depend on the number of threads.
    ///
    /// # Errors
    /// [`SlateTooLarge`](crate::Error::SlateTooLarge) if fewer than K actions are left for a context.
    fn slates(&self, asked: Asked<'_>) -> Result<Slates>;
}
