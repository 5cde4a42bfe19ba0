//! Many logs of the same size → how far each estimator is from the truth, and how often its interval
//! holds it, at three distances between the policy that logged and the other.

use anyhow::Result;
use fast_slate::estimate::Estimate;
use fast_slate::logged::Prior;
use fast_slate::matrix::Matrix;
use fast_slate::policy::Sigma;
use fast_slate::seed::Seed;
use fast_slate::simulation::{ClickModel, SimulationSettings};
use rayon::prelude::*;
use serde::Serialize;

use crate::others::{Both, Shares};
use crate::scene::{Plan, Rows, Scene};
use crate::tally::{Found, Judged, Named, Spread, estimators};

/// The number of the first log that only chooses how bounds are made.
const PILOT: u64 = 2_000_000;
const DISTANCES: [f32; 3] = [0.5, 1.0, 1.5];

/// What differs between the parts of the study.
#[derive(Clone, Copy)]
struct Design {
    rule: Sigma,
    click: ClickModel,
    rows_of_person: u32,
}

const DESIGNS: [Design; 4] = [
    Design {
        rule: Sigma::InverseDim,
        click: ClickModel::PositionBased { power: 0.5 },
        rows_of_person: 1,
    },
    Design {
        rule: Sigma::Relative(0.5),
        click: ClickModel::PositionBased { power: 0.5 },
        rows_of_person: 1,
    },
    Design {
        rule: Sigma::Relative(0.5),
        click: ClickModel::Cascade { patience: 0.9 },
        rows_of_person: 1,
    },
    Design {
        rule: Sigma::Relative(0.5),
        click: ClickModel::PositionBased { power: 0.5 },
        rows_of_person: 10,
    },
];

/// How much is drawn.
#[derive(Clone, Copy)]
struct Sizes {
    users: u32,
    logs: u64,
    rows: u32,
    /// Slates for each user, for the truth.
    truth: usize,
    /// Slates for each user, for the shares that the estimators of others want.
    shares: usize,
}

const FULL: Sizes = Sizes { users: 100, logs: 500, rows: 10_000, truth: 20_000, shares: 10_000 };
const QUICK: Sizes = Sizes { users: 20, logs: 20, rows: 2000, truth: 1000, shares: 1000 };

/// A policy and what is known of it.
struct Policy {
    /// `[U, L]`.
    h: Matrix,
    value: Estimate,
    /// What a log that is not judged says of bounds.
    prior: Prior,
    /// None where the estimators of others are left out.
    shares: Option<Shares>,
}

/// One estimator at one distance in one design.
#[derive(Serialize)]
pub(crate) struct Cell {
    rule: Sigma,
    click: ClickModel,
    rows_of_person: u32,
    distance: f32,
    estimator: &'static str,
    logs: u64,
    rows: u32,
    #[serde(flatten)]
    judged: Judged,
    /// The median width over `2 · 1.96 sd(w r)/√n`.
    relative_width: Option<f64>,
    /// The standard error of the truth.
    truth_error: f64,
    /// sd(w r).
    deviation: f64,
    /// The mean of Kish's effective sample size.
    effective_rows: f64,
}

pub(crate) fn study(quick: bool, print: impl Fn(Cell) -> Result<()>) -> Result<()> {
    let sizes = if quick { QUICK } else { FULL };
    (0..).zip(DESIGNS).try_for_each(|(part, design)| run(part, design, sizes, &print))
}

fn run(part: u64, design: Design, sizes: Sizes, print: impl Fn(Cell) -> Result<()>) -> Result<()> {
    let Design { rule, click, rows_of_person } = design;
    let settings = SimulationSettings { users: sizes.users, click, ..Default::default() };
    let scene = Scene::new(&settings, rule)?;
    let pilot = Plan { log: PILOT + part, rows: sizes.rows, rows_of_person };
    let pilot = scene.rows(&scene.logging, pilot)?;
    let policy = |h: Matrix| -> Result<Policy> {
        let prior = scene.weighed(&pilot, &h).prior();
        let shares = (rows_of_person == 1).then(|| Shares::new(&scene, &h, sizes.shares));
        let value = scene.value(&h, sizes.truth)?;
        Ok(Policy { value, prior, shares: shares.transpose()?, h })
    };
    let logging = policy(scene.logging.clone())?;
    let others: Vec<Policy> =
        DISTANCES.iter().map(|distance| policy(scene.queries(*distance))).collect::<Result<_>>()?;
    let logs: Vec<Vec<Log>> = (0..sizes.logs)
        .into_par_iter()
        .map(|log| {
            // Each part has logs of its own.
            let log = part * sizes.logs + log;
            let rows = scene.rows(&logging.h, Plan { log, rows: sizes.rows, rows_of_person })?;
            others.iter().map(|other| Log::new(&scene, &rows, &logging, other)).collect()
        })
        .collect::<Result<_>>()?;
    for (at, (distance, other)) in DISTANCES.into_iter().zip(&others).enumerate() {
        let logs: Vec<&Log> = logs.iter().map(|log| &log[at]).collect();
        let deviation = logs.iter().fold(Spread::default(), |spread, log| spread.and(log.weighted));
        let deviation = deviation.deviation();
        let effective = Spread::of(logs.iter().map(|log| log.effective_rows)).mean();
        let usual = 2.0 * 1.96 * deviation / f64::from(sizes.rows).sqrt();
        for (which, (estimator, _)) in logs[0].found.iter().enumerate() {
            let gains = estimator.starts_with("gain");
            let logged = if gains { logging.value } else { Estimate::default() };
            let found: Vec<Option<Found>> = logs.iter().map(|log| log.found[which].1).collect();
            let judged = Judged::new(other.value.mean - logged.mean, &found);
            print(Cell {
                rule,
                click,
                rows_of_person,
                distance,
                estimator,
                logs: sizes.logs,
                rows: sizes.rows,
                judged,
                relative_width: judged.width.map(|width| width / usual),
                truth_error: other.value.standard_error.hypot(logged.standard_error),
                deviation,
                effective_rows: effective,
            })?;
        }
    }
    Ok(())
}

/// What all estimators found in one log.
struct Log {
    found: Vec<Named>,
    /// w r.
    weighted: Spread,
    effective_rows: f64,
}

impl Log {
    fn new(scene: &Scene, rows: &Rows, logging: &Policy, other: &Policy) -> Result<Self> {
        let weighed = scene.weighed(rows, &other.h);
        let value = weighed.value(other.prior, Seed(0))?;
        let mut found = estimators(&value);
        found.push(("gain", value.gain.map(Found::from)));
        let bound = weighed.gain_bound(other.prior)?;
        let bound = Found { estimate: bound, interval: Some([bound, f64::INFINITY]) };
        found.push(("gain bound", Some(bound)));
        if let (Some(logging), Some(other)) = (&logging.shares, &other.shares) {
            let both = Both { logging, other };
            found.push(("item-position", Some(both.item_position(rows).into())));
            found.push(("cascade DR", Some(both.cascade(scene, rows).into())));
        }
        let pairs = weighed.log_weights.iter().zip(&weighed.rewards);
        let products = Spread::of(pairs.map(|(log_weight, reward)| log_weight.exp() * reward));
        Ok(Self { found, weighted: products, effective_rows: value.effective_rows })
    }
}
