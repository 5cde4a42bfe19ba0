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

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Exit code of every error, as clap's own for a wrong command line.
const FAILED: u8 = 2;

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
    Serve(Box<serve::ServeArgs>),
    /// Describe this build, a bundle, a run or a prepared folder.
    Info(info::InfoArgs),
    /// Check, join or judge by logs of slates that were shown.
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

/// Runs the command line `words`, the name of the program first, as the `slate` binary does: sets up
/// logging, runs the verb, and prints its report, or its error once as a chain. Returns the exit code.
/// `program` is the file that a comparison runs for each of its cells.
pub fn run(words: impl IntoIterator<Item = OsString>, program: &Path) -> u8 {
    log_to_stderr();
    let cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(error) => {
            // Nobody may be reading.
            let _ = error.print();
            return u8::try_from(error.exit_code()).unwrap_or(FAILED);
        }
    };
    verb(cli, program).unwrap_or_else(|error| {
        // The one place where errors are printed.
        let _ = writeln!(std::io::stderr(), "error: {error:#}");
        FAILED
    })
}

/// Sends the library's messages to stderr, for as long as the process lives.
fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("SLATE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("fast_slate=info"));
    let logger = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_level(false)
        .without_time()
        // Telling stderr of errors in writing to stderr would panic.
        .log_internal_errors(false);
    // A logger that is there already stays.
    let _ = logger.try_init();
}

/// Runs the verb and prints its report.
fn verb(cli: Cli, program: &Path) -> Result<u8> {
    #[cfg(not(feature = "train"))]
    let _ = program;
    let report = match cli.verb {
        #[cfg(feature = "train")]
        Verb::Workshop(verb) => workshop::run(&verb, program)?,
        Verb::Recommend(args) => recommend::run(&args)?,
        Verb::Join(args) => join::run(&args)?,
        #[cfg(feature = "serve")]
        Verb::Serve(args) => serve::run(&args)?,
        Verb::Info(args) => info::run(&args)?,
        Verb::Log(args) => log::run(&args)?,
        Verb::Completions(args) => return completions::run(&args),
    };
    report.print(cli.json)?;
    Ok(report.exit)
}
