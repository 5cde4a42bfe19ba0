//! `slate evaluate`: a run in, the reward of its decision on held-out users out, beside the rewards of
//! other recommenders on the same users.

mod logged;
mod text;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, ValueHint};
use serde::Serialize;

use super::prologue::{LoggedArgs, named};
use crate::cli::flags::DeviceArgs;
use crate::cli::report::Report;
use crate::dataset::Split;
use crate::evaluation::MetricAt;
use crate::facade::{Judged, Judging, Policy};
use crate::run::Which;

#[derive(Debug, Args)]
pub(crate) struct EvaluateArgs {
    /// The run's folder.
    #[arg(value_hint = ValueHint::DirPath)]
    run: PathBuf,
    /// The users to judge on: train, validation or test [default: test, or validation if no user is
    /// in the test split].
    #[arg(long, value_parser = named::<Split>)]
    split: Option<Split>,
    /// Recommenders to compare with on the same users, separated by commas: popularity, uniform,
    /// svd, als, ease, item-knn, perhaps with their settings, as in ease:ridge=100, or the folder of
    /// another run on the same sessions (write ./svd for a folder called svd).
    #[arg(long, value_name = "BASELINE|RUN", value_delimiter = ',', value_hint = ValueHint::DirPath)]
    against: Vec<PathBuf>,
    /// Tune each baseline on the reward of the validation users for this many seconds, in which
    /// fits and evaluations count.
    #[arg(long, value_name = "SECONDS", default_value_t = 0, requires = "against")]
    tune: u64,
    /// Also report these metrics, separated by commas: recall@K, ndcg@K or hits@K for any K. They are
    /// computed on exact slates, whose length need not be the run's.
    #[arg(long, value_name = "METRIC@K", value_delimiter = ',')]
    metrics: Vec<MetricAt>,
    /// Ask each user about so many halves of their items: what is observed and what is hidden is drawn
    /// anew, alike for every recommender. More halves make the intervals narrower [default: 1; of validation
    /// users as many as in training].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=1000))]
    halves: Option<u64>,
    /// Retrieve through the index instead of exactly.
    #[arg(long)]
    index: bool,
    /// The checkpoint to judge: best (by validation reward; step 0 unless one beats it by more than chance), last, or a step.
    #[arg(long, default_value_t = Which::Best)]
    checkpoint: Which,
    #[command(flatten)]
    logged: LoggedArgs,
    /// Exit with 0 only if the policy surely earns more than the one that logged, otherwise with 1. Without
    /// this, --logged exits with 3 if the log cannot tell.
    #[arg(long, requires = "logged", requires = "reward_bounds")]
    ship_if_above: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

#[derive(Debug, Serialize)]
struct Evaluated {
    run: PathBuf,
    #[serde(flatten)]
    judged: Judged,
    /// The metrics asked for.
    #[serde(skip)]
    asked: Vec<String>,
}

pub(super) fn run(args: &EvaluateArgs) -> Result<Report> {
    let device = args.device.name();
    let policy = Policy::open(&args.run, args.checkpoint, device)?;
    if !args.logged.logged.is_empty() {
        let hidden = !args.against.is_empty() || !args.metrics.is_empty();
        if hidden || args.split.is_some() || args.halves.is_some() || args.index {
            bail!(
                "--against, --metrics, --split, --halves and --index are about hidden items, --logged about a log: \
                 ask for one of them"
            );
        }
        return logged::run(args, &policy);
    }
    if let Some(name) = &policy.origin.reward {
        let run = args.run.display();
        bail!("{run}: was trained for the reward `{name}` of a program, which has to judge it too");
    }
    let judged = policy.judge(&Judging {
        split: args.split,
        against: args.against.clone(),
        tune: Duration::from_secs(args.tune),
        metrics: args.metrics.clone(),
        halves: args.halves,
        index: args.index,
        checkpoint: args.checkpoint,
        device: device.map(ToOwned::to_owned),
    })?;
    let asked = args.metrics.iter().map(MetricAt::to_string).collect();
    let evaluated = Evaluated { run: args.run.clone(), judged, asked };
    Report::new(&evaluated, evaluated.text())
}
