//! The training matrix A goes in, EASE comes out: the weights B with a zero diagonal that best
//! restore A from itself, `B_ij = −P_ij / P_jj` off the diagonal with `P = (AᵀA + λI)⁻¹`. The score
//! of an action is `(x B)_a`, where x is the indicator of X.
//!
//! If there are fewer training contexts than actions, P follows from the smaller inverse
//! `N = (AAᵀ + λI)⁻¹` by Woodbury's identity, `λP = I − AᵀNA`: with `q = x AᵀNA` and d the diagonal
//! of AᵀNA, the score is `(q_a − [a ∈ X] d_a) / (1 − d_a)`. A slate by N takes U² products, one by P
//! hardly any, so λP is made of N where there are many users to make slates for and memory for it.

use std::sync::Arc;

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, Par};
use rayon::prelude::*;

use super::asked::{Asked, Fitted, Training};
use super::inverse::inverse;
use crate::dataset::ActionSets;
use crate::device::available_memory;
use crate::embedding::count_shared;
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::retrieval::Slates;

/// EASE, through one of its two inverses.
#[derive(Debug)]
pub(super) enum Ease {
    /// The inverse over actions, `[P, P]`, times any number.
    OfActions(Matrix),
    /// The inverse over training contexts.
    OfContexts {
        /// N, `[U, U]`.
        inverse: Matrix,
        /// The training contexts of each action.
        contexts_of: Arc<ActionSets>,
        /// d, `[P]`.
        diagonal: Vec<f32>,
    },
}

impl Ease {
    /// Fits with λ = `ridge`. `gram` keeps the Gram matrix for the next λ.
    pub(super) fn new(training: &Training, gram: &mut Option<Matrix>, ridge: f32) -> Result<Self> {
        if !(ridge > 0.0 && ridge.is_finite()) {
            return Err(Error::setting("ease.ridge", format!("is {ridge}, expected more than 0")));
        }
        let (contexts, actions) = (training.actions_of.len(), training.num_actions());
        let size = contexts.min(actions);
        // The Gram matrix, if it is not there yet, its Cholesky factor and the inverse.
        let copies = if gram.is_some() { 2.0 } else { 3.0 };
        let needed = copies * 4.0 * (size as f64).powi(2);
        if let Some(available) = available_memory().filter(|available| *available < needed) {
            let problem = format!(
                "takes {copies} dense matrices with a row and a column for each of the {actions} \
                 actions or the {contexts} training users, whichever are fewer: {:.1} GB of memory, \
                 and {:.1} GB are available",
                needed / 1e9,
                available / 1e9
            );
            return Err(Error::setting("ease", problem));
        }
        let contexts_of = &training.contexts_of;
        let of_actions = actions <= contexts;
        let (near, far) = if of_actions {
            (contexts_of.as_ref(), &training.actions_of)
        } else {
            (&training.actions_of, contexts_of.as_ref())
        };
        let mut regularized = gram.get_or_insert_with(|| self::gram(near, far)).clone();
        for i in 0..size {
            regularized.row_mut(i)[i] += ridge;
        }
        let inverse = inverse(regularized)?;
        if of_actions {
            return Ok(Self::OfActions(inverse));
        }
        if pays(training) {
            return Ok(Self::OfActions(by_woodbury(&inverse, contexts_of)));
        }
        let contexts_of = Arc::clone(contexts_of);
        let diagonal = contexts_of.contexts().into_par_iter();
        let diagonal = diagonal.map(|action| sum_within(&inverse, contexts_of.of(action)));
        let diagonal = diagonal.collect();
        Ok(Self::OfContexts { inverse, contexts_of, diagonal })
    }
}

/// The number of members that any two of the sets `near` share, `[N, N]`; `far` lists the sets of
/// each member.
fn gram(near: &ActionSets, far: &ActionSets) -> Matrix {
    let mut gram = Matrix::zeros(near.len(), near.len());
    gram.par_rows_mut().zip(near.contexts()).for_each(|(row, set)| {
        count_shared(near.of(set), far, |other| row[other as usize] += 1.0);
    });
    gram
}

/// True if slates by N for a tenth of the training contexts take longer than λP, and λP takes at most half of
/// the memory that is left.
fn pays(training: &Training) -> bool {
    let (contexts, actions) = (training.actions_of.len() as f64, training.num_actions() as f64);
    let by_contexts = contexts.powi(2) * (contexts / 10.0);
    let of_actions = actions * training.actions_of.num_pairs() as f64;
    by_contexts > of_actions
        && available_memory().is_none_or(|available| 8.0 * actions.powi(2) < available)
}

/// λP, `I − AᵀNA`, `[P, P]`.
fn by_woodbury(inverse: &Matrix, contexts_of: &ActionSets) -> Matrix {
    let mut product = Matrix::zeros(contexts_of.len(), contexts_of.len());
    product.par_rows_mut().zip(contexts_of.contexts()).for_each_init(
        || vec![0.0; inverse.rows()],
        |sum, (row, action)| {
            sum.fill(0.0); // a row of AᵀN
            for &context in contexts_of.of(action) {
                let row = inverse.row(context as usize);
                sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
            }
            for (value, other) in row.iter_mut().zip(contexts_of.contexts()) {
                let contexts = contexts_of.of(other).iter();
                *value = -contexts.map(|&context| sum[context as usize]).sum::<f32>();
            }
            let own = &mut row[action as usize];
            *own = free(-*own);
        },
    );
    product
}

/// The sum of a symmetric matrix over all pairs of members of `set`.
#[allow(clippy::cast_possible_truncation, reason = "the summands are f32")]
fn sum_within(matrix: &Matrix, set: &[u32]) -> f32 {
    let among = |row: &[f32]| set.iter().map(|&at| f64::from(row[at as usize])).sum::<f64>();
    set.iter().map(|&at| among(matrix.row(at as usize))).sum::<f64>() as f32
}

impl Fitted for Ease {
    fn slates(&self, asked: Asked<'_>) -> Result<Slates> {
        match self {
            Self::OfActions(inverse) => asked.ranked(inverse.rows(), |contexts| {
                move |at, scores| of_actions(inverse, asked.observed.of(contexts[at]), scores)
            }),
            Self::OfContexts { inverse, contexts_of, diagonal } => {
                asked.ranked(diagonal.len(), |contexts| {
                    let observed = |at: usize| asked.observed.of(contexts[at]);
                    let weights = weights(inverse, contexts_of, contexts.len(), observed);
                    move |at, scores| {
                        for ((score, action), own) in scores.iter_mut().zip(0..).zip(diagonal) {
                            let users = contexts_of.of(action).iter();
                            let sum: f32 = users.map(|&user| weights.row(at)[user as usize]).sum();
                            *score = sum / free(*own);
                        }
                        for &action in observed(at) {
                            let own = diagonal[action as usize];
                            scores[action as usize] -= own / free(own);
                        }
                    }
                })
            }
        }
    }
}

/// `1 − d`, which is λ P_aa; above zero whatever the rounding.
fn free(own: f32) -> f32 {
    (1.0 - own).max(f32::EPSILON)
}

/// Writes `−(x P)_a / P_aa`, plus 1 for actions in X, because `B_aa = 0`.
fn of_actions(inverse: &Matrix, observed: &[u32], scores: &mut [f32]) {
    scores.fill(0.0);
    for &action in observed {
        let row = inverse.row(action as usize);
        scores.iter_mut().zip(row).for_each(|(score, value)| *score -= value);
    }
    for (action, score) in scores.iter_mut().enumerate() {
        *score /= inverse.row(action)[action];
    }
    for &action in observed {
        scores[action as usize] += 1.0;
    }
}

/// `x AᵀN` for `count` contexts, `[count, U]`.
fn weights<'a>(
    inverse: &Matrix,
    contexts_of: &ActionSets,
    count: usize,
    observed: impl Fn(usize) -> &'a [u32],
) -> Matrix {
    let users = inverse.rows();
    let mut shared = Matrix::zeros(count, users); // x Aᵀ
    for at in 0..count {
        let row = shared.row_mut(at);
        count_shared(observed(at), contexts_of, |user| row[user as usize] += 1.0);
    }
    let mut weights = Matrix::zeros(count, users);
    let out = MatMut::from_row_major_slice_mut(weights.as_mut_slice(), count, users);
    // One thread here: the chunks of contexts run in parallel.
    let (shared, inverse) = (shared.view(0, count), inverse.view(0, users));
    matmul(out, Accum::Replace, shared, inverse, 1.0, Par::Seq);
    weights
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::{SplitSettings, SyntheticSettings, assemble, synthetic};
    use crate::seed::Seed;

    #[test]
    fn both_inverses_make_the_same_scores() {
        let settings = SyntheticSettings { users: 80, actions: 300, ..Default::default() };
        let dataset = assemble(synthetic(&settings).unwrap(), &SplitSettings::default()).unwrap();
        let training = Training::new(&dataset.sessions, Seed(0));
        let ridge = 20.0;
        let Ease::OfContexts { inverse, contexts_of, .. } =
            Ease::new(&training, &mut None, ridge).unwrap()
        else {
            panic!("64 training users do not pay for a matrix of 300 actions");
        };
        let made = by_woodbury(&inverse, &contexts_of);
        let mut regularized = gram(&contexts_of, &training.actions_of);
        let actions = training.num_actions();
        (0..actions).for_each(|action| regularized.row_mut(action)[action] += ridge);
        let direct = super::inverse(regularized).unwrap();
        let (mut scores, mut expected) = (vec![0.0; actions], vec![0.0; actions]);
        for context in 0..5 {
            let observed = training.actions_of.of(context);
            of_actions(&made, observed, &mut scores);
            of_actions(&direct, observed, &mut expected);
            for (score, expected) in scores.iter().zip(&expected) {
                assert!((score - expected).abs() < 1e-4, "{score}, expected {expected}");
            }
        }
    }
}
