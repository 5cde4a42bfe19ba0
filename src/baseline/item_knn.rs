//! The training matrix goes in; item-based neighbours come out, by cosine similarity with shrinkage:
//! `|i ∩ j| / (√|i||j| + s)`, where i and j are the sets of training contexts of two actions.

use rayon::prelude::*;

use super::asked::{Asked, Fitted, Training, count_shared};
use crate::error::{Error, Result};
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
        let size = |action| contexts_of.of(action).len() as f32;
        let neighbours_of = contexts_of.contexts().into_par_iter().map_init(
            || (vec![0_u32; contexts_of.len()], Vec::new()),
            |(counts, others), action| {
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
                most_similar(&similar.collect::<Vec<_>>(), neighbours)
            },
        );
        Ok(Self(neighbours_of.collect()))
    }
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
