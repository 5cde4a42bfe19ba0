//! A command line in, a report out, printed once as text or as JSON. A file for each verb holds its
//! flags and its `run`; `flags` and `prologue` hold what verbs share.

mod bench;
#[cfg(feature = "train")]
mod compare;
mod completions;
#[cfg(feature = "prepare")]
mod datasets;
#[cfg(feature = "train")]
mod demo;
mod evaluate;
mod export;
mod flags;
mod info;
#[cfg(feature = "train")]
mod plot;
#[cfg(feature = "prepare")]
mod prepare;
mod progress;
#[cfg(feature = "prepare")]
mod prologue;
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

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Trains the slate that a recommender shows, directly for its reward.
#[derive(Debug, Parser)]
#[command(name = "slate", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
    /// Print the result as one JSON object.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Turn a log of interactions into sessions, embeddings and an index.
    #[cfg(feature = "prepare")]
    Prepare(Box<prepare::PrepareArgs>),
    /// List the public data sets that `prepare` reads without any flags for columns.
    #[cfg(feature = "prepare")]
    Datasets,
    /// Generate a synthetic log of users with known tastes, of any size.
    #[cfg(feature = "prepare")]
    Synth(synth::SynthArgs),
    /// Train a policy on a prepared folder.
    #[cfg(feature = "train")]
    Train(train::TrainArgs),
    /// Search for settings with a high validation reward, by successive halving in a time budget.
    #[cfg(feature = "train")]
    Tune(tune::TuneArgs),
    /// Report the reward of a trained policy on held-out users.
    Evaluate(evaluate::EvaluateArgs),
    /// Put all that serving a run needs into a folder of its own.
    Export(export::ExportArgs),
    /// Print the slate of a user, or of somebody new, or write those of a file of users.
    Recommend(Box<recommend::RecommendArgs>),
    /// Describe this build, a prepared folder, a run or a bundle.
    Info(info::InfoArgs),
    /// Measure the speed of training steps and of searches.
    #[command(subcommand)]
    Bench(bench::BenchVerb),
    /// Compare the variance of the methods' gradients.
    #[cfg(feature = "train")]
    Variance(variance::VarianceArgs),
    /// Train a grid of methods under equal time or equal iterations, and write a report.
    #[cfg(feature = "train")]
    Compare(compare::CompareArgs),
    /// Draw the learning curves of runs, in the terminal and as a picture.
    #[cfg(feature = "train")]
    Plot(plot::PlotArgs),
    /// Prepare, train and recommend on built-in synthetic sessions; needs no files and no network.
    #[cfg(feature = "train")]
    Demo(demo::DemoArgs),
    /// Print a completion script for a shell.
    Completions(completions::CompletionsArgs),
}

/// Parses a command line and runs nothing: the commands in the guide are tested with it.
///
/// # Errors
/// Fails as `slate` does on a command line that it cannot read.
#[doc(hidden)]
pub fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<(), clap::Error> {
    Cli::try_parse_from(words).map(drop)
}

/// Parses the command line, runs the verb and prints its report.
///
/// # Errors
/// Returns the verb's error, which the caller prints once.
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
        #[cfg(feature = "train")]
        Verb::Demo(args) => demo::run(&args)?,
        Verb::Evaluate(args) => evaluate::run(&args)?,
        Verb::Export(args) => export::run(&args)?,
        Verb::Recommend(args) => recommend::run(&args)?,
        Verb::Info(args) => info::run(&args)?,
        Verb::Bench(verb) => bench::run(&verb)?,
        #[cfg(feature = "train")]
        Verb::Variance(args) => variance::run(&args)?,
        #[cfg(feature = "train")]
        Verb::Compare(args) => compare::run(&args)?,
        #[cfg(feature = "train")]
        Verb::Plot(args) => plot::run(&args)?,
        Verb::Completions(args) => return completions::run(&args),
    };
    report.print(cli.json)?;
    Ok(if report.interrupted { ExitCode::from(report::INTERRUPTED) } else { ExitCode::SUCCESS })
}
