//! `slate synth`: a shape → a synthetic log, and the most that a policy can earn on it.

use clap::{Args, ValueHint};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result};
use serde::Serialize;

use super::folders::typed;
use crate::cli::report::Report;
use crate::dataset::{PAPER_SHAPES, Shape, Synthesized, SyntheticLog, synthesize};
use crate::seed::Seed;

#[derive(Debug, Args)]
pub(crate) struct SynthArgs {
    /// Take the dimensions of this data set of the paper: movielens-25m, twitch or goodreads.
    #[arg(long, value_parser = shape, conflicts_with_all = ["users", "actions", "density"],
        required_unless_present_all = ["users", "actions", "density"])]
    like: Option<Shape>,
    /// U, the number of users.
    #[arg(long)]
    users: Option<u32>,
    /// P, the number of actions.
    #[arg(long)]
    actions: Option<u32>,
    /// The share of the U · P pairs that are interactions.
    #[arg(long)]
    density: Option<f64>,
    /// The file to write, which ends in .parquet or .csv.
    #[arg(long, value_hint = ValueHint::FilePath)]
    out: PathBuf,
    /// Replace the file if it exists.
    #[arg(long)]
    force: bool,
    /// The number of topics [default: 200, or P if P is less].
    #[arg(long)]
    topics: Option<u32>,
    /// The number of users over whom the reported rewards are averaged [default: 10000].
    #[arg(long)]
    ceiling_users: Option<u32>,
    /// The seed of every random draw.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// What was generated.
#[derive(Debug, Serialize)]
struct SynthReport {
    file: PathBuf,
    #[serde(flatten)]
    log: SyntheticLog,
    made: Synthesized,
    seconds: f64,
}

pub(super) fn run(args: &SynthArgs) -> Result<Report> {
    let log = args.log().context("expected --like, or --users, --actions and --density")?;
    let started = Instant::now();
    let made = synthesize(&log, &args.out, args.force)?;
    let seconds = started.elapsed().as_secs_f64();
    let Synthesized { users, actions, interactions, density, ceiling, popularity } = made;
    let (out, typed) = (args.out.display(), typed(&args.out));
    let text = format!(
        "{interactions} interactions of {users} users with {actions} actions, density {:.4} %, in \
         {seconds:.1} s: {out}\n\
         expected reward of a slate of 5, observed items excluded, half of each session observed\n\
         ceiling     {ceiling}   by each user's topics and observed items: no policy earns more\n\
         popularity  {popularity}\n\
         prepare it with\n  \
         slate prepare {typed} --user-column user_id --item-column item_id --out DATA",
        100.0 * density,
    );
    Report::new(&SynthReport { file: args.out.clone(), log, made, seconds }, text)
}

impl SynthArgs {
    /// The log to generate; `None` without a data set and a whole shape, which `clap` refuses.
    fn log(&self) -> Option<SyntheticLog> {
        let typed =
            || Some(Shape { users: self.users?, actions: self.actions?, density: self.density? });
        let log = SyntheticLog::new(self.like.or_else(typed)?);
        Some(SyntheticLog {
            topics: self.topics.unwrap_or(log.topics),
            ceiling_users: self.ceiling_users.unwrap_or(log.ceiling_users),
            seed: Seed(self.seed),
            ..log
        })
    }
}

fn shape(text: &str) -> Result<Shape, String> {
    let found = PAPER_SHAPES.iter().find(|(name, _)| *name == text);
    let names = PAPER_SHAPES.map(|(name, _)| name).join(", ");
    found.map(|(_, shape)| *shape).ok_or_else(|| format!("expected one of {names}"))
}
