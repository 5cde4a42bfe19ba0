//! A baseline and seconds of wall-clock time go in; the fitted baseline comes out, with the
//! hyperparameters that earned most on the validation users.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::search::{Deadline, Judged, nearest, search};
use crate::baseline::{Asked, Baseline, Fitted, Fitter};
use crate::embedding::AlsOptions;
use crate::error::{Error, Result};
use crate::evaluation::{Evaluation, Panel};
use crate::seed::Seed;
use crate::task::Task;

/// A fitted baseline with the best hyperparameters that were found.
#[derive(Debug)]
pub struct TunedBaseline {
    /// The algorithm and the chosen hyperparameters.
    pub baseline: Baseline,
    /// The fitted recommender.
    pub fitted: Box<dyn Fitted>,
    /// Everything that was tried, in that order; empty without a budget, or without hyperparameters.
    pub tried: Vec<BaselineTrial>,
    /// True if one of them is at an end of the values that were worth trying.
    pub at_an_end: bool,
    /// Wall-clock time of all fits and evaluations.
    pub elapsed: Duration,
}

/// Hyperparameters and the reward they earned.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BaselineTrial {
    /// The fitted baseline and its hyperparameters.
    pub settings: Baseline,
    /// Mean reward on the validation users; none where the fit failed.
    pub reward: Option<f64>,
}

impl TunedBaseline {
    /// Fits `baseline` to the sessions of the panel's task, then the untried hyperparameters nearest to
    /// the best ones, within `budget` of wall-clock time, and keeps those that earn the most from
    /// `panel`. The first fit is always finished, so a budget of zero is a plain fit.
    ///
    /// # Errors
    /// Fails if `baseline` itself cannot be fitted, or if it cannot fill a slate.
    pub fn new(
        panel: &Panel<'_>,
        baseline: Baseline,
        budget: Duration,
        seed: Seed,
    ) -> Result<Self> {
        let deadline = Deadline::new(Instant::now(), Some(budget));
        let mut algorithms = Fitter::new(&panel.task().sessions, seed);
        let first = algorithms.limited(baseline);
        if budget.is_zero() || axes(first).is_empty() {
            let (fitted, tried) = (algorithms.fit(first)?, Vec::new());
            let elapsed = deadline.elapsed();
            return Ok(Self { baseline: first, fitted, tried, at_an_end: false, elapsed });
        }
        // Beyond a limit, all values are the limit.
        let mut left = grid(first);
        left.retain(|other| *other != first && algorithms.limited(*other) == *other);
        let mut best: Option<(f64, Baseline, Box<dyn Fitted>)> = None;
        let mut given = Some(first);
        let next = |best: Option<&Baseline>| {
            given.take().or_else(|| nearest(&mut left, places, best.unwrap_or(&first), usize::MAX))
        };
        let found = search(deadline, next, |&settings| {
            let fitted = match algorithms.fit(settings) {
                Ok(fitted) => fitted,
                Err(error @ Error::Interrupted) => return Err(error),
                Err(error) if best.is_none() => return Err(error),
                // Rounding may make a matrix singular that a larger λ does not.
                Err(_) => return Ok(Judged::Impossible),
            };
            let asked = |task: &Task, contexts: &[u32]| {
                Evaluation::by(task, contexts, |block| fitted.slates(Asked::of(task, block)))
            };
            let reward = panel.evaluate_items(asked)?.mean();
            if best.as_ref().is_none_or(|(highest, ..)| reward > *highest) {
                best = Some((reward, settings, fitted));
            }
            Ok(Judged::Reward(reward))
        })?;
        let (baseline, fitted) = match best {
            Some((_, baseline, fitted)) => (baseline, fitted),
            None => (first, algorithms.fit(first)?),
        };
        let trial = |&(settings, reward): &(Baseline, _)| BaselineTrial { settings, reward };
        let tried = found.tried.iter().map(trial).collect();
        let at_an_end = is_at_an_end(baseline);
        Ok(Self { baseline, fitted, tried, at_an_end, elapsed: deadline.elapsed() })
    }
}

const LATENT_DIMS: &[f64] = &[25.0, 50.0, 100.0, 200.0, 400.0, 800.0, 1600.0];
const ITERATIONS: &[f64] = &[5.0, 10.0, 15.0, 30.0];
const REGULARIZATIONS: &[f64] = &[0.01, 0.1, 1.0, 10.0, 30.0, 100.0, 300.0];
const CONFIDENCES: &[f64] = &[0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0];
const RIDGES: &[f64] = &[10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0];
const NEIGHBOURS: &[f64] =
    &[2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0];
const SHRINKAGES: &[f64] = &[0.0, 3.0, 10.0, 30.0, 100.0, 300.0];

/// The value of each hyperparameter, and the values worth trying, ascending.
fn axes(baseline: Baseline) -> Vec<(f64, &'static [f64])> {
    match baseline {
        Baseline::Popularity | Baseline::Uniform => Vec::new(),
        Baseline::Svd { latent_dim } => vec![(latent_dim as f64, LATENT_DIMS)],
        Baseline::Als(options) => vec![
            (options.latent_dim as f64, LATENT_DIMS),
            (options.confidence, CONFIDENCES),
            (options.regularization, REGULARIZATIONS),
            (options.iterations as f64, ITERATIONS),
        ],
        Baseline::Ease { ridge } => vec![(ridge.into(), RIDGES)],
        Baseline::ItemKnn { neighbours, shrinkage } => {
            vec![(neighbours as f64, NEIGHBOURS), (shrinkage.into(), SHRINKAGES)]
        }
    }
}

/// True if a hyperparameter is at an end of the values worth trying, beyond which there are others.
fn is_at_an_end(baseline: Baseline) -> bool {
    axes(baseline).into_iter().any(|(value, values)| {
        let lowest = values.first().is_some_and(|first| value <= *first && *first > 0.0);
        lowest || values.last().is_some_and(|last| value >= *last)
    })
}

/// `baseline` with these values on its axes.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the constants above")]
fn with(baseline: Baseline, values: &[f64]) -> Baseline {
    match (baseline, values) {
        (Baseline::Svd { .. }, &[dim]) => Baseline::Svd { latent_dim: dim as usize },
        (Baseline::Als(_), &[dim, confidence, regularization, iterations]) => {
            let (latent_dim, iterations) = (dim as usize, iterations as usize);
            Baseline::Als(AlsOptions { latent_dim, iterations, regularization, confidence })
        }
        (Baseline::Ease { .. }, &[ridge]) => Baseline::Ease { ridge: ridge as f32 },
        (Baseline::ItemKnn { .. }, &[neighbours, shrinkage]) => {
            Baseline::ItemKnn { neighbours: neighbours as usize, shrinkage: shrinkage as f32 }
        }
        _ => baseline,
    }
}

/// All combinations of the values worth trying.
fn grid(baseline: Baseline) -> Vec<Baseline> {
    let mut all = vec![Vec::new()];
    for (_, values) in axes(baseline) {
        let with_each = |so_far: &Vec<f64>| {
            values.iter().map(|value| [so_far.as_slice(), &[*value]].concat()).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(with_each).collect();
    }
    all.iter().map(|values| with(baseline, values)).collect()
}

/// The place of each hyperparameter among the values worth trying.
fn places(baseline: &Baseline) -> Vec<usize> {
    let below = |(value, values): (f64, &[f64])| values.partition_point(|it| *it < value);
    axes(*baseline).into_iter().map(below).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_with_no_other_beyond_it_is_at_no_end() {
        let knn = |neighbours, shrinkage| Baseline::ItemKnn { neighbours, shrinkage };
        assert!(!is_at_an_end(knn(100, 0.0)), "less than no shrinkage is none");
        assert!(is_at_an_end(knn(100, 300.0)));
        assert!(is_at_an_end(knn(2, 10.0)));
        assert!(!is_at_an_end(Baseline::Ease { ridge: 200.0 }));
        assert!(is_at_an_end(Baseline::Ease { ridge: 10.0 }));
        assert!(!is_at_an_end(Baseline::Popularity));
    }
}
