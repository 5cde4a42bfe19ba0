//! `slate synth`: a shape → a synthetic log, and the most that a policy can earn on it.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result};
use serde::Serialize;

use super::Report;
use super::args::SynthArgs;
use crate::dataset::{Shape, Synthesized, SyntheticLog, synthesize};
use crate::seed::Seed;

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
    let out = args.out.display();
    let text = format!(
        "{interactions} interactions of {users} users with {actions} actions, density {:.4} %, in \
         {seconds:.1} s: {out}\n\
         expected reward of a slate of 5, observed items excluded, half of each session observed\n\
         ceiling     {ceiling}   by each user's topics and observed items: no policy earns more\n\
         popularity  {popularity}\n\
         prepare it with\n  \
         slate prepare {out} --user-column user_id --item-column item_id --out DATA",
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
