//! `slate train`.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};
use serde::Serialize;

use super::args::{SettingsArgs, TrainArgs};
use super::{Report, watched};
use crate::dataset::Split;
use crate::device;
use crate::evaluation::Interval;
use crate::prepared::Prepared;
use crate::task::Task;
use crate::run::{Best, RunFolder, RunOrigin};
use crate::settings::{Settings, SettingsBuilder};
use crate::training::{Console, Ending, Row, Trainer, read_metrics};

/// What a training has come to.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Trained {
    run: PathBuf,
    ending: Ending,
    step: u64,
    /// Validation reward of the last evaluation, its standard error and gain over step 0.
    reward: Option<f64>,
    reward_se: Option<f64>,
    gain: Option<Interval>,
    best: Option<Best>,
}

pub(super) fn run(args: &TrainArgs) -> Result<Report> {
    let run = RunFolder::new(&args.out);
    let trained = if args.resume {
        resume(&run, args)?
    } else {
        let data = args.data.as_deref().context("--data is missing")?;
        start(&run, data, args.init.as_deref(), &args.settings)?
    };
    let mut report = Report::new(&trained, trained.text())?;
    report.interrupted = trained.is_interrupted();
    Ok(report)
}

/// Starts a run in an empty folder, with the model of the run `init` if there is one.
pub(super) fn start(
    run: &RunFolder,
    data: &Path,
    init: Option<&Path>,
    args: &SettingsArgs,
) -> Result<Trained> {
    let chosen = device::choose(args.device.device.as_deref())?;
    tracing::info!("{}", chosen.note);
    let prepared = watched(Prepared::open(data)?);
    let settings = resolve(&prepared.preset(args.preset.unwrap_or_default()), args)?;
    let task = Task::load(&prepared, &settings)?;
    let _lock = run.lock()?;
    let origin = RunOrigin::new(&prepared, chosen.name);
    match init {
        None => run.begin(&settings, &origin)?,
        Some(other) => run.begin_from(other, &settings, origin)?,
    }
    train(run, &task, &settings, &chosen.device)
}

/// Goes on with a run whose settings are the same.
fn resume(run: &RunFolder, args: &TrainArgs) -> Result<Trained> {
    let (recorded, origin) = run.read_settings()?;
    let _lock = run.lock()?;
    let settings = resolve(&recorded, &args.settings)?;
    let device = args.settings.device.device.as_deref().unwrap_or(&origin.device);
    let chosen = device::choose(Some(device))?;
    tracing::info!("{}", chosen.note);
    let prepared = watched(Prepared::open(args.data.as_deref().unwrap_or(&origin.data))?);
    run.require_same_path(&settings, &RunOrigin::new(&prepared, chosen.name))?;
    let task = Task::load(&prepared, &settings)?;
    // The same data may have moved.
    run.write_settings(&settings, &RunOrigin { data: prepared.folder().to_owned(), ..origin })?;
    train(run, &task, &settings, &chosen.device)
}

fn train(
    run: &RunFolder,
    task: &Task,
    settings: &Settings,
    device: &burn::tensor::Device,
) -> Result<Trained> {
    let stop = stop_on_interrupt()?;
    let trainer = Trainer { task, settings, run, device, stop };
    let outcome = trainer.train(&mut Console::new())?;
    let rows = read_metrics(&run.metrics_path())?;
    let last = rows.iter().rev().find_map(|row| match row {
        Row::Evaluation { split: Split::Validation, reward, reward_se, gain, .. } => {
            Some((*reward, *reward_se, *gain))
        }
        _ => None,
    });
    Ok(Trained {
        run: run.path().to_owned(),
        ending: outcome.ending,
        step: outcome.step,
        reward: last.map(|last| last.0),
        reward_se: last.map(|last| last.1),
        gain: last.map(|last| last.2),
        best: outcome.best,
    })
}

impl Trained {
    pub(super) fn is_interrupted(&self) -> bool {
        self.ending == Ending::Interrupted
    }

    pub(super) fn text(&self) -> String {
        let run = self.run.display();
        if self.is_interrupted() {
            return format!(
                "interrupted at step {}; go on with\n  slate train --resume --out {run}",
                self.step
            );
        }
        let how = if self.ending == Ending::StoppedEarly { "stopped early" } else { "trained" };
        let mut text = format!("{how} at step {}: {run}\n", self.step);
        if let (Some(reward), Some(se), Some(gain)) = (self.reward, self.reward_se, self.gain) {
            text += &format!(
                "validation reward {reward:.4} ± {se:.4}, gain over step 0 {:+.4} [{:+.4}, {:+.4}]\n",
                gain.mean, gain.low, gain.high
            );
        }
        if let Some(best) = self.best {
            text += &format!("best {:.4} at step {}\n", best.reward, best.step);
        }
        text + &format!("look at slates with\n  slate recommend {run} --user ID")
    }
}

/// The settings that `args` make of `base`.
pub(super) fn resolve(base: &Settings, args: &SettingsArgs) -> Result<Settings> {
    let mut builder = SettingsBuilder::new(base)?;
    if let Some(path) = &args.config {
        builder = builder.file(path)?;
    }
    let kinds = [("policy.kind", &args.policy), ("estimator.kind", &args.estimator)];
    for (key, kind) in kinds {
        if let Some(kind) = kind {
            builder = builder.set(key, kind.as_str())?;
        }
    }
    for assignment in &args.set {
        builder = builder.assignment(assignment)?;
    }
    let budgets = [("steps", args.steps), ("epochs", args.epochs), ("seconds", args.seconds)];
    for (unit, amount) in budgets {
        if let Some(amount) = amount {
            builder =
                builder.set("budget.unit", unit)?.set("budget.amount", toml_integer(amount)?)?;
        }
    }
    let seed = args.seed.map(toml_integer).transpose()?;
    let samples = args.samples.map(|n| toml_integer(n as u64)).transpose()?;
    let slate_size = args.slate_size.map(|n| toml_integer(n as u64)).transpose()?;
    let numbers = [("seed", seed), ("method.samples", samples), ("slate_size", slate_size)];
    for (key, value) in numbers {
        if let Some(value) = value {
            builder = builder.set(key, value)?;
        }
    }
    Ok(builder.build()?)
}

/// TOML's integers are signed.
fn toml_integer(number: u64) -> Result<i64> {
    i64::try_from(number).with_context(|| format!("{number} is too large"))
}

/// A flag that the first Ctrl-C sets; the second one ends the process.
pub(super) fn stop_on_interrupt() -> Result<&'static AtomicBool> {
    static STOP: AtomicBool = AtomicBool::new(false);
    ctrlc::set_handler(|| {
        if STOP.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(super::INTERRUPTED));
        }
    })
    .context("listening to Ctrl-C")?;
    Ok(&STOP)
}
