//! The command line: what was typed (`args`) becomes validated settings, and each verb, a file of
//! its own, returns a report that is printed once, as text or as JSON.

mod args;
mod bench;
mod completions;
#[cfg(feature = "prepare")]
mod datasets;
#[cfg(all(feature = "train", feature = "prepare"))]
mod demo;
mod evaluate;
mod info;
#[cfg(feature = "train")]
mod plot;
#[cfg(feature = "prepare")]
mod prepare;
#[cfg(feature = "train")]
mod progress;
#[cfg(any(feature = "train", feature = "prepare"))]
mod recall;
mod recommend;
mod report;
#[cfg(feature = "prepare")]
mod synth;
#[cfg(feature = "train")]
mod train;
#[cfg(feature = "train")]
mod tune;
#[cfg(feature = "train")]
mod variance;

use std::process::ExitCode;
#[cfg(feature = "train")]
use std::sync::Arc;

use anyhow::Result;
use clap::Parser as _;

use args::{Cli, Verb};
pub(crate) use report::Report;

#[cfg(any(feature = "train", feature = "prepare"))]
use crate::prepared::Prepared;

/// Exit code of a run that was interrupted, as shells report it (128 + SIGINT).
const INTERRUPTED: u8 = 130;

/// A prepared folder whose indexes are built under a bar, where there is one to draw.
#[cfg(any(feature = "train", feature = "prepare"))]
fn watched(prepared: Prepared) -> Prepared {
    #[cfg(feature = "train")]
    let prepared = prepared.with_observer(Arc::new(progress::IndexBar::default()));
    prepared
}

/// Parses the command line, runs the verb, prints its report.
///
/// # Errors
/// The verb's error, for the caller to print once.
pub fn main() -> Result<ExitCode> {
    let cli = Cli::parse();
    let report = match cli.verb {
        #[cfg(feature = "prepare")]
        Verb::Prepare(args) => prepare::run(&args)?,
        #[cfg(feature = "prepare")]
        Verb::Datasets => datasets::run()?,
        #[cfg(feature = "prepare")]
        Verb::Synth(args) => synth::run(&args)?,
        #[cfg(feature = "train")]
        Verb::Train(args) => train::run(&args)?,
        #[cfg(feature = "train")]
        Verb::Tune(args) => tune::run(&args)?,
        #[cfg(all(feature = "train", feature = "prepare"))]
        Verb::Demo(args) => demo::run(&args)?,
        Verb::Evaluate(args) => evaluate::run(&args)?,
        Verb::Recommend(args) => recommend::run(&args)?,
        Verb::Info(args) => info::run(&args)?,
        Verb::Bench(verb) => bench::run(&verb)?,
        #[cfg(feature = "train")]
        Verb::Variance(args) => variance::run(&args)?,
        #[cfg(feature = "train")]
        Verb::Plot(args) => plot::run(&args)?,
        Verb::Completions(args) => return completions::run(&args),
    };
    report.print(cli.json)?;
    Ok(if report.interrupted { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
}
