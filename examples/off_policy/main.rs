//! How well a log says what another policy would earn: many logs of a simulated world, whose truth is
//! known, against the estimators of `fast_slate::logged` and two of others.
//!
//! `cargo run --release --example off_policy -- coverage` (or growth; `--quick` for a look) prints one
//! JSON line for each cell. `artifacts/logged/run.sh` makes tables of them.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints")]

mod coverage;
mod growth;
mod others;
mod scene;
mod tally;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, ValueEnum};
use serde::Serialize;

#[derive(Parser)]
struct Args {
    study: Study,
    /// Few and short logs: shows that a study runs.
    #[arg(long)]
    quick: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Study {
    /// Bias, error and intervals of each estimator at three distances between the policies.
    Coverage,
    /// The error beside the one on policy, over K and over P.
    Growth,
}

fn main() -> ExitCode {
    let Args { study, quick } = Args::parse();
    let done = match study {
        Study::Coverage => coverage::study(quick, print),
        Study::Growth => growth::study(quick, print),
    };
    done.map_or_else(
        |error| {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        },
        |()| ExitCode::SUCCESS,
    )
}

fn print(cell: impl Serialize) -> Result<()> {
    println!("{}", serde_json::to_string(&cell)?);
    Ok(())
}
