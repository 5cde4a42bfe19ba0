//! Logged slates → a linear model of the outcome of an action at a position in a context, which is asked
//! for slates that were never shown. A row is judged by a model that was fitted without it.

use std::sync::Arc;

use faer::linalg::matmul::matmul;
use faer::linalg::solvers::{Llt, Solve as _};
use faer::{Accum, Mat, Par, Side};
use rayon::prelude::*;

use super::Shown;
use crate::embedding::ActionEmbeddings;
use crate::error::{Error, Result};
use crate::matrix::{Matrix, dot, norm};
use crate::reward::SlateReward;
use crate::seed::{Purpose, Seed};

/// Folds of the rows.
const FOLDS: u32 = 5;

/// The ridge of a feature counts as so many positions with the feature's mean square.
const RIDGE: f64 = 10.0;

/// The most elementwise products among the features.
const PRODUCTS: usize = 32;

/// The most parts of a sum over rows; their order does not depend on the number of threads.
const PARTS: usize = 16;

/// Positions whose features are held at once.
const PIECE: usize = 1024;

/// `Σ_k q(x, a_k, k)`, where q is a ridge regression of the outcome on features of the context, the
/// action and the position.
///
/// With the leading `min(D, L)` columns of x and β_a, the features are 1, an effect of each position,
/// an effect of each position times xᵀβ_a, ‖β_a‖, and the leading products x_l β_al. The rows are
/// divided into folds, and a row is judged by the model of the rows to train on in the other folds. The reward is as wrong as
/// the model is: it needs no propensities and corrects nothing.
#[derive(Clone, Debug)]
pub struct Direct {
    features: Features,
    /// The fold of each row, `[n]`.
    fold_of: Vec<u32>,
    /// The weights of each fold's rows, `[F]`.
    models: Vec<Vec<f64>>,
}

impl Direct {
    /// Fits the models on `shown`; `actions` is β `[P, L]`, and `seed` divides the rows.
    ///
    /// # Errors
    /// [`Error::Library`] if the numbers are so large that the regression overflows.
    pub fn fit(shown: &Shown, actions: &Arc<ActionEmbeddings>, seed: Seed) -> Result<Self> {
        let features = Features::new(shown, actions);
        let mut stream = seed.stream(Purpose::Folds, 1, 0);
        let fold_of: Vec<u32> = (0..shown.rows()).map(|_| stream.below(FOLDS)).collect();
        let moments: Vec<Moments> = (0..FOLDS)
            .map(|fold| {
                let is_of = |row: &usize| fold_of[*row] == fold && shown.is_fitted(*row);
                let rows: Vec<usize> = (0..shown.rows()).filter(is_of).collect();
                features.moments(shown, &rows)
            })
            .collect();
        let mut all = Moments::none(features.len());
        for fold in &moments {
            all.add(fold);
        }
        let models = moments.iter().map(|fold| all.without(fold).solve());
        let models = models.collect::<Result<_>>()?;
        Ok(Self { features, fold_of, models })
    }

    /// q of an action at a position, for the context of a row.
    #[must_use]
    pub fn outcome(&self, row: u32, action: u32, position: usize) -> f32 {
        let mut sum = 0.0;
        let weights = self.model(row);
        self.features.each(row as usize, action, position, |at, value| sum += weights[at] * value);
        #[allow(clippy::cast_possible_truncation, reason = "rewards are f32")]
        let sum = sum as f32;
        sum
    }

    fn model(&self, row: u32) -> &[f64] {
        &self.models[self.fold_of[row as usize] as usize]
    }
}

impl SlateReward for Direct {
    fn reward(&self, context: u32, slate: &[u32]) -> f32 {
        let outcomes = slate.iter().enumerate();
        outcomes.fold(0.0, |sum, (position, action)| sum + self.outcome(context, *action, position))
    }
}

/// φ(x, a, k), `[F]`.
#[derive(Clone, Debug)]
struct Features {
    /// The leading columns of the contexts, `[n, min(D, L)]`.
    contexts: Matrix,
    actions: Arc<ActionEmbeddings>,
    slate_size: usize,
}

impl Features {
    fn new(shown: &Shown, actions: &Arc<ActionEmbeddings>) -> Self {
        let shared = shown.contexts.cols().min(actions.latent_dim());
        Self {
            contexts: shown.contexts.resized(shared),
            actions: Arc::clone(actions),
            slate_size: shown.slate_size,
        }
    }

    /// F.
    fn len(&self) -> usize {
        2 + 2 * self.slate_size + self.contexts.cols().min(PRODUCTS)
    }

    /// Passes the features that are not 0 by their place to `each`. Positions beyond those of the log
    /// have no effect of their own.
    fn each(&self, row: usize, action: u32, position: usize, mut each: impl FnMut(usize, f64)) {
        let size = self.slate_size;
        let (x, whole) = (self.contexts.row(row), self.actions.row(action));
        let beta = &whole[..x.len()];
        each(0, 1.0);
        if position < size {
            each(1 + position, 1.0);
            each(1 + size + position, f64::from(dot(x, beta)));
        }
        each(1 + 2 * size, f64::from(norm(whole)));
        for (at, (x, beta)) in x.iter().zip(beta).take(PRODUCTS).enumerate() {
            each(2 + 2 * size + at, f64::from(*x) * f64::from(*beta));
        }
    }

    /// The moments over the positions of `rows`.
    fn moments(&self, shown: &Shown, rows: &[usize]) -> Moments {
        let part = rows.len().div_ceil(PARTS).max(1);
        let parts = rows.par_chunks(part).map(|rows| {
            let mut moments = Moments::none(self.len());
            for rows in rows.chunks((PIECE / self.slate_size).max(1)) {
                let mut panel = Mat::zeros(rows.len() * self.slate_size, self.len());
                let mut outcomes = Mat::zeros(panel.nrows(), 1);
                for (line, row) in rows.iter().enumerate() {
                    for position in 0..self.slate_size {
                        let (line, at) =
                            (line * self.slate_size + position, row * self.slate_size + position);
                        outcomes[(line, 0)] = f64::from(shown.outcomes[at]);
                        self.each(*row, shown.slates[at], position, |column, value| {
                            panel[(line, column)] = value;
                        });
                    }
                }
                let (to, across) = (moments.gram.as_mut(), panel.transpose());
                matmul(to, Accum::Add, across, panel.as_ref(), 1.0, Par::Seq);
                let to = moments.target.as_mut();
                matmul(to, Accum::Add, across, outcomes.as_ref(), 1.0, Par::Seq);
            }
            moments
        });
        let parts: Vec<Moments> = parts.collect();
        let mut all = Moments::none(self.len());
        for part in &parts {
            all.add(part);
        }
        all
    }
}

/// What a regression needs of its rows.
struct Moments {
    /// `Σ φφᵀ`, `[F, F]`.
    gram: Mat<f64>,
    /// `Σ φ y`, `[F, 1]`.
    target: Mat<f64>,
}

impl Moments {
    fn none(size: usize) -> Self {
        Self { gram: Mat::zeros(size, size), target: Mat::zeros(size, 1) }
    }

    fn add(&mut self, other: &Self) {
        self.gram += &other.gram;
        self.target += &other.target;
    }

    fn without(&self, other: &Self) -> Self {
        Self { gram: &self.gram - &other.gram, target: &self.target - &other.target }
    }

    /// The weights; 0 for a feature that is 0 everywhere. The constant has no ridge.
    fn solve(mut self) -> Result<Vec<f64>> {
        let count = self.gram[(0, 0)];
        for at in 0..self.gram.nrows() {
            let square = self.gram[(at, at)];
            self.gram[(at, at)] += match at {
                _ if square <= f64::EPSILON * count => 1.0,
                0 => 0.0,
                _ => RIDGE * square / count,
            };
        }
        let factor = Llt::new(self.gram.as_ref(), Side::Lower).map_err(|error| {
            Error::library("fitting the direct model of a log", format!("{error:?}"))
        })?;
        let weights = factor.solve(&self.target);
        Ok((0..weights.nrows()).map(|at| weights[(at, 0)]).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{actions, drawn};
    use super::*;

    /// Outcomes that are a linear function of the features, without noise.
    fn linear(rows: usize) -> Shown {
        let (mut shown, beta) = (drawn(rows, |_, _, _| 0.5), actions());
        for at in 0..shown.outcomes.len() {
            let (x, position) = (shown.contexts.row(at / 3), (at % 3) as f32);
            let inner = dot(x, beta.row(shown.slates[at]));
            shown.outcomes[at] = 0.5 - 0.1 * position + (0.4 - 0.1 * position) * inner;
        }
        shown
    }

    #[test]
    fn it_finds_a_linear_function() {
        let (shown, beta) = (linear(4000), actions());
        let direct = Direct::fit(&shown, &beta, Seed(1)).unwrap();
        for row in [0, 17, 3999] {
            let x = shown.contexts.row(row as usize);
            for (action, position) in [(0, 0), (1, 2), (4, 1)] {
                let inner = dot(x, beta.row(action));
                let at = position as f32;
                let expected = 0.5 - 0.1 * at + (0.4 - 0.1 * at) * inner;
                let found = direct.outcome(row, action, position);
                assert!((found - expected).abs() < 0.01, "{found} {expected}");
            }
            let slate = [3, 1, 0];
            let sum: f32 = (0..3).map(|at| direct.outcome(row, slate[at], at)).sum();
            assert_eq!(direct.reward(row, &slate), sum);
            // Longer slates than those of the log are no reason to panic.
            assert!(direct.reward(row, &[0, 1, 2, 3, 4]).is_finite());
        }
    }

    #[test]
    fn a_row_is_judged_without_its_own_outcomes() {
        let mut shown = linear(40);
        let before = Direct::fit(&shown, &actions(), Seed(1)).unwrap();
        for row in 0..40_u32 {
            let places = 3 * row as usize..3 * row as usize + 3;
            let outcomes = shown.outcomes[places.clone()].to_vec();
            shown.outcomes[places.clone()].fill(100.0);
            let after = Direct::fit(&shown, &actions(), Seed(1)).unwrap();
            let found = after.reward(row, &[0, 1, 2]);
            assert!((found - before.reward(row, &[0, 1, 2])).abs() < 1e-4, "{row}: {found}");
            shown.outcomes[places].copy_from_slice(&outcomes);
        }
    }

    #[test]
    fn the_model_is_the_same_on_any_number_of_threads() {
        let shown = linear(3000);
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| Direct::fit(&shown, &actions(), Seed(1)).unwrap().models)
        };
        assert_eq!(run(1), run(3));
    }

    #[test]
    fn a_log_of_one_row_and_wide_contexts_are_fitted_too() {
        let one = drawn(1, |_, _, _| 1.0);
        let direct = Direct::fit(&one, &actions(), Seed(0)).unwrap();
        assert_eq!(direct.reward(0, &[0, 1, 2]), 0.0);
        let wide = Shown { contexts: linear(200).contexts.resized(7), ..linear(200) };
        let direct = Direct::fit(&wide, &actions(), Seed(0)).unwrap();
        assert!(direct.reward(5, &[0, 1, 2]).is_finite());
    }
}
