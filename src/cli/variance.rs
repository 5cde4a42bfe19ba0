//! `slate variance`: how noisy the methods' gradients are, over K and S.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, ValueHint};
use serde::Serialize;

use super::prologue::{Opened, SettingsArgs};
use super::report::Report;
use crate::problem::Problem;
use crate::run::{RunFolder, Which};
use crate::settings::Method;
use crate::training::{GradientStatistics, Learner, diagnostic_batches, gradient_statistics};

#[derive(Debug, Args)]
pub(crate) struct VarianceArgs {
    /// The prepared folder.
    #[arg(value_hint = ValueHint::DirPath)]
    data: PathBuf,
    /// By commas: lgp, lgp-mips, pl-pg, pl-rank, covariance, fopo.
    #[arg(long, value_delimiter = ',', default_value = "lgp,pl-pg,pl-rank,covariance")]
    methods: Vec<Method>,
    /// K, by commas.
    #[arg(long, value_delimiter = ',', default_value = "2,5,10")]
    slate_sizes: Vec<usize>,
    /// S, by commas.
    #[arg(long, value_delimiter = ',', default_value = "1,10")]
    sample_sizes: Vec<usize>,
    /// Gradients drawn for each cell and batch.
    #[arg(long, default_value_t = 100)]
    draws: u64,
    /// At the model of this run's checkpoint instead of the initial one.
    #[arg(long, value_hint = ValueHint::DirPath)]
    run: Option<PathBuf>,
    /// Of that run: best, last or a step.
    #[arg(long, default_value_t = Which::Best, requires = "run")]
    checkpoint: Which,
    #[command(flatten)]
    settings: SettingsArgs,
}

/// A cell of the table.
#[derive(Debug, Serialize)]
struct Cell {
    method: Method,
    slate_size: usize,
    num_samples: usize,
    /// Why the method has no such cell, or its statistics.
    #[serde(flatten)]
    found: Found,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Found {
    Refused(String),
    #[serde(untagged)]
    Gradient(GradientStatistics),
}

pub(super) fn run(args: &VarianceArgs) -> Result<Report> {
    if args.settings.samples.is_some() || args.settings.slate_size.is_some() {
        bail!("the table is over several S and K: give --sample-sizes and --slate-sizes");
    }
    let Opened { prepared, device, settings: base } = args.settings.open(&args.data)?;
    let checkpoint =
        args.run.as_ref().map(|run| RunFolder::new(run).checkpoint(args.checkpoint)).transpose()?;

    let mut cells = Vec::new();
    for &slate_size in &args.slate_sizes {
        for &num_samples in &args.sample_sizes {
            for &method in &args.methods {
                let mut settings = base.clone();
                settings.policy.slate_size = slate_size;
                settings.policy.samples = num_samples;
                let found = match method.settings(settings) {
                    Err(refusal) => Found::Refused(refusal.to_string()),
                    Ok(settings) => {
                        let problem = Problem::load(&prepared, &settings)?;
                        let initial = problem.initial_model(&settings, &device.device)?;
                        let model = match &checkpoint {
                            Some(checkpoint) => checkpoint.load_model(initial)?,
                            None => initial,
                        };
                        let batches = diagnostic_batches(&problem, &settings);
                        let learner = Learner::new(model, problem.estimator(&settings)?);
                        Found::Gradient(gradient_statistics(&learner, &batches, args.draws)?)
                    }
                };
                cells.push(Cell { method, slate_size, num_samples, found });
            }
        }
    }
    Report::new(&cells, table(&cells))
}

/// A line per cell.
fn table(cells: &[Cell]) -> String {
    let mut text = String::from("  K    S  method        variance    signal      signal/noise\n");
    for cell in cells {
        let method = cell.method.to_string();
        text += &format!("{:>3}  {:>3}  {method:<12}", cell.slate_size, cell.num_samples);
        text += &match &cell.found {
            Found::Refused(why) => format!("  – {why}\n"),
            Found::Gradient(found) => format!(
                "  {:<10.3e}  {:<10.3e}  {:.3e}\n",
                found.variance, found.signal, found.signal_to_noise
            ),
        };
    }
    text
}
