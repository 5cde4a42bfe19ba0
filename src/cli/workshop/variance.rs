//! `slate variance`: a prepared folder in, the variance of the methods' gradients over K and S out.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, ValueHint};
use serde::Serialize;

use super::prologue::{Opened, SettingsArgs};
use crate::cli::report::Report;
use crate::method::MethodKind;
use crate::run::{RunFolder, Which};
use crate::settings::SettingsBuilder;
use crate::task::Task;
use crate::training::{GradientStatistics, Learner, diagnostic_batches, gradient_statistics};

#[derive(Debug, Args)]
pub(crate) struct VarianceArgs {
    /// The prepared folder.
    #[arg(value_hint = ValueHint::DirPath)]
    data: PathBuf,
    /// The methods to compare, separated by commas, such as lgp,lgp-mips,pl-rank,fopo.
    #[arg(long, value_delimiter = ',', default_value = "lgp,pl-pg,pl-rank,covariance")]
    methods: Vec<MethodKind>,
    /// The values of K, the number of items on a slate, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "2,5,10")]
    slate_sizes: Vec<usize>,
    /// The values of S, the number of sampled slates, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1,10")]
    sample_sizes: Vec<usize>,
    /// The number of gradients to draw for each cell and batch.
    #[arg(long, default_value_t = 100)]
    draws: u64,
    /// Measure at the model of this run instead of the initial model.
    #[arg(long, value_hint = ValueHint::DirPath)]
    run: Option<PathBuf>,
    /// The checkpoint of that run: best (by validation reward; step 0 unless one beats it by more than chance), last, or a step.
    #[arg(long, default_value_t = Which::Best, requires = "run")]
    checkpoint: Which,
    #[command(flatten)]
    settings: SettingsArgs,
}

/// The gradient of one method at one K and S.
#[derive(Debug, Serialize)]
struct Cell {
    method: MethodKind,
    slate_size: usize,
    num_samples: usize,
    /// The statistics, or the reason why the method does not train so.
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
    let given = &args.settings;
    // A file may have these keys, for it may be the run.toml of --run.
    let of_table = |assignment: &String| {
        let key = assignment.split('=').next().unwrap_or_default().trim();
        ["method.kind", "method.samples", "slate_size"].contains(&key)
    };
    let has_flag = given.method.is_some() || given.samples.is_some() || given.slate_size.is_some();
    if has_flag || given.set.iter().any(of_table) {
        bail!(
            "the table is over several methods, S and K: give --methods, --sample-sizes and --slate-sizes"
        );
    }
    given.require_no_budget()?;
    let Opened { prepared, device, settings: base } = args.settings.open(&args.data)?;
    let mut at = None;
    if let Some(run) = &args.run {
        let folder = RunFolder::new(run);
        let (theirs, origin) = folder.read_settings()?;
        if origin.data_digest != prepared.digest() {
            let (run, data) = (run.display(), args.data.display());
            bail!("{run}: was trained on other data than {data} holds");
        }
        let differences = theirs.differences_in_model(&base);
        if !differences.is_empty() {
            let (run, differences) = (run.display(), differences.join("; "));
            bail!("{run}: its model is another one: {differences}; give --config {run}/run.toml");
        }
        let checkpoint = folder.checkpoint(args.checkpoint)?;
        at = Some((folder, checkpoint));
    }

    let mut cells = Vec::new();
    for &slate_size in &args.slate_sizes {
        for &num_samples in &args.sample_sizes {
            for &method in &args.methods {
                let settings = SettingsBuilder::new(&base)?
                    .set("method.kind", method.key())?
                    .count("method.samples", num_samples)?
                    .count("slate_size", slate_size)?
                    .build();
                let found = match settings {
                    Err(refusal) => Found::Refused(refusal.to_string()),
                    Ok(settings) => {
                        let task = Task::load(&prepared, &settings)?.on(&device)?;
                        let initial = task.initial_model(&settings, &device.device)?;
                        let model = match &at {
                            Some((run, checkpoint)) => {
                                checkpoint.load_model(run.initial_model(initial, task.shape())?)?
                            }
                            None => initial,
                        };
                        let batches = diagnostic_batches(&task, &settings);
                        let estimator = task.estimator(&settings.method, settings.seed)?;
                        let learner = Learner::new(task.to_train(model), estimator);
                        Found::Gradient(gradient_statistics(&learner, &batches, args.draws)?)
                    }
                };
                cells.push(Cell { method, slate_size, num_samples, found });
            }
        }
    }
    Report::new(&cells, table(&cells))
}

/// Writes a line for each cell.
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
