//! Slates of many sizes out of few and many actions → the error of a value that is estimated from
//! another policy's log, beside the error of as many rows of its own.

use std::time::Instant;

use anyhow::Result;
use fast_slate::logged::{Prior, Weighed};
use fast_slate::matrix::Matrix;
use fast_slate::policy::Sigma;
use fast_slate::seed::Seed;
use fast_slate::simulation::SimulationSettings;
use rayon::prelude::*;
use serde::Serialize;

use crate::scene::{Plan, Scene};
use crate::tally::{Found, Judged, Named, Spread, estimators, median};

/// ‖h̃ − h₀‖/σ.
const DISTANCE: f32 = 1.0;
const RULE: Sigma = Sigma::Relative(0.5);

/// P, K and the number of logs.
#[derive(Clone, Copy)]
struct Shape {
    actions: u32,
    slate_size: usize,
    logs: u64,
}

const USERS: u32 = 100;
const ROWS: u32 = 1000;
/// One log in so many has as many rows of the policy that is judged beside it.
const OWN: u64 = 4;
/// The numbers of the first such rows, and of the log that only chooses how bounds are made.
const OWN_LOGS: u64 = 1_000_000;
const PILOT: u64 = 2_000_000;

const FULL: [Shape; 7] = [
    Shape { actions: 10_000, slate_size: 2, logs: 1000 },
    Shape { actions: 10_000, slate_size: 5, logs: 1000 },
    Shape { actions: 10_000, slate_size: 10, logs: 1000 },
    Shape { actions: 10_000, slate_size: 50, logs: 1000 },
    Shape { actions: 1000, slate_size: 5, logs: 1000 },
    Shape { actions: 100_000, slate_size: 5, logs: 400 },
    Shape { actions: 2_000_000, slate_size: 5, logs: 100 },
];

/// One estimator at one size.
#[derive(Serialize)]
pub(crate) struct Cell {
    rule: Sigma,
    distance: f32,
    actions: u32,
    slate_size: usize,
    estimator: &'static str,
    logs: u64,
    rows: u32,
    #[serde(flatten)]
    judged: Judged,
    /// The standard error of the truth.
    truth_error: f64,
    /// The standard deviation of the rewards of the policy's own slates.
    own_deviation: f64,
    /// The error over that of as many rows of the policy's own, which is `own_deviation / √n`.
    ratio: f64,
    /// The standard error of the ratio, for errors that are about normal.
    ratio_error: f64,
    /// What the ratio is by the variance over all rows: `sd(w r)` or `sd(w (r − R))` over `own_deviation`.
    by_variance: Option<f64>,
    /// Nanoseconds for the weight of a row, on one thread; the median over logs.
    nanoseconds: f64,
}

/// The policy that is judged.
struct Other {
    /// `[U, L]`.
    h: Matrix,
    /// What a log that is not judged says of bounds.
    prior: Prior,
}

/// What a log says, and some rows of the policy that is judged.
struct Log {
    weighed: Weighed,
    found: Vec<Named>,
    /// Rewards, and their expectations.
    own: [Spread; 2],
    nanoseconds: f64,
}

pub(crate) fn study(quick: bool, print: impl Fn(Cell) -> Result<()>) -> Result<()> {
    for size in FULL {
        let size =
            if quick { Shape { actions: size.actions.min(10_000), logs: 8, ..size } } else { size };
        run(size, &print)?;
    }
    Ok(())
}

fn run(size: Shape, print: impl Fn(Cell) -> Result<()>) -> Result<()> {
    let Shape { actions, slate_size, logs } = size;
    let settings =
        SimulationSettings { users: USERS, actions, slate_size, ..SimulationSettings::default() };
    let scene = Scene::new(&settings, RULE)?;
    let h = scene.queries(DISTANCE);
    let pilot = scene.rows(&scene.logging, plan(PILOT, ROWS))?;
    let other = Other { prior: scene.weighed(&pilot, &h).prior(), h };
    let logs: Vec<Log> = (0..logs)
        .into_par_iter()
        .map(|log| Log::new(&scene, &other, log))
        .collect::<Result<_>>()?;
    let own = |of: usize| logs.iter().fold(Spread::default(), |sum, log| sum.and(log.own[of]));
    let (own, expected) = (own(0), own(1));
    let truth = expected.mean();
    let weighted = |less: f64| {
        let spreads = logs.iter().map(|log| {
            let rows = log.weighed.log_weights.iter().zip(&log.weighed.rewards);
            Spread::of(rows.map(|(log_weight, reward)| log_weight.exp() * (reward - less)))
        });
        spreads.fold(Spread::default(), Spread::and).deviation() / own.deviation()
    };
    let nanoseconds = median(logs.iter().map(|log| log.nanoseconds)).unwrap_or_default();
    for (which, (estimator, _)) in logs[0].found.iter().enumerate() {
        let found: Vec<Option<Found>> = logs.iter().map(|log| log.found[which].1).collect();
        let judged = Judged::new(truth, &found);
        let ratio = judged.rmse * f64::from(ROWS).sqrt() / own.deviation();
        print(Cell {
            rule: RULE,
            distance: DISTANCE,
            actions,
            slate_size,
            estimator,
            logs: size.logs,
            rows: ROWS,
            judged,
            truth_error: expected.deviation() / expected.count().sqrt(),
            own_deviation: own.deviation(),
            ratio,
            ratio_error: ratio / (2.0 * size.logs as f64).sqrt(),
            by_variance: match *estimator {
                "plain" => Some(weighted(0.0)),
                "self-normalised" => Some(weighted(truth)),
                _ => None,
            },
            nanoseconds,
        })?;
    }
    Ok(())
}

fn plan(log: u64, rows: u32) -> Plan {
    Plan { log, rows, rows_of_person: 1 }
}

impl Log {
    fn new(scene: &Scene, other: &Other, log: u64) -> Result<Self> {
        let &Other { ref h, prior } = other;
        let rows = scene.rows(&scene.logging, plan(log, ROWS))?;
        let started = Instant::now();
        let weighed = scene.weighed(&rows, h);
        let nanoseconds = started.elapsed().as_secs_f64() * 1e9 / f64::from(ROWS);
        let value = weighed.value(prior, Seed(0))?;
        let own = if log.is_multiple_of(OWN) { ROWS } else { 0 };
        let own = scene.rows(h, plan(OWN_LOGS + log, own))?;
        let expected = |row: usize| scene.world.expected(own.users[row], own.slates.slate(row));
        Ok(Self {
            found: estimators(&value),
            own: [Spread::of(own.rewards().into_iter()), Spread::of((0..own.len()).map(expected))],
            weighed,
            nanoseconds,
        })
    }
}
