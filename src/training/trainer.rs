//! A task and settings in, a trained model out: Algorithm 1 with a budget, evaluations, checkpoints
//! and a way to stop and go on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use burn::module::Module as _;
use burn::optim::ModuleOptimizer;
use burn::tensor::Device;
use burn::train::TrainStep as _;
use serde::Serialize;

use super::batches::Batches;
use super::budget::{Budget, Clock};
use super::learner::Learner;
use super::metrics;
use super::observer::{Observer, Progress};
use super::optimizer::{adam, load_adam};
use super::record::{Moment, Record};
use crate::dataset::Split;
use crate::error::{Error, Result};
use crate::estimator::AnyEstimator;
use crate::model::Model;
use crate::run::{Best, CheckpointState, RunFolder, Which};
use crate::seed::Seed;
use crate::settings::Settings;
use crate::task::Task;

/// A training run: its task, its settings, its folder and its device.
#[derive(Clone, Copy, Debug)]
pub struct Trainer<'a> {
    /// The data, the searches and the reward.
    pub task: &'a Task,
    /// The run's settings.
    pub settings: &'a Settings,
    /// The folder that holds `run.toml`, and gets metrics and checkpoints.
    pub run: &'a RunFolder,
    /// The device, without autodiff.
    pub device: &'a Device,
    /// Once this is set, the run writes a checkpoint and ends.
    pub stop: &'a AtomicBool,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// The budget is spent.
    Finished,
    /// The validation reward has stopped rising.
    StoppedEarly,
    /// `stop` was set. The run can be resumed.
    Interrupted,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The model after the last step, without autodiff.
    pub model: Model,
    /// Steps taken in all.
    pub step: u64,
    /// How it ended.
    pub ending: Ending,
    /// The best validation reward and its step.
    pub best: Option<Best>,
}

/// The stop flag of a run that nobody stops.
static NEVER: AtomicBool = AtomicBool::new(false);

impl<'a> Trainer<'a> {
    /// A run that has begun, to be trained to its end.
    #[must_use]
    pub fn new(
        task: &'a Task,
        settings: &'a Settings,
        run: &'a RunFolder,
        device: &'a Device,
    ) -> Self {
        Self { task, settings, run, device, stop: &NEVER }
    }

    /// Trains until the budget is spent, going on from the last checkpoint if there is one.
    ///
    /// # Errors
    /// [`Error::Setting`] for settings out of range; a damaged checkpoint, a failing device or index, a full disk, [`Error::NotFinite`] naming the step
    /// and the tensor; what was recorded before stays and can be resumed from.
    pub fn train(&self, observer: &mut dyn Observer) -> Result<Outcome> {
        let settings = self.settings;
        settings.validate()?;
        if self.task.sessions.contexts(Split::Train).is_empty() {
            return Err(Error::file(self.run.path(), "the prepared data has no training user"));
        }
        let groups = self.task.training_groups();
        let mut batches = Batches::new(groups, settings.optimizer.batch_size, settings.seed);
        let refit = self.run.read_settings()?.1.refit;
        let judged = refit.is_none();
        let budget = Budget::new(settings, &batches, self.task.reward.as_ref(), refit);
        let initial = self.task.initial_model(settings, self.device)?;
        let initial = self.run.initial_model(initial, self.task.shape())?;
        let record = Record::new(self, &initial).map_err(|error| error.in_step(0))?;

        let fresh = self.run.checkpoints()?.is_empty();
        let (mut learner, mut adam, mut state) = self.start(&initial)?;
        let mut clock = Clock { step: state.step, seconds: state.seconds };
        if fresh {
            if judged && !record.has_judges() {
                observer.warned(
                    "no validation user judges this run: its last checkpoint is what is served, better \
                     than the start or not, and evaluation.patience and optimizer.growth do nothing; \
                     prepare the data with a --validation-share",
                );
            }
            let now = Moment { task: self.task, clock, budget: &budget };
            let taken = record.take(&learner, &adam, now, &mut state, observer);
            taken.map_err(|error| error.in_step(clock.step))?;
            learner = learner.with_estimator(self.estimator(self.task, &state)?);
        } else {
            // Whoever ended after a checkpoint was written may have left the ones before it.
            record.prune(&state)?;
        }
        let mut halves = Halves::new(self.task, settings);

        let patience = settings.evaluation.patience;
        while !budget.is_spent(clock) {
            if patience > 0 && state.since_best >= patience {
                return Ok(outcome(&learner, &state, clock, Ending::StoppedEarly));
            }
            let (before, started) = (clock, Instant::now());
            if halves.turn_to(batches.epoch(clock.step)) {
                learner = learner.with_estimator(self.estimator(halves.task(), &state)?);
            }
            let output = learner.step(batches.at(clock.step, &halves.task().contexts));
            let sampled_reward =
                output.item.reward.map_err(|error| error.in_step(clock.step + 1))?;
            let rate = budget.learning_rate(clock, state.growths);
            learner = learner.optimize(&mut adam, rate.into(), output.grads);
            clock.step += 1;
            clock.seconds += started.elapsed().as_secs_f64();
            observer.stepped(Progress {
                step: clock.step,
                steps: budget.steps(),
                spent: budget.done(clock),
                seconds: clock.seconds,
                sampled_reward,
            });

            let due = budget.evaluation_due(before, clock);
            if due {
                let now = Moment { task: halves.task(), clock, budget: &budget };
                let taken = record.take(&learner, &adam, now, &mut state, observer);
                taken.map_err(|error| error.in_step(clock.step))?;
                learner = learner.with_estimator(self.estimator(halves.task(), &state)?);
            }
            if self.stop.load(Ordering::Relaxed) && !budget.is_spent(clock) {
                if !due {
                    record.checkpoint(&learner, &adam, clock, &mut state)?;
                }
                return Ok(outcome(&learner, &state, clock, Ending::Interrupted));
            }
        }
        Ok(outcome(&learner, &state, clock, Ending::Finished))
    }

    /// Learner, optimiser and state to begin with: those of the last checkpoint, or new ones.
    fn start(&self, initial: &Model) -> Result<(Learner, ModuleOptimizer, CheckpointState)> {
        let adam = adam(&self.settings.optimizer);
        if self.run.checkpoints()?.is_empty() {
            metrics::cut(&self.run.metrics_path(), None)?;
            let folds = Some(self.task.num_folds());
            let state = CheckpointState { folds, ..CheckpointState::default() };
            let learner = self.learner(initial.clone(), &state)?;
            return Ok((learner, adam, state));
        }
        let checkpoint = self.run.checkpoint(Which::Last)?;
        let (before, now) = (checkpoint.state.folds, self.task.num_folds());
        if let Some(before) = before.filter(|before| *before != now) {
            let problem = format!(
                "began with {before} folds of training users, and {now} are made now: less memory is free, or \
                 it began in another version; resume it where it began"
            );
            return Err(Error::file(self.run.path(), problem));
        }
        metrics::cut(&self.run.metrics_path(), Some(checkpoint.state.step))?;
        let model = checkpoint.load_model(initial.clone())?;
        let learner = self.learner(model, &checkpoint.state)?;
        let adam = load_adam(adam, &checkpoint)?;
        Ok((learner, adam, checkpoint.state))
    }

    fn learner(&self, model: Model, state: &CheckpointState) -> Result<Learner> {
        let model = self.task.to_train(model);
        let clipping = self.settings.optimizer.gradient_clipping;
        Ok(Learner::new(model, self.estimator(self.task, state)?).with_clipping(clipping))
    }

    /// The run's estimator on `task`, with a search for every sample where shared candidates hold too
    /// little.
    fn estimator(&self, task: &Task, state: &CheckpointState) -> Result<AnyEstimator> {
        let Settings { method, seed, .. } = self.settings;
        if state.per_sample {
            return task.estimator(&method.clone().without_candidates(), *seed);
        }
        task.estimator(method, *seed)
    }
}

/// The task of the epoch: the run's, with the halves of the training users drawn anew if the settings
/// ask for that.
struct Halves<'a> {
    given: &'a Task,
    redraw: bool,
    seed: Seed,
    drawn: Option<(u64, Task)>,
}

impl<'a> Halves<'a> {
    fn new(given: &'a Task, settings: &Settings) -> Self {
        Self { given, redraw: settings.context.redraw, seed: settings.seed, drawn: None }
    }

    /// Turns to an epoch; true if the task is another one then. The first has the halves as given.
    fn turn_to(&mut self, epoch: u64) -> bool {
        if !self.redraw || epoch == self.drawn.as_ref().map_or(0, |(drawn, _)| *drawn) {
            return false;
        }
        self.drawn = None; // before there are two
        self.drawn = self.given.redrawn(Split::Train, self.seed, epoch).map(|task| (epoch, task));
        self.drawn.is_some()
    }

    fn task(&self) -> &Task {
        self.drawn.as_ref().map_or(self.given, |(_, task)| task)
    }
}

fn outcome(learner: &Learner, state: &CheckpointState, clock: Clock, ending: Ending) -> Outcome {
    Outcome { model: learner.model().valid(), step: clock.step, ending, best: state.best }
}
