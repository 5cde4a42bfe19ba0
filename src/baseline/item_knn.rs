//! The training matrix goes in; item-based neighbours come out, by cosine similarity with shrinkage:
//! `|i ∩ j| / (√|i||j| + s)`, where i and j are the sets of training contexts of two actions.

use rayon::prelude::*;

use super::asked::{Asked, Fitted, Training, count_shared};
use crate::device::available_memory;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::retrieval::{Slates, best_of_scores};

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
        let size = |action| contexts_of.of(action).len() as f32;
        let neighbours_of = contexts_of.contexts().into_par_iter().map_init(
            || (vec![0_u32; contexts_of.len()], Vec::new()),
            |(counts, others), action| {
                interrupt::check()?;
                count_shared(contexts_of.of(action), &training.actions_of, |other| {
                    if counts[other as usize] == 0 {
                        others.push(other);
                    }
                    counts[other as usize] += 1;
                });
                others.sort_unstable();
                let similar = others.drain(..).filter_map(|other| {
                    let shared = std::mem::take(&mut counts[other as usize]) as f32;
                    let norms = (size(action) * size(other)).sqrt();
                    (other != action).then(|| (other, shared / (norms + shrinkage)))
                });
                Ok(most_similar(&similar.collect::<Vec<_>>(), neighbours))
            },
        );
        Ok(Self(neighbours_of.collect::<Result<_>>()?))
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

/// The `count` most similar, by falling similarity; `similar` is in order of ascending action.
fn most_similar(similar: &[(u32, f32)], count: usize) -> Vec<(u32, f32)> {
    let count = count.min(similar.len());
    let similarities: Vec<f32> = similar.iter().map(|(_, similarity)| *similarity).collect();
    let (mut places, mut best) = (vec![0; count], vec![0.0; count]);
    best_of_scores(&similarities, &[], &mut places, &mut best);
    places.iter().map(|&place| similar[place as usize]).collect()
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
