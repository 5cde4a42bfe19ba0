//! Hyperparameters by the validation reward, within a budget of seconds.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::{Asked, Baseline, Fitted, Fitter};
use crate::dataset::Split;
use crate::embedding::AlsOptions;
use crate::error::Result;
use crate::evaluation::Evaluation;
use crate::task::Task;
use crate::seed::Seed;

/// A baseline with the best hyperparameters that were found.
#[derive(Debug)]
pub struct Tuned {
    /// The algorithm and what was chosen.
    pub baseline: Baseline,
    /// It, fitted.
    pub fitted: Box<dyn Fitted>,
    /// What was tried, in that order; nothing without a budget.
    pub tried: Vec<Trial>,
    /// How long it took, all in all.
    pub elapsed: Duration,
}

/// Hyperparameters and what they earned.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Trial {
    /// What was fitted.
    pub settings: Baseline,
    /// Mean reward on the validation contexts; none where it could not be fitted.
    pub reward: Option<f64>,
}

impl Tuned {
    /// Fits `baseline`, then, as long as less than `budget` is spent, the values worth trying that
    /// are nearest to the best so far, and keeps what earns most on the validation contexts of
    /// `task`. The first fit and the one under way when the budget ends are finished, so a budget
    /// of zero is a plain fit.
    ///
    /// # Errors
    /// Those of [`Fitter::fit`] on `baseline`, and of [`Fitted::slates`].
    pub fn new(
        task: &Task,
        baseline: Baseline,
        budget: Duration,
        seed: Seed,
    ) -> Result<Self> {
        let started = Instant::now();
        let mut algorithms = Fitter::new(&task.sessions, seed);
        let baseline = algorithms.limited(baseline);
        let mut fitted = algorithms.fit(baseline)?;
        let mut best = (baseline, f64::NEG_INFINITY);
        let mut tried = Vec::new();
        let mut grid = Grid::around(baseline);
        // What is beyond a limit would be the same again.
        grid.left.retain(|settings| algorithms.limited(*settings) == *settings);
        if !grid.is_empty() && !budget.is_zero() {
            let contexts = task.sessions.contexts(Split::Validation);
            let reward = |fitted: &dyn Fitted| {
                let slates = |block: &[u32]| fitted.slates(Asked::of(task, block));
                Ok::<_, crate::Error>(Evaluation::by(task, &contexts, slates)?.mean())
            };
            best.1 = reward(fitted.as_ref())?;
            tried.push(Trial { settings: baseline, reward: Some(best.1) });
            while started.elapsed() < budget
                && let Some(settings) = grid.next()
            {
                // Rounding may make a matrix singular that a greater λ does not.
                let Ok(other) = algorithms.fit(settings) else {
                    tried.push(Trial { settings, reward: None });
                    continue;
                };
                let reward = reward(other.as_ref())?;
                tried.push(Trial { settings, reward: Some(reward) });
                if reward > best.1 {
                    (best, fitted) = ((settings, reward), other);
                    grid.centre_on(settings);
                }
            }
        }
        Ok(Self { baseline: best.0, fitted, tried, elapsed: started.elapsed() })
    }
}

/// The values worth trying, by axis.
const LATENT_DIMS: [usize; 6] = [25, 50, 100, 200, 400, 800];
const ITERATIONS: [usize; 4] = [5, 10, 15, 30];
const REGULARIZATIONS: [f64; 6] = [0.1, 1.0, 10.0, 30.0, 100.0, 300.0];
const CONFIDENCES: [f64; 6] = [1.0, 3.0, 10.0, 30.0, 100.0, 300.0];
const RIDGES: [f32; 9] = [10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0];
const NEIGHBOURS: [usize; 6] = [20, 50, 100, 200, 500, 1000];
const SHRINKAGES: [f32; 6] = [0.0, 3.0, 10.0, 30.0, 100.0, 300.0];

/// What of them has not been tried, and where the best so far is.
struct Grid {
    left: Vec<Baseline>,
    centre: Place,
}

/// A place on every axis there is.
type Place = [usize; 4];

impl Grid {
    fn around(baseline: Baseline) -> Self {
        let mut left = match baseline {
            Baseline::Popularity | Baseline::Uniform => Vec::new(),
            Baseline::Svd { .. } => {
                LATENT_DIMS.map(|latent_dim| Baseline::Svd { latent_dim }).to_vec()
            }
            Baseline::Als(_) => als(),
            Baseline::Ease { .. } => RIDGES.map(|ridge| Baseline::Ease { ridge }).to_vec(),
            Baseline::ItemKnn { .. } => NEIGHBOURS
                .into_iter()
                .flat_map(|neighbours| {
                    SHRINKAGES.map(|shrinkage| Baseline::ItemKnn { neighbours, shrinkage })
                })
                .collect(),
        };
        left.retain(|other| *other != baseline);
        Self { left, centre: place(baseline) }
    }

    fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    fn centre_on(&mut self, baseline: Baseline) {
        self.centre = place(baseline);
    }

    /// The nearest to the centre, in steps along the axes; of equals the first.
    fn next(&mut self) -> Option<Baseline> {
        let distance = |baseline: &Baseline| -> usize {
            place(*baseline).iter().zip(self.centre).map(|(a, b)| a.abs_diff(b)).sum()
        };
        let nearest = (0..self.left.len()).min_by_key(|&at| distance(&self.left[at]))?;
        Some(self.left.remove(nearest))
    }
}

fn als() -> Vec<Baseline> {
    let mut all = Vec::new();
    for latent_dim in LATENT_DIMS {
        for confidence in CONFIDENCES {
            for regularization in REGULARIZATIONS {
                all.extend(ITERATIONS.map(|iterations| {
                    let options = AlsOptions { latent_dim, iterations, regularization, confidence };
                    Baseline::Als(options)
                }));
            }
        }
    }
    all
}

fn place(baseline: Baseline) -> Place {
    match baseline {
        Baseline::Popularity | Baseline::Uniform => [0; 4],
        Baseline::Svd { latent_dim } => [below(&LATENT_DIMS, latent_dim), 0, 0, 0],
        Baseline::Als(AlsOptions { latent_dim, iterations, regularization, confidence }) => [
            below(&LATENT_DIMS, latent_dim),
            below(&CONFIDENCES, confidence),
            below(&REGULARIZATIONS, regularization),
            below(&ITERATIONS, iterations),
        ],
        Baseline::Ease { ridge } => [below(&RIDGES, ridge), 0, 0, 0],
        Baseline::ItemKnn { neighbours, shrinkage } => {
            [below(&NEIGHBOURS, neighbours), below(&SHRINKAGES, shrinkage), 0, 0]
        }
    }
}

/// How many of the ascending `values` are below `value`.
fn below<T: PartialOrd + Copy>(values: &[T], value: T) -> usize {
    values.partition_point(|it| *it < value)
}
