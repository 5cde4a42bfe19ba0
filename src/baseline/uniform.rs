//! A seed goes in; slates of random actions come out.

use rayon::prelude::*;

use super::asked::{Asked, Fitted};
use crate::error::Result;
use crate::retrieval::{Slates, is_excluded};
use crate::seed::{Purpose, Seed};

#[derive(Debug)]
pub(super) struct Uniform {
    num_actions: u32,
    seed: Seed,
}

impl Uniform {
    pub(super) fn new(num_actions: usize, seed: Seed) -> Self {
        #[allow(clippy::cast_possible_truncation, reason = "actions are numbered by u32")]
        let num_actions = num_actions as u32;
        Self { num_actions, seed }
    }
}

impl Fitted for Uniform {
    fn slates(&self, asked: Asked<'_>) -> Result<Slates> {
        asked.check(self.num_actions as usize)?;
        let mut actions = vec![0; asked.contexts.len() * asked.slate_size];
        let slates = actions.par_chunks_mut(asked.slate_size).zip(asked.contexts);
        slates.for_each(|(slate, &context)| {
            let mut stream = self.seed.stream(Purpose::Uniform, 0, context.into());
            let excluded = asked.excluded(context);
            let mut shown = 0;
            while shown < slate.len() {
                let action = stream.below(self.num_actions);
                if !slate[..shown].contains(&action) && !is_excluded(excluded, action) {
                    slate[shown] = action;
                    shown += 1;
                }
            }
        });
        let scores = vec![0.0; actions.len()];
        Ok(Slates::new(asked.slate_size, actions, scores))
    }
}
