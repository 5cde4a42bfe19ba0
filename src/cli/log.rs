//! `slate log`: logs in; what they hold, what another policy would have earned, or one log of all out.

#[cfg(feature = "train")]
mod held;
#[cfg(feature = "train")]
mod positions;
#[cfg(feature = "train")]
mod value;

use std::path::PathBuf;

use anyhow::Result;
use chrono::{DateTime, SubsecRound as _};
use clap::{Args, Subcommand, ValueHint};
use serde::Serialize;

use super::report::Report;
use crate::log::{Held, Impressions, Log, Repeated, Summary};

#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    #[command(subcommand)]
    verb: LogVerb,
}

#[derive(Debug, Subcommand)]
enum LogVerb {
    /// Say what logs hold, what is missing, and what can be learned from them.
    Check(CheckArgs),
    /// Join the logs of replicas into one folder, each row once, by time.
    Join {
        /// Folders of logs. A server may be writing; nothing in them is changed.
        #[arg(required = true, value_name = "DIR", value_hint = ValueHint::DirPath)]
        folders: Vec<PathBuf>,
        /// The folder to write, which must not exist.
        #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
        out: PathBuf,
    },
    /// Estimate what another policy would have earned, from a log of another system whose rows are
    /// positions.
    #[cfg(feature = "train")]
    Value(Box<value::ValueArgs>),
}

#[derive(Debug, Args)]
struct CheckArgs {
    /// Folders of logs, or Parquet files of them; of another system, tables of slates, or one file whose
    /// rows are positions. A server may be writing; nothing is changed.
    #[arg(required = true, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    paths: Vec<PathBuf>,
    #[cfg(feature = "train")]
    #[command(flatten)]
    columns: positions::ColumnArgs,
}

pub(super) fn run(args: &LogArgs) -> Result<Report> {
    match &args.verb {
        LogVerb::Check(args) => check(args),
        LogVerb::Join { folders, out } => join(folders, out),
        #[cfg(feature = "train")]
        LogVerb::Value(args) => value::run(args),
    }
}

fn check(args: &CheckArgs) -> Result<Report> {
    #[cfg(feature = "train")]
    if let Some(report) = held::run(&args.paths, &args.columns)? {
        return Ok(report);
    }
    if let Some(table) = Impressions::read(&args.paths)? {
        let held = table.held();
        return Report::new(&held, table_text(&held));
    }
    let summary = Summary::of(&args.paths)?;
    Report::new(&summary, text(&summary))
}

/// What was joined.
#[derive(Debug, Serialize)]
struct Joined {
    exposures: usize,
    feedback: usize,
    repeated: Repeated,
}

fn join(folders: &[PathBuf], out: &std::path::Path) -> Result<Report> {
    anyhow::ensure!(!out.exists(), "{}: there is something here already", out.display());
    let log = Log::read(folders)?;
    log.write(out)?;
    let joined = Joined {
        exposures: log.exposures.len(),
        feedback: log.feedback.len(),
        repeated: log.repeated,
    };
    let Repeated { exposures, feedback } = joined.repeated;
    let text = format!(
        "{}: {} exposures, {} rows of feedback\nleft out {exposures} exposures and {feedback} rows of \
         feedback whose id came before",
        out.display(),
        joined.exposures,
        joined.feedback
    );
    Report::new(&joined, text)
}

fn text(summary: &Summary) -> String {
    let of = |count: u64| {
        let share = 100.0 * count as f64 / summary.exposures.max(1) as f64;
        format!("{count} ({share:.1} %)")
    };
    let mut text = format!(
        "read              {} tables, {} segments\n\
         exposures         {}, {} repeated\n\
         feedback          {}, {} repeated\n",
        summary.tables,
        summary.segments,
        summary.exposures,
        summary.repeated.exposures,
        summary.feedback,
        summary.repeated.feedback
    );
    if let Some([first, last]) = summary.times {
        text += &format!("from … to         {} … {}\n", utc(first), utc(last));
    }
    for (name, count) in [
        ("exploring", summary.exploring),
        ("degraded", summary.degraded),
        ("short", summary.short),
        ("without feedback", summary.without_feedback),
    ] {
        text += &format!("{name:<18}{}\n", of(count));
    }
    for (name, count) in
        [("unknown request", summary.unknown_request), ("beyond the slate", summary.beyond_slate)]
    {
        text += &format!("{name:<18}{count} rows of feedback\n");
    }
    for (name, counts) in [("bundle", &summary.bundles), ("search", &summary.retrievals)] {
        for (value, count) in counts {
            text += &format!("{name:<18}{value}: {}\n", of(*count));
        }
    }
    text += &conclusions(&summary.missing, &summary.learnable);
    text
}

/// What tables of slates hold.
fn table_text(held: &Held) -> String {
    let mut text =
        format!("slates            {}\npeople            {}\n", held.slates, held.people);
    for (length, count) in &held.lengths {
        text += &format!("of {length:<3} items      {count}\n");
    }
    text += &format!(
        "outcomes above 0  {} slates\npropensities      {} slates\n",
        held.above_zero, held.propensities
    );
    text + &conclusions(&held.missing, &held.learnable)
}

/// What is missing, and what can be learned.
fn conclusions(missing: &[String], learnable: &[String]) -> String {
    let mut text = String::new();
    for (title, lines) in [("what is missing", missing), ("what can be learned", learnable)] {
        text += &format!("\n{title}\n");
        if lines.is_empty() {
            text += "  nothing\n";
        }
        text.extend(lines.iter().map(|line| format!("  {line}\n")));
    }
    text
}

/// Milliseconds since 1970 as a date and a time of day.
fn utc(milliseconds: i64) -> String {
    let time = DateTime::from_timestamp_millis(milliseconds).map(|time| time.trunc_subsecs(0));
    time.map_or_else(|| format!("{milliseconds} ms since 1970"), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn times_are_dates() {
        for (milliseconds, date) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (-1, "1969-12-31 23:59:59 UTC"),
            (951_782_400_000, "2000-02-29 00:00:00 UTC"),
            (1_709_251_199_999, "2024-02-29 23:59:59 UTC"),
            (1_709_251_200_000, "2024-03-01 00:00:00 UTC"),
            (4_107_542_400_000, "2100-03-01 00:00:00 UTC"),
            (1_234_567_890_123, "2009-02-13 23:31:30 UTC"),
        ] {
            assert_eq!(utc(milliseconds), date);
        }
    }
}
