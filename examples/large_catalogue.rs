//! Steps of Plackett–Luce at the size of GoodReads, 2.23 million actions: S = 100 slates of K = 5
//! for each of 32 users, where the paper reports "N/A" for PL-PG and PL-Rank. Memory is O(P + S K)
//! for a user whatever S is. The embeddings are random: only time and memory are looked at.
//!
//! `/usr/bin/time -v cargo run --release --example large_catalogue -- pl-rank` (or pl-pg)

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, bail};
use burn::optim::AdamConfig;
use burn::train::TrainStep as _;
use fast_slate::dataset::{ActionSets, Sessions, Split};
use fast_slate::device;
use fast_slate::embedding::ActionEmbeddings;
use fast_slate::estimator::{AnyEstimator, ControlVariate, PlRank, ScoreFunction};
use fast_slate::matrix::Matrix;
use fast_slate::policy::{PlackettLuce, Sampling, SlateDraws};
use fast_slate::reward::LinearReward;
use fast_slate::seed::{Purpose, Seed};
use fast_slate::tower::TowerSettings;
use fast_slate::training::{Batch, Learner};

const P: u32 = 2_230_000;
const L: usize = 100;
const USERS: u32 = 32;

fn main() -> Result<()> {
    let method = std::env::args().nth(1).unwrap_or_else(|| "pl-rank".into());
    let normals = |position, rows| {
        let mut matrix = Matrix::zeros(rows, L);
        Seed(0).stream(Purpose::Synthetic, 0, position).fill_normals(matrix.as_mut_slice());
        matrix.as_mut_slice().iter_mut().for_each(|value| *value *= 0.3);
        matrix
    };
    let actions = Arc::new(ActionEmbeddings::new(normals(0, P as usize))?);
    let hides = |at: u32| (at / 40, at.wrapping_mul(2_654_435_761) % P);
    let sessions = Arc::new(Sessions {
        observed: ActionSets::from_pairs(USERS as usize, std::iter::empty()),
        hidden: ActionSets::from_pairs(USERS as usize, (0..40 * USERS).map(hides)),
        split: vec![Split::Train; USERS as usize],
        num_actions: P as usize,
    });
    let reward = Arc::new(LinearReward::discounted(5, sessions));
    let sampling = Sampling { num_samples: 100, slate_size: 5, excluded: None, seed: Seed(0) };
    let policy = PlackettLuce::new(actions, SlateDraws::default(), sampling)?;
    let estimator: AnyEstimator = match method.as_str() {
        "pl-rank" => PlRank::new(policy, reward.as_ref())?.into(),
        "pl-pg" => ScoreFunction::new(Arc::new(policy), reward, ControlVariate::None).into(),
        other => bail!("no method {other}: give pl-pg or pl-rank"),
    };

    let device = device::choose(None)?.device;
    let (contexts, inputs) = ((0..USERS).collect::<Vec<u32>>(), normals(1, USERS as usize));
    let tower = TowerSettings::default();
    let mut learner = Learner::new(tower.init(&inputs, L, Seed(0), &device)?.into(), estimator);
    let mut adam = AdamConfig::new().init();
    for step in 0..4 {
        let started = Instant::now();
        let output =
            learner.step(Batch { step, contexts: contexts.clone(), inputs: inputs.clone() });
        let reward = output.item.reward?;
        learner = learner.optimize(&mut adam, 1e-3.into(), output.grads);
        println!(
            "{method} step {step}: {:.2} s, reward {reward:.4}",
            started.elapsed().as_secs_f64()
        );
    }
    let status = fs_err::read_to_string("/proc/self/status").unwrap_or_default();
    println!(
        "{}",
        status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or("peak memory unknown")
    );
    Ok(())
}
