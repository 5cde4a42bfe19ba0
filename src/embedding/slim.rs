//! The training matrix goes in; weights of few other actions come out, by which these tell whether a context has an action:
//! sparse linear methods (SLIM; Ning & Karypis, ICDM 2011) with the most similar actions as features, as their fsSLIM has them,
//! and without its L1 penalty and its sign.
//!
//! The weights `w` `[C]` that the most similar actions C of action j have minimise
//!
//! ```text
//! ‖a_j − Σ_{i ∈ C} w_i a_i‖² + λ‖w‖²
//! ```
//!
//! where `a_i` is the column of i in the training matrix. EASE minimises the same with all other actions in C.

use rayon::prelude::*;

use crate::dataset::ActionSets;
use crate::embedding::similar::most_similar;
use crate::error::Result;
use crate::interrupt;

/// s of the similarities by which features are chosen: without it, actions of one and the same context come first.
const SHRINKAGE: f32 = 10.0;
/// Rounds over the weights of an action, at most, and the largest change of a weight in the last one.
const ROUNDS: usize = 30;
const ENOUGH: f32 = 1e-3;

/// The most similar actions of each action, found once for regressions on fewer of them.
#[derive(Debug)]
pub struct Slim {
    /// The other actions, by falling similarity, `[P]`.
    near: Vec<Vec<u32>>,
    /// The contexts of each action, `[P]`.
    contexts_of: ActionSets,
    num_contexts: usize,
}

impl Slim {
    /// Finds up to `most` of each action in a `[contexts, num_actions]` matrix.
    ///
    /// # Errors
    /// [`Error::Interrupted`](crate::Error::Interrupted).
    pub fn new(matrix: &ActionSets, num_actions: usize, most: usize) -> Result<Self> {
        let contexts_of = matrix.transposed(num_actions);
        let similar = most_similar([matrix, &contexts_of], most, SHRINKAGE)?;
        let ids = |similar: Vec<(u32, f32)>| similar.into_iter().map(|(other, _)| other).collect();
        let near = similar.into_iter().map(ids).collect();
        Ok(Self { near, contexts_of, num_contexts: matrix.len() })
    }

    /// Contexts of each action, `[P]`.
    #[must_use]
    pub fn popularity(&self) -> Vec<u32> {
        let sizes = self.contexts_of.contexts().map(|action| self.contexts_of.of(action).len());
        sizes.map(|size| u32::try_from(size).unwrap_or(u32::MAX)).collect()
    }

    /// The weights of the `count` most similar actions of each action, `[P]`, at λ = `ridge`; no more of them than
    /// were found.
    ///
    /// # Errors
    /// [`Error::Interrupted`](crate::Error::Interrupted).
    pub fn weights(&self, count: usize, ridge: f32) -> Result<Vec<Vec<(u32, f32)>>> {
        let of_action = |residuals: &mut Vec<f32>, (action, near): (usize, &Vec<u32>)| {
            interrupt::check()?;
            let near = &near[..count.min(near.len())];
            #[allow(clippy::cast_possible_truncation, reason = "an action")]
            let weights = self.regress(action as u32, near, ridge, residuals);
            Ok(near.iter().copied().zip(weights).collect())
        };
        let residuals = || vec![0.0; self.num_contexts];
        self.near.par_iter().enumerate().map_init(residuals, of_action).collect()
    }

    /// By coordinate descent. `residuals` `[contexts]` are 0 before and after.
    fn regress(&self, action: u32, near: &[u32], ridge: f32, residuals: &mut [f32]) -> Vec<f32> {
        let contexts = |action: u32| self.contexts_of.of(action);
        for &context in contexts(action) {
            residuals[context as usize] = 1.0;
        }
        let mut weights = vec![0.0; near.len()];
        for _ in 0..ROUNDS {
            let mut largest = 0.0_f32;
            for (weight, &other) in weights.iter_mut().zip(near) {
                let contexts = contexts(other);
                let sum: f32 = contexts.iter().map(|&context| residuals[context as usize]).sum();
                let size = contexts.len() as f32;
                let change = (sum + size * *weight) / (size + ridge) - *weight;
                *weight += change;
                for &context in contexts {
                    residuals[context as usize] -= change;
                }
                largest = largest.max(change.abs());
            }
            if largest < ENOUGH {
                break;
            }
        }
        for &action in near.iter().chain([&action]) {
            for &context in contexts(action) {
                residuals[context as usize] = 0.0;
            }
        }
        weights
    }
}

#[cfg(test)]
mod tests {
    use faer::Mat;
    use faer::linalg::solvers::{FullPivLu, Solve};

    use super::*;
    use crate::embedding::tastes::{assert_same_on_any_threads, users_of};

    const ITEMS: usize = 40;

    #[test]
    fn the_weights_solve_the_normal_equations_of_the_most_similar() {
        let matrix = users_of(5, 200, 8, 9);
        let found = Slim::new(&matrix, ITEMS, 12).unwrap();
        let contexts_of = matrix.transposed(ITEMS);
        let similar = most_similar([&matrix, &contexts_of], 7, SHRINKAGE).unwrap();
        let shared = |i: u32, j: u32| {
            let of_both = contexts_of.of(i).iter().filter(|user| matrix.contains(**user, j));
            of_both.count() as f64
        };
        for ridge in [2.0_f32, 30.0] {
            for (j, weights) in (0_u32..).zip(found.weights(7, ridge).unwrap()) {
                let near: Vec<u32> = weights.iter().map(|(other, _)| *other).collect();
                let expected = similar[j as usize].iter().map(|(other, _)| *other);
                assert!(near.iter().copied().eq(expected) && near.len() == 7);
                let gram = Mat::from_fn(near.len(), near.len(), |a, b| {
                    let ridge = if a == b { f64::from(ridge) } else { 0.0 };
                    shared(near[a], near[b]) + ridge
                });
                let own = Mat::from_fn(near.len(), 1, |a, _| shared(near[a], j));
                let exact = FullPivLu::new(gram.as_ref()).solve(&own);
                for (at, (_, weight)) in weights.into_iter().enumerate() {
                    assert!(
                        (f64::from(weight) - exact[(at, 0)]).abs() < 0.01,
                        "{weight} {exact:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_weights_are_the_same_on_any_threads() {
        let matrix = users_of(5, 60, 8, 9);
        assert_same_on_any_threads(|| {
            Slim::new(&matrix, ITEMS, 5).unwrap().weights(5, 3.0).unwrap()
        });
    }
}
