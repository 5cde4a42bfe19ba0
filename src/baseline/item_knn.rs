//! Item-based neighbours: cosine similarity with shrinkage, `|i ∩ j| / (√|i||j| + s)` of the
//! training contexts of two actions.

use rayon::prelude::*;

use super::{Asked, Fitted, Fitter, count_shared};
use crate::error::{Error, Result};
use crate::retrieval::{Slates, best_of_scores};

/// The most similar actions of each action, in one list.
#[derive(Debug)]
pub(super) struct ItemKnn {
    /// Where the neighbours of each action end, `[P]`, in ascending order.
    ends: Vec<usize>,
    neighbours: Vec<(u32, f32)>,
}

impl Fitter {
    pub(super) fn item_knn(&self, neighbours: usize, shrinkage: f32) -> Result<ItemKnn> {
        if neighbours == 0 {
            return Err(Error::setting("item-knn.neighbours", "is 0, expected at least 1"));
        }
        if !(shrinkage >= 0.0 && shrinkage.is_finite()) {
            let problem = format!("is {shrinkage}, expected a number of at least 0");
            return Err(Error::setting("item-knn.shrinkage", problem));
        }
        let contexts_of = self.contexts_of.as_ref();
        let size = |action| contexts_of.of(action).len() as f32;
        let of_each: Vec<Vec<(u32, f32)>> = contexts_of
            .contexts()
            .into_par_iter()
            .map_init(
                || (vec![0_u32; contexts_of.len()], Vec::new()),
                |(counts, others), action| {
                    count_shared(contexts_of.of(action), &self.training, |other| {
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
            )
            .collect();
        let ends = of_each.iter().scan(0, |end, similar| {
            *end += similar.len();
            Some(*end)
        });
        Ok(ItemKnn { ends: ends.collect(), neighbours: of_each.concat() })
    }
}

/// The first `count` of `similar`, which is by ascending action, by falling similarity.
fn most_similar(similar: &[(u32, f32)], count: usize) -> Vec<(u32, f32)> {
    let count = count.min(similar.len());
    let similarities: Vec<f32> = similar.iter().map(|(_, similarity)| *similarity).collect();
    let (mut places, mut best) = (vec![0; count], vec![0.0; count]);
    best_of_scores(&similarities, &[], &mut places, &mut best);
    places.iter().map(|&place| similar[place as usize]).collect()
}

impl ItemKnn {
    fn of(&self, action: u32) -> &[(u32, f32)] {
        let action = action as usize;
        let start = if action == 0 { 0 } else { self.ends[action - 1] };
        &self.neighbours[start..self.ends[action]]
    }
}

impl Fitted for ItemKnn {
    fn slates(&self, asked: Asked<'_>) -> Result<Slates> {
        asked.ranked(self.ends.len(), |contexts| {
            move |at, scores| {
                scores.fill(0.0);
                for &action in asked.observed.of(contexts[at]) {
                    for &(other, similarity) in self.of(action) {
                        scores[other as usize] += similarity;
                    }
                }
            }
        })
    }
}
