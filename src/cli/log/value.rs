//! `slate log value`: a log whose rows are positions and a policy in; what the policy would have earned
//! out.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum, ValueHint};
use serde::Serialize;

use super::super::report::Report;
use super::positions::{ColumnArgs, bad, line, measured};
use crate::logged::positions::{
    BadRows, DirectOptions, LogMeans, Measured, PolicyValue, PositionLog, Stationary, ValueAt,
};
use crate::seed::Seed;

#[derive(Debug, Args)]
pub(super) struct ValueArgs {
    /// A .csv, .tsv or .parquet file with a row for each item that was shown at a position.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    log: PathBuf,
    /// The policy to estimate the value of: uniform over the items of FILE, or the mean logged
    /// propensity of each item at each position of the log --of.
    #[arg(long)]
    policy: Policy,
    /// The log whose propensities are the policy, for --policy mean-propensity.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    of: Option<PathBuf>,
    /// A log of another policy, whose own mean outcomes stand beside the estimates.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    beside: Option<PathBuf>,
    #[command(flatten)]
    columns: ColumnArgs,
    /// Skip up to this many rows of each file that cannot be read, and report how many there were.
    #[arg(long, value_name = "N", default_value_t = 0)]
    skip_bad_rows: u64,
    /// The seed of the folds of the direct model.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Policy {
    Uniform,
    MeanPropensity,
}

/// What was estimated, and from what.
#[derive(Debug, Serialize)]
struct Valued {
    log: PathBuf,
    rows: usize,
    above_zero: usize,
    bad: BadRows,
    #[serde(flatten)]
    value: PolicyValue,
    beside: Option<Beside>,
}

/// The means of another log.
#[derive(Debug, Serialize)]
struct Beside {
    log: PathBuf,
    bad: BadRows,
    #[serde(flatten)]
    means: LogMeans,
}

pub(super) fn run(args: &ValueArgs) -> Result<Report> {
    let columns = args.columns.columns();
    let read = |path: &Path| PositionLog::read(path, &columns, args.skip_bad_rows);
    if args.policy == Policy::Uniform && args.of.is_some() {
        bail!("--of names the propensities of --policy mean-propensity; --policy uniform has none");
    }
    let log = read(&args.log)?;
    let policy = match (args.policy, &args.of) {
        (Policy::Uniform, _) => Stationary::uniform(&log),
        (Policy::MeanPropensity, Some(of)) => Stationary::mean_propensity(&log, &read(of)?)?,
        (Policy::MeanPropensity, None) => {
            bail!("--policy mean-propensity needs --of FILE, the log whose propensities it takes")
        }
    };
    let options = DirectOptions { seed: Seed(args.seed), ..DirectOptions::default() };
    let beside = args.beside.as_deref().map(|path| {
        let log = read(path)?;
        anyhow::Ok(Beside { means: LogMeans::of(&log), bad: log.bad, log: log.path })
    });
    let value = PolicyValue::of(&log, policy, options)?;
    let valued = Valued {
        rows: log.len(),
        above_zero: value.all.above_zero,
        value,
        bad: log.bad,
        log: log.path,
        beside: beside.transpose()?,
    };
    let text = text(&valued);
    Report::new(&valued, text)
}

fn text(valued: &Valued) -> String {
    let Valued { rows, above_zero, value, beside, .. } = valued;
    let mut text = format!(
        "{}: {rows} rows, each one item at one position, not a slate\n\
         {above_zero} outcomes are above 0\n\
         policy: {}\n{}",
        valued.log.display(),
        value.policy.name,
        bad(&valued.bad)
    );
    if let Some(Beside { log, bad: skipped, means }) = beside {
        text += &format!(
            "beside: {}, {} rows, {} outcomes above 0\n{}",
            log.display(),
            means.rows,
            means.above_zero,
            bad(skipped)
        );
    }
    text += &format!("\n{:<10}{:<14}{}\n", "position", "", line("mean outcome"));
    for at in value.positions.iter().chain([&value.all]) {
        let beside = beside.as_ref().and_then(|Beside { means, .. }| match at.position {
            None => Some(means.all),
            Some(position) => {
                let found = means.positions.iter().find(|(found, _)| *found == position);
                found.map(|(_, mean)| *mean)
            }
        });
        text += &block(at, beside);
    }
    if valued.value.all.ips.is_none() {
        text += "there are no propensities: only the direct method can be used, and nobody knows its \
                 error\n";
    }
    text.extend(value.doubts.iter().map(|doubt| format!("{doubt}\n")));
    text
}

/// The lines of a position.
fn block(at: &ValueAt, beside: Option<Measured>) -> String {
    let mut lines = vec![("logged", measured(at.logged))];
    let estimates = [("IPS", at.ips), ("SNIPS", at.snips), ("DR", at.doubly_robust)];
    let found = estimates.into_iter().filter_map(|(name, found)| Some((name, measured(found?))));
    lines.extend(found);
    lines.push(("direct", format!("{:.5}", at.direct)));
    lines.extend(beside.map(|mean| ("beside", measured(mean))));
    lines.push(("rows", at.rows.to_string()));
    lines.extend(at.effective_rows.map(|rows| ("effective", format!("{rows:.0} rows"))));
    let mut name = at.position.map_or_else(|| "all".into(), |position| position.to_string());
    let mut text = String::new();
    for (what, found) in lines {
        text += &format!("{name:<10}{what:<14}{found}\n");
        name.clear();
    }
    text + "\n"
}
