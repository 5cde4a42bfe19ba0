//! The verbs that make runs and bundles: from logs to trained policies, judged and exported. A build
//! that only serves has none of them.

mod bench;
mod compare;
mod datasets;
mod demo;
mod evaluate;
mod export;
mod folders;
mod plot;
mod prepare;
mod prologue;
mod refit;
mod simulate;
mod synth;
mod train;
mod tune;
mod variance;

use std::path::Path;

use anyhow::Result;
use clap::Subcommand;

pub(super) use folders::{OfRun, describe};

use super::report::Report;

#[derive(Debug, Subcommand)]
pub(crate) enum WorkshopVerb {
    /// Turn a log of interactions into sessions and embeddings.
    Prepare(Box<prepare::PrepareArgs>),
    /// List the public data sets that `prepare` reads without any flags for columns.
    Datasets,
    /// Generate a synthetic log of users with known tastes, of any size.
    Synth(synth::SynthArgs),
    /// Train a policy on a prepared folder.
    Train(train::TrainArgs),
    /// Search for settings with a high validation reward, by successive halving in a time budget.
    Tune(tune::TuneArgs),
    /// Report the reward of a trained policy on held-out users.
    Evaluate(evaluate::EvaluateArgs),
    /// Fit a run again on everybody, with nobody held out: what to serve once it has been judged.
    Refit(refit::RefitArgs),
    /// Put all that serving a run needs into a folder of its own.
    Export(export::ExportArgs),
    /// Measure the speed of training steps and of searches.
    #[command(subcommand)]
    Bench(bench::BenchVerb),
    /// Compare the variance of the methods' gradients.
    Variance(variance::VarianceArgs),
    /// Train a grid of methods under equal time or equal iterations, and write a report.
    Compare(compare::CompareArgs),
    /// Serve, learn from the log, judge and ship, round after round, with users of whom the truth is known.
    Simulate(simulate::SimulateArgs),
    /// Draw the learning curves of runs, in the terminal and as a picture.
    Plot(plot::PlotArgs),
    /// Prepare, train and recommend on built-in synthetic sessions; needs no files and no network.
    Demo(demo::DemoArgs),
}

/// Runs a verb; `program` is the file of this command line.
pub(super) fn run(verb: &WorkshopVerb, program: &Path) -> Result<Report> {
    match verb {
        WorkshopVerb::Prepare(args) => prepare::run(args),
        WorkshopVerb::Datasets => datasets::run(),
        WorkshopVerb::Synth(args) => synth::run(args),
        WorkshopVerb::Train(args) => train::run(args),
        WorkshopVerb::Tune(args) => tune::run(args),
        WorkshopVerb::Evaluate(args) => evaluate::run(args),
        WorkshopVerb::Refit(args) => refit::run(args),
        WorkshopVerb::Export(args) => export::run(args),
        WorkshopVerb::Bench(verb) => bench::run(verb),
        WorkshopVerb::Variance(args) => variance::run(args),
        WorkshopVerb::Compare(args) => compare::run(args, program),
        WorkshopVerb::Simulate(args) => simulate::run(args),
        WorkshopVerb::Plot(args) => plot::run(args),
        WorkshopVerb::Demo(args) => demo::run(args),
    }
}
