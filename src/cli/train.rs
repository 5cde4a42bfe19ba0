//! `slate train`: a prepared folder and settings in, a run out.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};
use clap::{Args, ValueHint};
use serde::Serialize;

use super::prologue::{Opened, SettingsArgs, open};
use super::report::Report;
use crate::dataset::Split;
use crate::estimate::{Estimate, Interval};
use crate::evaluation::CHOSEN_HERE;
use crate::problem::Problem;
use crate::run::{Best, RunFolder, RunOrigin};
use crate::settings::Settings;
use crate::training::{Console, Ending, Row, Trainer, read_metrics};

#[derive(Debug, Args)]
pub(crate) struct TrainArgs {
    /// The prepared folder [default with --resume: the folder that the run was started on].
    #[arg(long, value_hint = ValueHint::DirPath, required_unless_present = "resume")]
    data: Option<PathBuf>,
    /// The folder to write the run to.
    #[arg(long, value_hint = ValueHint::DirPath)]
    out: PathBuf,
    /// Continue the run in --out from its last checkpoint.
    #[arg(long, conflicts_with_all = ["preset", "config", "init"])]
    resume: bool,
    /// Begin with the best model of this run, which must have the same tower and the same data.
    #[arg(long, value_name = "RUN", value_hint = ValueHint::DirPath)]
    init: Option<PathBuf>,
    #[command(flatten)]
    settings: SettingsArgs,
}

/// The result of a training.
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
    /// Says that the validation users chose the best checkpoint.
    note: Option<&'static str>,
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

/// Starts a run, with the model of the run `init` if there is one.
pub(super) fn start(
    run: &RunFolder,
    data: &Path,
    init: Option<&Path>,
    args: &SettingsArgs,
) -> Result<Trained> {
    let Opened { prepared, device, settings } = args.open(data)?;
    let problem = Problem::load(&prepared, &settings)?;
    let _lock = run.lock()?;
    let origin = RunOrigin::new(&prepared, device.name);
    match init {
        None => run.begin(&settings, &origin)?,
        Some(other) => run.begin_from(other, &settings, origin)?,
    }
    train(run, &problem, &settings, &device.device)
}

/// Continues a run whose settings are the same.
fn resume(run: &RunFolder, args: &TrainArgs) -> Result<Trained> {
    let (recorded, origin) = run.read_settings()?;
    let _lock = run.lock()?;
    let settings = args.settings.resolve(&recorded)?;
    let chosen = args.settings.device.choose(Some(&origin.device))?;
    let prepared = open(args.data.as_deref().unwrap_or(&origin.data))?;
    run.require_same_path(&settings, &RunOrigin::new(&prepared, chosen.name))?;
    let problem = Problem::load(&prepared, &settings)?;
    // The same data may have moved.
    run.write_settings(&settings, &RunOrigin { data: prepared.folder().to_owned(), ..origin })?;
    train(run, &problem, &settings, &chosen.device)
}

fn train(
    run: &RunFolder,
    problem: &Problem,
    settings: &Settings,
    device: &burn::tensor::Device,
) -> Result<Trained> {
    let stop = stop_on_interrupt()?;
    let trainer = Trainer { problem, settings, run, device, stop };
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
        note: outcome.best.map(|_| CHOSEN_HERE),
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
                "interrupted at step {}; continue with\n  slate train --resume --out {run}",
                self.step
            );
        }
        let how = if self.ending == Ending::StoppedEarly { "stopped early" } else { "trained" };
        let mut text = format!("{how} at step {}: {run}\n", self.step);
        if let (Some(reward), Some(standard_error), Some(gain)) =
            (self.reward, self.reward_se, self.gain)
        {
            text += &format!(
                "validation reward {}, gain over step 0 {gain}\n",
                Estimate { mean: reward, standard_error }
            );
        }
        if let Some(best) = self.best {
            let Best { reward, step } = best;
            text += &format!("best {reward:.4} at step {step}: {CHOSEN_HERE}\n");
        }
        text + &format!(
            "judge it on test users with\n  slate evaluate {run}\n\
             look at slates with\n  slate recommend {run} --user ID"
        )
    }
}

/// A flag that the first Ctrl-C sets. The second Ctrl-C ends the process.
pub(super) fn stop_on_interrupt() -> Result<&'static AtomicBool> {
    static STOP: AtomicBool = AtomicBool::new(false);
    ctrlc::set_handler(|| {
        if STOP.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(super::report::INTERRUPTED));
        }
    })
    .context("listening to Ctrl-C")?;
    Ok(&STOP)
}
