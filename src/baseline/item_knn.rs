//! The training matrix goes in; a score by the most similar actions of those that a context has comes out
//! ([`most_similar`]).

use rayon::prelude::*;

use super::asked::{Asked, Fitted, Training};
use crate::device::available_memory;
use crate::embedding::most_similar;
use crate::error::{Error, Result};
use crate::retrieval::Slates;

/// The most similar actions of each action with their similarities, `[P]`.
#[derive(Debug)]
pub(super) struct ItemKnn(Vec<Vec<(u32, f32)>>);

impl ItemKnn {
    pub(super) fn new(training: &Training, neighbours: usize, shrinkage: f32) -> Result<Self> {
        if neighbours == 0 {
            return Err(Error::setting("item-knn.neighbours", "is 0, expected at least 1"));
        }
        if !(shrinkage >= 0.0 && shrinkage.is_finite()) {
            let problem = format!("is {shrinkage}, expected a number of at least 0");
            return Err(Error::setting("item-knn.shrinkage", problem));
        }
        let contexts_of = training.contexts_of.as_ref();
        let needed = bytes(training, neighbours);
        if let Some(available) = available_memory().filter(|available| *available < needed) {
            let problem = format!(
                "keeping {neighbours} neighbours of {} items takes up to {:.1} GB of memory, and {:.1} GB \
                 are available; ask for fewer, as in item-knn:neighbours=20",
                contexts_of.len(),
                needed / 1e9,
                available / 1e9
            );
            return Err(Error::setting("item-knn", problem));
        }
        let sides = [&training.actions_of, contexts_of];
        Ok(Self(most_similar(sides, neighbours, shrinkage)?))
    }
}

/// The bytes of the neighbours at most: an action has no more than its contexts have other actions.
fn bytes(training: &Training, neighbours: usize) -> f64 {
    let others_of = |action: u32| -> usize {
        let contexts = training.contexts_of.of(action).iter();
        contexts.map(|context| training.actions_of.of(*context).len() - 1).sum()
    };
    let pairs = training.contexts_of.contexts().into_par_iter();
    let pairs: usize = pairs.map(|action| others_of(action).min(neighbours)).sum();
    (pairs * size_of::<(u32, f32)>()) as f64
}

impl Fitted for ItemKnn {
    fn slates(&self, asked: Asked<'_>) -> Result<Slates> {
        asked.ranked(self.0.len(), |contexts| {
            move |at, scores| {
                scores.fill(0.0);
                for &action in asked.observed.of(contexts[at]) {
                    for &(other, similarity) in &self.0[action as usize] {
                        scores[other as usize] += similarity;
                    }
                }
            }
        })
    }
}
