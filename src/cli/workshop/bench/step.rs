//! `slate bench step`: a prepared folder and settings in, the time of a training step and of its parts
//! out. The parts are the library's tracing spans. On a GPU, work counts where it is waited for.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use burn::train::TrainStep as _;
use clap::{Args, ValueHint};
use serde::Serialize;
use tracing::span::Id;
use tracing::{Subscriber, trace_span};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

use super::{MannerArgs, Searcher};
use crate::cli::report::Report;
use crate::cli::workshop::prologue::{Opened, SettingsArgs};
use crate::model::Model;
use crate::settings::Settings;
use crate::task::{Audit, Audits, Task};
use crate::training::{Batches, Learner, adam};

#[derive(Debug, Args)]
pub(crate) struct BenchStepArgs {
    /// The prepared folder.
    #[arg(value_hint = ValueHint::DirPath)]
    data: PathBuf,
    #[command(flatten)]
    settings: SettingsArgs,
    #[command(flatten)]
    manner: MannerArgs,
}

/// The most steps before the measured ones, because the first steps find cold caches. No more steps
/// are dropped than are measured.
const WARM_UP: u64 = 20;

/// The default number of measured steps.
const STEPS: u64 = 200;

/// The result of the benchmark.
#[derive(Debug, Serialize)]
struct Measured {
    /// What makes the exact searches of everybody's vectors.
    #[serde(flatten)]
    searcher: Searcher,
    steps: u64,
    steps_per_second: f64,
    /// Milliseconds a step.
    total: f64,
    parts: Vec<Part>,
    /// None if the settings share no candidates.
    candidates: Option<SharedCandidates>,
}

/// The audit of shared candidates before the first step. It decides whether training uses them.
#[derive(Clone, Copy, Debug, Serialize)]
struct SharedCandidates {
    /// The share of the true top that the candidates hold, and its least allowed value.
    recall: f64,
    least: f64,
    top: usize,
    /// False if training searches for every sample instead; that search was timed then.
    used: bool,
}

#[derive(Debug, Serialize)]
struct Part {
    name: &'static str,
    /// Milliseconds a step.
    milliseconds: f64,
    share: f64,
}

pub(crate) fn run(args: &BenchStepArgs) -> Result<Report> {
    let by_time = args.settings.epochs.is_some() || args.settings.seconds.is_some();
    anyhow::ensure!(
        !by_time,
        "steps are measured, so many as --steps: leave --epochs and --seconds out"
    );
    let Opened { prepared, device, settings } = args.settings.open(&args.data)?;
    let device = args.manner.of(device)?;
    let task = Task::load(&prepared, &settings)?.on(&device)?;
    let searcher = Searcher::new(&device, task.exact.on_device());
    let groups = task.training_groups();
    let nobody = groups.iter().all(Vec::is_empty);
    anyhow::ensure!(!nobody, "{}: no training user", args.data.display());
    let mut batches = Batches::new(groups, settings.optimizer.batch_size, settings.seed);
    let model = task.initial_model(&settings, &device.device)?;
    let candidates = audit(&task, &settings, &model)?;
    let mut method = settings.method.clone();
    if candidates.is_some_and(|candidates| !candidates.used) {
        method = method.without_candidates();
    }
    let mut learner = Learner::new(task.to_train(model), task.estimator(&method, settings.seed)?)
        .with_clipping(settings.optimizer.gradient_clipping);
    let mut adam = adam(&settings.optimizer);
    let rate = settings.optimizer.learning_rate;
    let steps = args.settings.steps.unwrap_or(STEPS);
    let warm_up = WARM_UP.min(steps);

    let parts = Parts::default();
    let subscriber = tracing_subscriber::registry().with(parts.clone());
    let mut started = Instant::now();
    tracing::subscriber::with_default(subscriber, || -> Result<()> {
        for step in 0..warm_up + steps {
            if step == warm_up {
                parts.clear();
                started = Instant::now();
            }
            let batch = batches.at(step, &task.contexts);
            let output = learner.step(batch);
            output.item.reward?;
            let _span = trace_span!("optimiser").entered();
            learner = learner.clone().optimize(&mut adam, rate.into(), output.grads);
        }
        Ok(())
    })?;
    let elapsed = started.elapsed();
    let measured = Measured { candidates, ..parts.measured(searcher, steps, elapsed) };
    Report::new(&measured, measured.text()).context("reporting the benchmark")
}

/// Audits shared candidates as training does before its first step.
fn audit(task: &Task, settings: &Settings, model: &Model) -> Result<Option<SharedCandidates>> {
    let Settings { method, seed, .. } = settings;
    let audit = Audits { task, method, seed: *seed }.candidate_recall(model)?;
    Ok(method.latent().zip(audit).map(|(latent, Audit { recall, top, .. })| {
        let least = latent.coverage;
        SharedCandidates { recall, least, top, used: recall >= least }
    }))
}

/// Adds up the time in every span, by its name and in the order of first sight.
#[derive(Clone, Debug, Default)]
struct Parts(Arc<Mutex<Vec<(&'static str, Duration)>>>);

impl Parts {
    fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn measured(&self, searcher: Searcher, steps: u64, elapsed: Duration) -> Measured {
        let a_step = |time: Duration| time.as_secs_f64() * 1e3 / steps.max(1) as f64;
        let total = a_step(elapsed);
        let parts = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let in_parts: Duration = parts.iter().map(|(_, time)| *time).sum();
        let rest = ("other", elapsed.saturating_sub(in_parts));
        let part = |(name, time)| {
            let milliseconds = a_step(time);
            Part { name, milliseconds, share: milliseconds / total }
        };
        Measured {
            searcher,
            steps,
            steps_per_second: 1e3 / total,
            total,
            parts: parts.into_iter().chain([rest]).map(part).collect(),
            candidates: None,
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Parts {
    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let span = context.span(id);
        // Burn has spans of its own.
        if let Some(span) = span.filter(|span| span.metadata().target().starts_with("fast_slate")) {
            span.extensions_mut().replace(Instant::now());
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let Some(time) = span.extensions().get::<Instant>().map(Instant::elapsed) else { return };
        let mut parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match parts.iter_mut().find(|(name, _)| *name == span.name()) {
            Some((_, sum)) => *sum += time,
            None => parts.push((span.name(), time)),
        }
    }
}

impl Measured {
    fn text(&self) -> String {
        let (steps, rate) = (self.steps, self.steps_per_second);
        let mut text = format!("{steps} steps, {rate:.1} a second; {}\n", self.searcher.text());
        for part in &self.parts {
            text += &format!(
                "{:<10}  {:>9.3} ms  {:>5.1} %\n",
                part.name,
                part.milliseconds,
                100.0 * part.share
            );
        }
        text += &format!("{:<10}  {:>9.3} ms", "a step", self.total);
        if let Some(SharedCandidates { recall, least, top, used }) = self.candidates {
            text +=
                &format!("\nshared candidates hold {:.1} % of the true top {top}", 100.0 * recall);
            text += &if used {
                ": training uses them, and so did these steps".to_owned()
            } else {
                let least = 100.0 * least;
                format!(
                    ", less than {least:.1} %: training searches for every sample, and so did these \
                     steps"
                )
            };
        }
        text
    }
}
