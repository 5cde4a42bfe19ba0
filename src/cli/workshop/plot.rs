//! `slate plot`: draws the learning curves of runs.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum, ValueHint};
use serde::Serialize;

use super::prologue::named;
use crate::chart::{Axis, Chart, Line, Point};
use crate::cli::report::Report;
use crate::dataset::Split;
use crate::files::write_atomic;
use crate::run::RunFolder;
use crate::training::{MetricsRow, read_metrics};

#[derive(Debug, Args)]
pub(crate) struct PlotArgs {
    /// The folders of the runs.
    #[arg(value_name = "RUN", required = true, value_hint = ValueHint::DirPath)]
    runs: Vec<PathBuf>,
    /// The SVG file to write.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    out: Option<PathBuf>,
    /// The users whose mean reward is drawn: train or validation.
    #[arg(long, value_parser = named::<Split>, default_value = "validation")]
    split: Split,
    /// The horizontal axis: seconds of training, without evaluations, or optimiser steps.
    #[arg(long, value_enum, default_value_t = Over::Seconds)]
    over: Over,
    /// The vertical axis; gradient-variance needs runs with evaluation.gradient_draws.
    #[arg(long, value_enum, default_value_t = What::Reward)]
    what: What,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Over {
    Seconds,
    Steps,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    Reward,
    GradientVariance,
}

/// A run's curve.
#[derive(Debug, Serialize)]
struct Curve {
    run: PathBuf,
    name: String,
    measurements: Vec<Measured>,
}

/// A measurement after a step.
#[derive(Clone, Copy, Debug, Serialize)]
struct Measured {
    step: u64,
    seconds: f64,
    value: f64,
    standard_error: Option<f64>,
}

pub(super) fn run(args: &PlotArgs) -> Result<Report> {
    if let Some(out) = args.out.as_ref().filter(|out| out.extension().is_some_and(|it| it != "svg"))
    {
        bail!("{}: expected a name that ends with .svg", out.display());
    }
    let curve = |(run, name): (&PathBuf, String)| {
        let folder = RunFolder::new(run);
        if !folder.exists() {
            bail!("{}: no run here; `slate train` makes one", run.display());
        }
        let metrics = folder.metrics_path();
        // A run that has just begun has no measurements yet.
        let rows = if metrics.exists() { read_metrics(&metrics)? } else { Vec::new() };
        let measurements = rows.iter().filter_map(|row| args.measured(row)).collect();
        Ok(Curve { run: run.clone(), name, measurements })
    };
    let curves: Vec<Curve> =
        args.runs.iter().zip(names(&args.runs)).map(curve).collect::<Result<_>>()?;
    if curves.iter().all(|curve| curve.measurements.is_empty()) {
        match args.what {
            What::Reward => bail!("no reward of {} users in any of the runs", args.split),
            What::GradientVariance => bail!(
                "no variance in any of the runs: train with --set evaluation.gradient_draws=100"
            ),
        }
    }
    let chart = args.chart(&curves);
    if let Some(out) = &args.out {
        let picture = chart.svg()?;
        write_atomic(out, |file| Ok(file.write_all(picture.as_bytes())?))?;
    }
    let stdout = std::io::stdout().is_terminal();
    let colours = stdout && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let text = chart.terminal(columns.unwrap_or(80), colours) + "\n" + &args.table(&curves);
    Report::new(&curves, text)
}

impl PlotArgs {
    fn measured(&self, row: &MetricsRow) -> Option<Measured> {
        match *row {
            MetricsRow::Evaluation { step, seconds, split, reward, reward_se, .. }
                if self.what == What::Reward && split == self.split =>
            {
                Some(Measured { step, seconds, value: reward, standard_error: Some(reward_se) })
            }
            MetricsRow::Gradient { step, seconds, gradient }
                if self.what == What::GradientVariance =>
            {
                Some(Measured { step, seconds, value: gradient.variance, standard_error: None })
            }
            _ => None,
        }
    }

    fn chart(&self, curves: &[Curve]) -> Chart {
        let (title, up) = match self.what {
            What::Reward => ("Reward", format!("mean over {} users ± standard error", self.split)),
            What::GradientVariance => ("Variance of the gradient", "E‖G − E G‖²".to_owned()),
        };
        let across = match self.over {
            Over::Seconds => "seconds of training",
            Over::Steps => "steps",
        };
        let point = |measured: &Measured| Point {
            x: match self.over {
                Over::Seconds => measured.seconds,
                Over::Steps => measured.step as f64,
            },
            y: measured.value,
            error: measured.standard_error.unwrap_or(0.0),
        };
        let line = |(colour, curve): (usize, &Curve)| Line {
            name: curve.name.clone(),
            colour,
            points: curve.measurements.iter().map(point).collect(),
        };
        Chart {
            title: title.to_owned(),
            x: Axis { name: across.to_owned(), logarithmic: false },
            y: Axis { name: up, logarithmic: self.what == What::GradientVariance },
            lines: curves.iter().enumerate().map(line).collect(),
        }
    }

    /// A line per run: its last and its best value.
    fn table(&self, curves: &[Curve]) -> String {
        let names = curves.iter().map(|curve| curve.name.chars().count());
        let wide = names.max().unwrap_or(0).max(3);
        let mut text =
            format!("{:wide$}    step   seconds        last        best  at step\n", "run");
        for Curve { name, measurements, .. } in curves {
            text += &format!("{name:wide$}");
            let best = measurements.iter().max_by(|one, other| match self.what {
                What::Reward => one.value.total_cmp(&other.value),
                What::GradientVariance => other.value.total_cmp(&one.value),
            });
            text += &match (measurements.last(), best) {
                (Some(last), Some(best)) => format!(
                    "  {:>6}  {:>8.1}  {:>10}  {:>10}  {:>7}\n",
                    last.step,
                    last.seconds,
                    self.shown(last.value),
                    self.shown(best.value),
                    best.step
                ),
                _ => "  – nothing measured\n".to_owned(),
            };
        }
        text
    }

    fn shown(&self, value: f64) -> String {
        match self.what {
            What::Reward => format!("{value:.4}"),
            What::GradientVariance => format!("{value:.3e}"),
        }
    }
}

/// For each run the shortest end of its path that no other run shares.
fn names(runs: &[PathBuf]) -> Vec<String> {
    // A path such as `.` has to be made whole first.
    let whole = |run: &PathBuf| std::path::absolute(run).unwrap_or_else(|_| run.clone());
    let runs: Vec<PathBuf> = runs.iter().map(whole).collect();
    let end = |run: &Path, length: usize| -> PathBuf {
        run.iter().skip(run.iter().count().saturating_sub(length)).collect()
    };
    let name = |run: &PathBuf| {
        let alone = |length: &usize| {
            let own = end(run, *length);
            runs.iter().filter(|other| **other != *run).all(|other| end(other, *length) != own)
        };
        let length = (1..=run.iter().count()).find(alone);
        end(run, length.unwrap_or(usize::MAX)).display().to_string()
    };
    runs.iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_named_by_what_tells_it_from_the_others() {
        let of = |runs: &[&str]| names(&runs.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(of(&["/runs/lgp", "/runs/pl-rank"]), ["lgp", "pl-rank"]);
        assert_eq!(of(&["/a/lgp/0", "/a/pl/0", "/a/pl/1"]), ["lgp/0", "pl/0", "1"]);
        assert_eq!(of(&["/a/b", "/b"]), ["a/b", "/b"]);
        assert_eq!(of(&["/a/b", "/a/b"]), ["b", "b"]);
    }
}
