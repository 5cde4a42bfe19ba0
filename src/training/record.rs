//! A model in, rows of `metrics.jsonl` and a checkpoint out: what happens at every evaluation.

use burn::module::Module as _;
use burn::optim::ModuleOptimizer;

use super::Trainer;
use super::budget::{Budget, Clock};
use super::diagnostics;
use super::learner::Learner;
use super::metrics::{self, MetricsRow};
use super::observer::Observer;
use super::optimizer::save_adam;
use crate::dataset::Split;
use crate::error::Result;
use crate::estimate::Interval;
use crate::evaluation::{Evaluation, Panel};
use crate::model::Model;
use crate::retrieval::Search;
use crate::run::{Best, CheckpointState};
use crate::settings::EvaluationSearch;
use crate::task::{Audit, Audits, Task};

/// The scores, contexts times actions, up to which an evaluation is exact unless told otherwise.
const EXACT_SCORES: usize = 1 << 30;

/// The users that a run reports on, and the decision's rewards at step 0.
pub(super) struct Record<'a> {
    trainer: &'a Trainer<'a>,
    initial: &'a Model,
    panels: Vec<(Panel<'a>, Evaluation)>,
}

impl<'a> Record<'a> {
    pub(super) fn new(trainer: &'a Trainer<'a>, initial: &'a Model) -> Result<Self> {
        let Trainer { task, settings, .. } = trainer;
        let of = &settings.evaluation;
        let mut record = Self { trainer, initial, panels: Vec::new() };
        for (split, most, halves) in [
            (Split::Validation, of.validation_contexts, of.validation_halves),
            (Split::Train, of.train_contexts, 1),
        ] {
            let contexts = task.reported(split, most, settings.seed);
            if !contexts.is_empty() {
                let panel = Panel::new(task, split, contexts).with_halves(halves);
                let start = record.evaluate(initial, &panel)?;
                record.panels.push((panel, start));
            }
        }
        Ok(record)
    }

    /// True if validation users judge the checkpoints.
    pub(super) fn has_judges(&self) -> bool {
        self.panels.iter().any(|(panel, _)| panel.split() == Split::Validation)
    }

    fn evaluate(&self, model: &Model, panel: &Panel<'_>) -> Result<Evaluation> {
        panel.evaluate(|task, contexts| self.evaluate_on(task, model, contexts))
    }

    fn evaluate_on(&self, task: &Task, model: &Model, contexts: &[u32]) -> Result<Evaluation> {
        let settings = self.trainer.settings;
        let scores = contexts.len().saturating_mul(task.actions.num_actions());
        let search = match settings.evaluation.search {
            EvaluationSearch::Index => Search::Hnsw,
            EvaluationSearch::Auto if scores > EXACT_SCORES => {
                task.training_search(&settings.method).unwrap_or(Search::Exact)
            }
            EvaluationSearch::Auto | EvaluationSearch::Exact => Search::Exact,
        };
        Evaluation::of(task, model, contexts, search)
    }

    /// Evaluates, appends the rows, and checkpoints, in this order: a checkpoint's rows are always
    /// on disk. The state says which search the audit decided for.
    pub(super) fn take(
        &self,
        learner: &Learner,
        adam: &ModuleOptimizer,
        now: Moment<'_>,
        state: &mut CheckpointState,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        let Moment { clock, budget, .. } = now;
        let model = learner.model().valid();
        let mut rows = Vec::new();
        for (panel, start) in &self.panels {
            let found = match clock.step {
                0 => start.clone(),
                _ => self.evaluate(&model, panel)?,
            };
            let mut answer = Answer { gain: found.gain_over(start), found, halves: panel.halves() };
            if panel.split() == Split::Validation {
                let is_last = budget.is_spent(clock) || self.is_patience_over(state);
                if is_last
                    && is_in_doubt(state, answer.gain)
                    && let Some(surer) = self.second_look(&model, panel, [&answer.found, start])?
                {
                    answer = surer;
                }
                // By the halves of the start, as all others.
                watch(state, clock.step, start.mean() + answer.gain.mean, answer.gain);
            }
            let Answer { found, gain, halves } = answer;
            rows.push(MetricsRow::Evaluation {
                step: clock.step,
                seconds: clock.seconds,
                split: panel.split(),
                reward: found.mean(),
                reward_se: found.standard_error(),
                gain,
                contexts: panel.contexts().len(),
                halves,
                learning_rate: budget.learning_rate(clock, state.growths),
            });
        }
        if clock.step == 0 || budget.is_spent(clock) {
            rows.extend(self.audit(&model, clock, observer)?);
        }
        rows.extend(self.gradient(learner, now)?);
        rows.extend(self.coverage(&model, clock, state, observer)?);
        metrics::append(&self.trainer.run.metrics_path(), &rows)?;
        self.checkpoint(learner, adam, clock, state)?;
        observer.recorded(&rows);
        Ok(())
    }

    /// What a panel, which has `said` something of a model and of the start, says when it is asked about
    /// further halves; none where it has no more.
    fn second_look(
        &self,
        model: &Model,
        panel: &Panel<'_>,
        said: [&Evaluation; 2],
    ) -> Result<Option<Answer>> {
        let halves = self.trainer.settings.evaluation.validation_halves;
        let Some(further) = panel.further(halves) else { return Ok(None) };
        let [mut found, mut start] = said.map(|said| vec![(said.clone(), panel.halves())]);
        for task in further.halves_of(panel.task()) {
            found.push((self.evaluate_on(&task, model, panel.contexts())?, 1));
            start.push((self.evaluate_on(&task, self.initial, panel.contexts())?, 1));
        }
        let halves = found.iter().map(|(_, halves)| halves).sum();
        let found = Evaluation::weighed(&found);
        let gain = found.gain_over(&Evaluation::weighed(&start));
        Ok(Some(Answer { found, gain, halves }))
    }

    /// True if no later checkpoint is waited for, unless this one earns the most so far.
    fn is_patience_over(&self, state: &CheckpointState) -> bool {
        let patience = self.trainer.settings.evaluation.patience;
        patience > 0 && state.since_best + 1 >= patience
    }

    /// Writes a checkpoint and removes those that need not be kept.
    pub(super) fn checkpoint(
        &self,
        learner: &Learner,
        adam: &ModuleOptimizer,
        clock: Clock,
        state: &mut CheckpointState,
    ) -> Result<()> {
        state.step = clock.step;
        state.seconds = clock.seconds;
        let run = self.trainer.run;
        let model = learner.model().valid();
        run.write_checkpoint(state.clone(), &model, |folder| save_adam(adam, folder))?;
        self.prune(state)
    }

    /// Removes the checkpoints that need not be kept.
    pub(super) fn prune(&self, state: &CheckpointState) -> Result<()> {
        let Trainer { run, settings, .. } = self.trainer;
        run.prune_checkpoints(settings.checkpoint.keep, state.best.map(|b| b.step))
    }

    fn audits(&self) -> Audits<'_> {
        let Trainer { task, settings, .. } = self.trainer;
        Audits { task, method: &settings.method, seed: settings.seed }
    }

    /// Decides whether shared candidates hold enough to be used until the next evaluation.
    fn coverage(
        &self,
        model: &Model,
        clock: Clock,
        state: &mut CheckpointState,
        observer: &mut dyn Observer,
    ) -> Result<Option<MetricsRow>> {
        let (Some(latent), Some(Audit { recall: coverage, top, queries })) =
            (self.trainer.settings.method.latent(), self.audits().candidate_recall(model)?)
        else {
            return Ok(None);
        };
        let was = std::mem::replace(&mut state.per_sample, coverage < latent.coverage);
        if state.per_sample && !was {
            observer.warned(&format!(
                "shared candidates hold {:.1} % of the true top {top}, less than {:.1} %: every \
                 sample is searched for until they do; raise method.candidates ({}) or lower \
                 method.sigma",
                100.0 * coverage,
                100.0 * latent.coverage,
                latent.candidates
            ));
        }
        let Clock { step, seconds } = clock;
        Ok(Some(MetricsRow::Coverage {
            step,
            seconds,
            coverage,
            shared: !state.per_sample,
            queries,
        }))
    }

    /// The recall of the index and the acceptance rate of the rejection sampler.
    fn audit(
        &self,
        model: &Model,
        clock: Clock,
        observer: &mut dyn Observer,
    ) -> Result<Vec<MetricsRow>> {
        let Clock { step, seconds } = clock;
        let mut rows = Vec::new();
        if let Some(audit) = self.audits().recall(model)? {
            if let Some(warning) = audit.warning(&self.trainer.settings.retrieval) {
                observer.warned(&warning);
            }
            let Audit { recall, top, queries } = audit;
            rows.push(MetricsRow::Recall { step, seconds, recall, top, queries });
        }
        if let Some(rejections) = self.audits().rejections(model)? {
            let acceptance_rate = rejections.acceptance_rate();
            rows.push(MetricsRow::Rejection { step, seconds, acceptance_rate, rejections });
        }
        Ok(rows)
    }

    /// The variance of the gradient, if it was asked for.
    fn gradient(&self, learner: &Learner, now: Moment<'_>) -> Result<Option<MetricsRow>> {
        let Moment { task, clock, .. } = now;
        let settings = self.trainer.settings;
        let draws = settings.evaluation.gradient_draws;
        if draws == 0 {
            return Ok(None);
        }
        let batches = diagnostics::batches(task, settings);
        let gradient = diagnostics::gradient_statistics(learner, &batches, draws)?;
        Ok(Some(MetricsRow::Gradient { step: clock.step, seconds: clock.seconds, gradient }))
    }
}

/// Where training stands, and the task of its epoch, which is the learner's.
#[derive(Clone, Copy)]
pub(super) struct Moment<'a> {
    pub(super) task: &'a Task,
    pub(super) clock: Clock,
    pub(super) budget: &'a Budget,
}

/// What a panel says of a model, asked about so many halves.
struct Answer {
    found: Evaluation,
    gain: Interval,
    halves: u64,
}

/// True if the start is the best so far, and a gain over it may be chance.
fn is_in_doubt(state: &CheckpointState, gain: Interval) -> bool {
    let is_start = state.best.is_some_and(|best| best.step == 0);
    is_start && gain.mean > 0.0 && !is_sure(gain)
}

/// True if a gain is more than its interval; a single user gives none.
fn is_sure(gain: Interval) -> bool {
    0.0 < gain.low && gain.low < gain.mean
}

/// Updates the best checkpoint: the start, until a later one surely gains. The
/// highest reward, which patience looks at, may be chance.
pub(super) fn watch(state: &mut CheckpointState, step: u64, reward: f64, gain: Interval) {
    if state.highest.is_none_or(|highest| reward > highest) {
        (state.highest, state.since_best) = (Some(reward), 0);
    } else {
        state.since_best += 1;
    }
    if state.best.is_none_or(|best| reward > best.reward && is_sure(gain)) {
        state.best = Some(Best { step, reward });
        // It has found what pays: go on faster.
        state.growths += u32::from(step > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_is_the_best_until_a_gain_is_more_than_chance() {
        let mut state = CheckpointState::default();
        let gain = |low| Interval { mean: low + 0.02, low, high: low + 0.04 };
        watch(&mut state, 0, 0.5, gain(0.0));
        watch(&mut state, 10, 0.52, gain(-0.01));
        assert_eq!((state.best.map(|best| best.step), state.since_best), (Some(0), 0));
        // One user alone: there is no interval.
        let mut of_one = state.clone();
        watch(&mut of_one, 15, 0.51, Interval { mean: 0.01, low: 0.01, high: 0.01 });
        assert_eq!(of_one.best, state.best);
        watch(&mut state, 20, 0.51, gain(0.001));
        assert_eq!((state.best.map(|best| best.step), state.since_best), (Some(20), 1));
        watch(&mut state, 30, 0.505, gain(0.002));
        assert_eq!((state.best.map(|best| best.step), state.since_best), (Some(20), 2));
        assert_eq!(state.growths, 1);
    }

    #[test]
    fn a_gain_is_in_doubt_where_it_may_be_chance_and_the_start_would_be_served() {
        let best = |step| CheckpointState {
            best: Some(Best { step, reward: 0.5 }),
            ..CheckpointState::default()
        };
        let gain = |mean| Interval { mean, low: mean - 0.01, high: mean + 0.01 };
        assert!(is_in_doubt(&best(0), gain(0.005)));
        assert!(!is_in_doubt(&best(0), gain(0.02)));
        assert!(!is_in_doubt(&best(0), gain(-0.005)));
        assert!(!is_in_doubt(&best(100), gain(0.005)));
    }
}
