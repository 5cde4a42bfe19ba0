//! `slate train`: a prepared folder and settings in, a run out.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueHint};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use super::folders::typed;
use super::prologue::{LoggedArgs, Opened, SettingsArgs, named, open};
use crate::cli::report::Report;
use crate::dataset::Split;
use crate::device::Chosen;
use crate::error::Error;
use crate::estimate::{Estimate, Interval};
use crate::evaluation::CHOSEN_HERE;
use crate::experiment::shell;
use crate::facade::{Lesson, Policy, Refitting};
use crate::logged::Cut;
use crate::logged::rewards::LoggedReward;
use crate::run::{Best, LearnedFrom, RunFolder, RunOrigin, Which};
use crate::settings::Settings;
use crate::task::Task;
use crate::training::{Console, Ending, MetricsRow, Trainer, read_metrics};

#[derive(Debug, Args)]
pub(crate) struct TrainArgs {
    /// The prepared folder [default with --resume: the folder that the run was started on].
    #[arg(long, value_hint = ValueHint::DirPath, required_unless_present_any = ["resume", "from"])]
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
    /// Learn from a log: begin with the best model of this run, which has the action vectors of the
    /// bundle that logged.
    #[arg(long, value_name = "RUN", value_hint = ValueHint::DirPath, requires = "logged",
          conflicts_with_all = ["data", "resume", "preset", "init"])]
    from: Option<PathBuf>,
    /// Estimate a reward from the log, and train on it with the method of --from, in the place of
    /// learning by weights: direct, position-based or cascade-clicks; ips or doubly-robust for a log that
    /// has the propensity of each position.
    #[arg(long, value_name = "REWARD", requires = "from", value_parser = named::<LoggedReward>)]
    estimate: Option<LoggedReward>,
    #[command(flatten)]
    logged: LoggedArgs,
    #[command(flatten)]
    settings: SettingsArgs,
}

/// The result of a training.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Trained {
    run: PathBuf,
    ending: Ending,
    pub(super) step: u64,
    /// Validation reward of the last evaluation, its standard error and gain over step 0.
    reward: Option<f64>,
    reward_se: Option<f64>,
    gain: Option<Interval>,
    best: Option<Best>,
    /// Says that the validation users chose the best checkpoint.
    note: Option<&'static str>,
    #[serde(skip)]
    has_test_users: bool,
    /// True if it was trained from its data alone, so that it can be refitted.
    #[serde(skip)]
    is_first: bool,
    /// The log that it learned from.
    #[serde(skip)]
    logged: Option<LearnedFrom>,
}

pub(super) fn run(args: &TrainArgs) -> Result<Report> {
    let run = RunFolder::new(&args.out);
    if !args.logged.logged.is_empty() && args.from.is_none() {
        bail!("--logged goes with --from RUN; a resumed run reads the log that it began with");
    }
    let trained = if args.resume {
        let (recorded, origin) = run.read_settings()?;
        let _lock = run.lock()?;
        let settings = args.settings.resolve(&recorded)?;
        let device = args.settings.device.choose(Some(&origin.device))?;
        if let Some(log) = origin.logged {
            let policy = Policy::to_go_on(&args.out, args.data.as_deref(), device.name)?;
            let lesson = policy.lesson(&log.paths, log.reading)?;
            Ready::on_log(lesson, &policy, settings, device)?.resume(&run)?
        } else {
            let prepared = open(args.data.as_deref().unwrap_or(&origin.data))?;
            run.require_same_path(&settings, &RunOrigin::new(&prepared, device.name))?;
            Ready::of(&origin, Opened { prepared, device, settings })?.resume(&run)?
        }
    } else if let Some(from) = &args.from {
        let device = args.settings.device.choose(None)?;
        let policy = Policy::open(from, Which::Best, Some(device.name))?;
        let settings = args.settings.resolve(&policy.settings_to_learn(args.estimate)?)?;
        let reading = args.logged.reading(Cut(settings.seed), args.estimate)?;
        let logs = &args.logged.logged;
        let lesson = policy.lesson(logs, reading).map_err(|error| match error {
            Error::Setting { .. } => anyhow::Error::new(error).context(names(logs)),
            error => error.into(),
        })?;
        let corrections = policy.model.corrections.len();
        if corrections > 0 {
            tracing::info!("{corrections} corrections by earlier logs stand before this one");
        }
        for (reason, count) in &lesson.unused.0 {
            tracing::warn!("left out {count}: {reason}");
        }
        Ready::on_log(lesson, &policy, settings, device)?.start(&run, Some(from))?
    } else {
        let data = args.data.as_deref().context("--data is missing")?;
        Ready::new(args.settings.open(data)?)?.start(&run, args.init.as_deref())?
    };
    Ok(Report::new(&trained, trained.text())?.interrupted_if(trained.is_interrupted()))
}

/// A run that can begin: everything that its settings describe has been constructed once.
pub(super) struct Ready {
    task: Task,
    settings: Settings,
    device: Chosen,
    origin: RunOrigin,
}

impl Ready {
    /// Loads the task and constructs what the settings describe. Writes nothing to the run.
    pub(super) fn new(opened: Opened) -> Result<Self> {
        Self::of(&RunOrigin::new(&opened.prepared, opened.device.name), opened)
    }

    /// The same for a run that is there, on data that may have moved.
    fn of(began: &RunOrigin, opened: Opened) -> Result<Self> {
        let Opened { prepared, device, settings } = opened;
        let task = began.task(&prepared, &settings)?.on(&device)?;
        task.check(&settings, &device.device)?;
        let origin = RunOrigin::new(&prepared, device.name);
        Ok(Self { task, settings, device, origin })
    }

    /// Does again, in the run `out`, on everybody what another did. Also returns the number of users.
    pub(super) fn again(
        again: &Refitting,
        out: &RunFolder,
        device: Chosen,
    ) -> Result<(Self, usize)> {
        let settings = again.settings.clone();
        let (task, origin) = again.task(out.path(), device.name)?;
        let users = task.sessions.num_contexts();
        let task = task.on(&device)?;
        task.check(&settings, &device.device)?;
        again.begin(out, origin.clone())?;
        Ok((Self { task, settings, device, origin }, users))
    }

    /// Learns from a log what `policy` does not know yet.
    fn on_log(lesson: Lesson, policy: &Policy, settings: Settings, device: Chosen) -> Result<Self> {
        lesson.check(&policy.settings, &settings)?;
        lesson.task.check(&settings, &device.device)?;
        let origin = lesson.origin(policy.origin.clone());
        let origin = RunOrigin { device: device.name.to_owned(), ..origin };
        Ok(Self { task: lesson.task, settings, device, origin })
    }

    /// Starts the run, with the model of the run `init` if there is one, and trains.
    pub(super) fn start(self, run: &RunFolder, init: Option<&Path>) -> Result<Trained> {
        let _lock = run.lock()?;
        match init {
            None => run.begin(&self.settings, &self.origin)?,
            Some(other) => {
                let correction = self.settings.correction(&self.task.actions);
                run.begin_from(other, &self.settings, self.origin.clone(), correction)?;
            }
        }
        self.train(run)
    }

    /// Continues the run, whose settings have to be the same.
    fn resume(self, run: &RunFolder) -> Result<Trained> {
        run.resume(&self.settings, self.origin.clone())?;
        self.train(run)
    }

    /// Trains the run that has begun.
    pub(super) fn train(&self, run: &RunFolder) -> Result<Trained> {
        let Self { task, settings, device, .. } = self;
        let stop = stop_on_interrupt()?;
        let trainer = Trainer { task, settings, run, device: &device.device, stop };
        let outcome = trainer.train(&mut Console::new())?;
        let rows = read_metrics(&run.metrics_path())?;
        let last = rows.iter().rev().find_map(|row| match row {
            MetricsRow::Evaluation {
                split: Split::Validation, reward, reward_se, gain, ..
            } => Some((*reward, *reward_se, *gain)),
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
            has_test_users: !task.sessions.contexts(Split::Test).is_empty(),
            is_first: run.read_settings()?.1.is_first(),
            logged: self.origin.logged.clone(),
        })
    }
}

impl Trained {
    pub(super) fn is_interrupted(&self) -> bool {
        self.ending == Ending::Interrupted
    }

    pub(super) fn text(&self) -> String {
        let run = typed(&self.run);
        if self.is_interrupted() {
            return format!(
                "interrupted at step {}; continue with\n  slate train --resume --out {run}",
                self.step
            );
        }
        let how = if self.ending == Ending::StoppedEarly { "stopped early" } else { "trained" };
        let mut text = format!("{how} at step {}: {}\n", self.step, self.run.display());
        if let (Some(reward), Some(standard_error), Some(gain)) =
            (self.reward, self.reward_se, self.gain)
        {
            text += &format!(
                "validation reward {}, gain over step 0 {gain}\n",
                Estimate { mean: reward, standard_error }
            );
        }
        text += &match self.best {
            None => "no validation user chose a checkpoint: the last is what is evaluated and \
                     recommended from\n"
                .to_owned(),
            Some(Best { step: 0, .. }) => "no checkpoint is above the start by more than chance: \
                                           the start is what is evaluated and recommended from\n"
                .to_owned(),
            Some(Best { reward, step }) => {
                format!("best {reward:.4} at step {step}: {CHOSEN_HERE}\n")
            }
        };
        if let Some(LearnedFrom { paths, reading, .. }) = &self.logged {
            text += &match reading.estimate {
                None => format!(
                    "judge it on persons of a log with\n  slate evaluate {run} --logged {}\n",
                    names(paths)
                ),
                // Its slates need not have explored.
                Some(_) => format!(
                    "judge it by the log of answers that explore, with\n  slate evaluate {run} --logged LOG\n"
                ),
            };
        } else if self.has_test_users {
            text += &format!("judge it on test users with\n  slate evaluate {run}\n");
            if self.is_first {
                let all = format!("{}-all", self.run.components().as_path().display());
                let all = typed(all.as_ref());
                text +=
                    &format!("fit it again, on everybody, with\n  slate refit {run} --out {all}\n");
            }
        }
        text + &format!("look at slates with\n  slate recommend {run} --user ID")
    }
}

/// The paths of a log as a flag takes them.
fn names(logs: &[PathBuf]) -> String {
    let names: Vec<String> = logs.iter().map(|path| path.display().to_string()).collect();
    shell(&[names.join(",")])
}

/// A flag that the first Ctrl-C or SIGTERM sets. The second ends the process.
pub(super) fn stop_on_interrupt() -> Result<&'static AtomicBool> {
    static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    let stop = STOP.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first one finds the flag not set yet.
        let listening = flag::register_conditional_shutdown(
            signal,
            i32::from(crate::cli::report::INTERRUPTED),
            Arc::clone(stop),
        );
        let listening = listening.and_then(|_| flag::register(signal, Arc::clone(stop)));
        listening.context("listening to Ctrl-C")?;
    }
    Ok(stop)
}
