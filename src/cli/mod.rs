//! A command line in, a report out, printed once as text or as JSON. A file for each verb holds its
//! flags and its `run`. The verbs here are those of every build; `workshop` has the others.

mod completions;
mod flags;
mod info;
mod join;
mod log;
mod progress;
mod recommend;
mod report;
#[cfg(feature = "serve")]
mod serve;
#[cfg(feature = "train")]
mod workshop;

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
    #[cfg(feature = "train")]
    #[command(flatten)]
    Workshop(Box<workshop::WorkshopVerb>),
    /// Print the slate of a user, or of somebody new, or write those of a file of users.
    Recommend(Box<recommend::RecommendArgs>),
    /// Join the parts of a file of slates into the file that one run writes.
    Join(join::JoinArgs),
    /// Answer over HTTP with a bundle, with a page to look at.
    #[cfg(feature = "serve")]
    Serve(serve::ServeArgs),
    /// Describe this build, a bundle, a run or a prepared folder.
    Info(info::InfoArgs),
    /// Check or join logs of served slates.
    Log(log::LogArgs),
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
        #[cfg(feature = "train")]
        Verb::Workshop(verb) => workshop::run(&verb)?,
        Verb::Recommend(args) => recommend::run(&args)?,
        Verb::Join(args) => join::run(&args)?,
        #[cfg(feature = "serve")]
        Verb::Serve(args) => serve::run(&args)?,
        Verb::Info(args) => info::run(&args)?,
        Verb::Log(args) => log::run(&args)?,
        Verb::Completions(args) => return completions::run(&args),
    };
    report.print(cli.json)?;
    Ok(if report.interrupted { ExitCode::from(report::INTERRUPTED) } else { ExitCode::SUCCESS })
}
