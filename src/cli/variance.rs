//! `slate variance`: how noisy the methods' gradients are, over K and S.

use anyhow::{Result, bail};
use serde::Serialize;

use super::args::VarianceArgs;
use super::train::resolve;
use super::{Report, watched};
use crate::device;
use crate::prepared::Prepared;
use crate::task::Task;
use crate::run::RunFolder;
use crate::settings::Method;
use crate::training::{GradientStatistics, Learner, diagnostic_batches, gradient_statistics};

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
    let chosen = device::choose(args.settings.device.device.as_deref())?;
    tracing::info!("{}", chosen.note);
    let prepared = watched(Prepared::open(&args.data)?);
    let preset = prepared.preset(args.settings.preset.unwrap_or_default());
    let base = resolve(&preset, &args.settings)?;
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
                        let task = Task::load(&prepared, &settings)?;
                        let initial = task.initial_model(&settings, &chosen.device)?;
                        let model = match &checkpoint {
                            Some(checkpoint) => checkpoint.load_model(initial)?,
                            None => initial,
                        };
                        let batches = diagnostic_batches(&task, &settings);
                        let learner = Learner::new(model, task.estimator(&settings)?);
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
