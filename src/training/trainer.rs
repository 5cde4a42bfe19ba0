//! The loop: Algorithm 1 with a budget, evaluations, checkpoints and a way to stop and go on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use burn::module::Module as _;
use burn::optim::ModuleOptimizer;
use burn::tensor::Device;
use burn::train::TrainStep as _;
use serde::Serialize;

use super::batches::Batches;
use super::budget::{Budget, Clock};
use super::diagnostics;
use super::learner::Learner;
use super::metrics::{self, Row};
use super::optimizer::adam;
use crate::dataset::Split;
use crate::error::{Error, Result};
use crate::estimator::AnyEstimator;
use crate::evaluation::Evaluation;
use crate::model::Model;
use crate::problem::{Audit, Problem, Search};
use crate::run::{Best, CheckpointState, RunFolder, Which};
use crate::seed::Purpose;
use crate::settings::{EvaluationSearch, Settings};

/// A training run: what is trained, how, where it is recorded, on which device.
#[derive(Clone, Copy, Debug)]
pub struct Trainer<'a> {
    /// What the policy is trained on and judged by.
    pub problem: &'a Problem,
    /// The run's settings.
    pub settings: &'a Settings,
    /// Where `run.toml` was written and the rest goes.
    pub run: &'a RunFolder,
    /// The device, without autodiff.
    pub device: &'a Device,
    /// Set by whoever wants the run to checkpoint and end.
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
    /// It was asked to stop, and can go on.
    Interrupted,
}

/// What a run leaves in memory.
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

/// A moment of the loop, for progress.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Steps taken.
    pub step: u64,
    /// The last step, unless the budget is in seconds.
    pub steps: Option<u64>,
    /// Share of the budget that is spent.
    pub spent: f64,
    /// Training clock.
    pub seconds: f64,
    /// Mean reward of the last step's sampled slates.
    pub sampled_reward: f32,
}

/// Who watches a run. `()` does not look.
pub trait Observer {
    /// After every step.
    fn stepped(&mut self, _progress: Progress) {}
    /// After every evaluation, with the rows that were recorded.
    fn recorded(&mut self, _rows: &[Row]) {}
    /// Something the user should know.
    fn warned(&mut self, _message: &str) {}
}

impl Observer for () {}

/// The flag of whoever never asks for a stop.
static NEVER: AtomicBool = AtomicBool::new(false);

impl<'a> Trainer<'a> {
    /// A run that has begun, to be trained to its end.
    #[must_use]
    pub fn new(
        problem: &'a Problem,
        settings: &'a Settings,
        run: &'a RunFolder,
        device: &'a Device,
    ) -> Self {
        Self { problem, settings, run, device, stop: &NEVER }
    }

    /// Trains until the budget is spent, going on from the last checkpoint if there is one.
    ///
    /// # Errors
    /// A damaged checkpoint, a failing device or index, a full disk; what was recorded before
    /// stays and can be resumed from.
    pub fn train(&self, observer: &mut dyn Observer) -> Result<Outcome> {
        let settings = self.settings;
        let trained_on = self.problem.sessions.contexts(Split::Train);
        if trained_on.is_empty() {
            return Err(Error::file(self.run.path(), "the prepared data has no training user"));
        }
        let mut batches = Batches::new(trained_on, settings.optimizer.batch_size, settings.seed);
        let budget = Budget::new(settings, &batches);
        let initial = self.problem.initial_model(settings, self.device)?;
        let initial = self.run.initial_model(initial)?;
        let record = Record::new(self, &initial)?;

        let fresh = self.run.checkpoints()?.is_empty();
        let (mut learner, mut adam, mut state) = self.start(&initial)?;
        let mut clock = Clock { step: state.step, seconds: state.seconds };
        if fresh {
            learner = record.take(learner, &adam, clock, &budget, &mut state, observer)?;
        }

        let patience = settings.evaluation.patience;
        while !budget.is_spent(clock) {
            if patience > 0 && state.since_best >= patience {
                return Ok(outcome(&learner, &state, clock, Ending::StoppedEarly));
            }
            let (before, started) = (clock, Instant::now());
            let batch = batches.at(clock.step, &self.problem.contexts);
            let output = learner.step(batch);
            let sampled_reward = output.item.reward?;
            learner = learner.optimize(&mut adam, budget.learning_rate(clock).into(), output.grads);
            clock.step += 1;
            clock.seconds += started.elapsed().as_secs_f64();
            observer.stepped(Progress {
                step: clock.step,
                steps: budget.steps(),
                spent: budget.spent(clock),
                seconds: clock.seconds,
                sampled_reward,
            });

            let due = budget.evaluation_due(before, clock);
            if due {
                learner = record.take(learner, &adam, clock, &budget, &mut state, observer)?;
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
            let state = CheckpointState::default();
            let learner = self.learner(initial.clone(), &state)?;
            return Ok((learner, adam, state));
        }
        let checkpoint = self.run.checkpoint(Which::Last)?;
        metrics::cut(&self.run.metrics_path(), Some(checkpoint.state.step))?;
        let model = checkpoint.load_model(initial.clone())?;
        let learner = self.learner(model, &checkpoint.state)?;
        let path = checkpoint.path().join(ADAM);
        let adam =
            adam.load(&path).map_err(|error| Error::library(path.display().to_string(), error))?;
        Ok((learner, adam, checkpoint.state))
    }

    fn learner(&self, model: Model, state: &CheckpointState) -> Result<Learner> {
        let clipping = self.settings.optimizer.gradient_clipping;
        Ok(Learner::new(model, self.estimator(state)?).with_clipping(clipping))
    }

    /// The run's estimator, with a search for every sample where shared candidates cover too little.
    fn estimator(&self, state: &CheckpointState) -> Result<AnyEstimator> {
        let mut settings = self.settings.clone();
        if state.per_sample {
            settings.retrieval.candidates = 0;
        }
        self.problem.estimator(&settings)
    }
}

fn outcome(learner: &Learner, state: &CheckpointState, clock: Clock, ending: Ending) -> Outcome {
    Outcome { model: learner.model().valid(), step: clock.step, ending, best: state.best }
}

const ADAM: &str = "adam.bpk";

/// The scores, contexts times actions, up to which an evaluation is exact unless told.
const EXACT_SCORES: usize = 1 << 30;

/// What is looked at and written down at every evaluation.
struct Record<'a> {
    trainer: &'a Trainer<'a>,
    /// The contexts reported on, and the decision's rewards at step 0.
    splits: Vec<(Split, Vec<u32>, Evaluation)>,
}

impl<'a> Record<'a> {
    fn new(trainer: &'a Trainer<'a>, initial: &Model) -> Result<Self> {
        let sessions = &trainer.problem.sessions;
        let settings = &trainer.settings.evaluation;
        let mut record = Self { trainer, splits: Vec::new() };
        for (position, split, most) in [
            (1, Split::Validation, settings.validation_contexts),
            (0, Split::Train, settings.train_contexts),
        ] {
            let mut contexts = sessions.contexts(split);
            trainer.settings.seed.stream(Purpose::Report, 0, position).shuffle(&mut contexts);
            contexts.truncate(most);
            contexts.sort_unstable();
            if !contexts.is_empty() {
                let start = record.evaluate(initial, &contexts)?;
                record.splits.push((split, contexts, start));
            }
        }
        Ok(record)
    }

    fn evaluate(&self, model: &Model, contexts: &[u32]) -> Result<Evaluation> {
        let Trainer { problem, settings, .. } = self.trainer;
        let scores = contexts.len().saturating_mul(problem.actions.num_actions());
        let search = match settings.evaluation.search {
            EvaluationSearch::Auto if scores > EXACT_SCORES => Search::Training,
            EvaluationSearch::Auto | EvaluationSearch::Exact => Search::Exact,
            EvaluationSearch::Index => Search::Training,
        };
        Evaluation::of(problem, model, contexts, search)
    }

    /// Evaluates, appends the rows, and checkpoints, in this order: a checkpoint's rows are always
    /// on disk. The learner goes on with the search that the audit decided for.
    fn take(
        &self,
        learner: Learner,
        adam: &ModuleOptimizer,
        clock: Clock,
        budget: &Budget,
        state: &mut CheckpointState,
        observer: &mut dyn Observer,
    ) -> Result<Learner> {
        let model = learner.model().valid();
        let mut rows = Vec::new();
        for (split, contexts, start) in &self.splits {
            let now = match clock.step {
                0 => start.clone(),
                _ => self.evaluate(&model, contexts)?,
            };
            if *split == Split::Validation {
                watch(state, clock.step, now.mean());
            }
            rows.push(Row::Evaluation {
                step: clock.step,
                seconds: clock.seconds,
                split: *split,
                reward: now.mean(),
                reward_se: now.standard_error(),
                gain: now.gain_over(start),
                contexts: contexts.len(),
                learning_rate: budget.learning_rate(clock),
            });
        }
        if clock.step == 0 || budget.is_spent(clock) {
            rows.extend(self.audit(&model, clock, observer)?);
        }
        rows.extend(self.gradient(&learner, clock)?);
        rows.extend(self.coverage(&model, clock, state, observer)?);
        metrics::append(&self.trainer.run.metrics_path(), &rows)?;
        self.checkpoint(&learner, adam, clock, state)?;
        observer.recorded(&rows);
        Ok(learner.with_estimator(self.trainer.estimator(state)?))
    }

    /// Looks whether shared candidates hold enough to be used until the next evaluation.
    fn coverage(
        &self,
        model: &Model,
        clock: Clock,
        state: &mut CheckpointState,
        observer: &mut dyn Observer,
    ) -> Result<Option<Row>> {
        let Trainer { problem, settings, .. } = self.trainer;
        let Some(Audit { recall: coverage, top, queries }) = problem.coverage(settings, model)?
        else {
            return Ok(None);
        };
        let retrieval = &settings.retrieval;
        let was = std::mem::replace(&mut state.per_sample, coverage < retrieval.coverage);
        if state.per_sample && !was {
            observer.warned(&format!(
                "shared candidates hold {:.1} % of the true top {top}, less than {:.1} %: every \
                 sample is searched for until they do; raise retrieval.candidates ({}) or lower \
                 policy.sigma",
                100.0 * coverage,
                100.0 * retrieval.coverage,
                retrieval.candidates
            ));
        }
        let Clock { step, seconds } = clock;
        Ok(Some(Row::Coverage { step, seconds, coverage, shared: !state.per_sample, queries }))
    }

    fn checkpoint(
        &self,
        learner: &Learner,
        adam: &ModuleOptimizer,
        clock: Clock,
        state: &mut CheckpointState,
    ) -> Result<()> {
        state.step = clock.step;
        state.seconds = clock.seconds;
        let run = self.trainer.run;
        run.write_checkpoint(state.clone(), &learner.model().valid(), |folder| {
            let path = folder.join(ADAM);
            adam.save(&path).map_err(|error| Error::library(path.display().to_string(), error))
        })?;
        run.prune_checkpoints(self.trainer.settings.checkpoint.keep, state.best.map(|b| b.step))
    }

    /// What the run's approximations cost.
    fn audit(&self, model: &Model, clock: Clock, observer: &mut dyn Observer) -> Result<Vec<Row>> {
        let (problem, settings) = (self.trainer.problem, self.trainer.settings);
        let Clock { step, seconds } = clock;
        let mut rows = Vec::new();
        if let Some(audit) = problem.audit(settings, model)? {
            if let Some(warning) = audit.warning(settings) {
                observer.warned(&warning);
            }
            let (recall, top, queries) = (audit.recall, audit.top, audit.queries);
            rows.push(Row::Recall { step, seconds, recall, top, queries });
        }
        if let Some(rejections) = problem.rejections(settings, model)? {
            let acceptance_rate = rejections.acceptance_rate();
            rows.push(Row::Rejection { step, seconds, acceptance_rate, rejections });
        }
        Ok(rows)
    }

    /// The variance of the gradient, if it was asked for.
    fn gradient(&self, learner: &Learner, clock: Clock) -> Result<Option<Row>> {
        let draws = self.trainer.settings.evaluation.gradient_draws;
        if draws == 0 {
            return Ok(None);
        }
        let batches = diagnostics::batches(self.trainer.problem, self.trainer.settings);
        let gradient = diagnostics::gradient_statistics(learner, &batches, draws)?;
        Ok(Some(Row::Gradient { step: clock.step, seconds: clock.seconds, gradient }))
    }
}

/// Keeps track of the best validation reward.
fn watch(state: &mut CheckpointState, step: u64, reward: f64) {
    if state.best.is_none_or(|best| reward > best.reward) {
        state.best = Some(Best { step, reward });
        state.since_best = 0;
    } else {
        state.since_best += 1;
    }
}
