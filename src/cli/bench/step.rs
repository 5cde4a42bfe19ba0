//! `slate bench step`: where a training step's time goes. The parts are the library's own spans; on
//! a GPU what is queued counts where it is waited for.

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

use crate::cli::prologue::{Opened, SettingsArgs};
use crate::cli::report::Report;
use crate::dataset::Split;
use crate::task::Task;
use crate::training::{Batches, Learner, adam};

#[derive(Debug, Args)]
pub(crate) struct BenchStepArgs {
    /// The prepared folder.
    #[arg(value_hint = ValueHint::DirPath)]
    data: PathBuf,
    #[command(flatten)]
    settings: SettingsArgs,
}

/// Steps that are not counted, at most, and no more than are: the first ones find caches cold.
const WARM_UP: u64 = 20;

/// Steps that are, unless told.
const STEPS: u64 = 200;

/// What was measured.
#[derive(Debug, Serialize)]
struct Measured {
    steps: u64,
    steps_per_second: f64,
    /// Milliseconds a step.
    total: f64,
    parts: Vec<Part>,
}

#[derive(Debug, Serialize)]
struct Part {
    name: &'static str,
    /// Milliseconds a step.
    milliseconds: f64,
    share: f64,
}

pub(crate) fn run(args: &BenchStepArgs) -> Result<Report> {
    let Opened { prepared, device, settings } = args.settings.open(&args.data)?;
    let task = Task::load(&prepared, &settings)?;
    let contexts = task.sessions.contexts(Split::Train);
    anyhow::ensure!(!contexts.is_empty(), "{}: no training user", args.data.display());
    let mut batches = Batches::new(contexts, settings.optimizer.batch_size, settings.seed);
    let model = task.initial_model(&settings, &device.device)?;
    let mut learner = Learner::new(model, task.estimator(&settings.method, settings.seed)?)
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
    let measured = parts.measured(steps, elapsed);
    Report::new(&measured, measured.text()).context("reporting the benchmark")
}

/// Adds up the time in every span, by its name and in the order of first sight.
#[derive(Clone, Debug, Default)]
struct Parts(Arc<Mutex<Vec<(&'static str, Duration)>>>);

impl Parts {
    fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn measured(&self, steps: u64, elapsed: Duration) -> Measured {
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
            steps,
            steps_per_second: 1e3 / total,
            total,
            parts: parts.into_iter().chain([rest]).map(part).collect(),
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
        let mut text = format!("{} steps, {:.1} a second\n", self.steps, self.steps_per_second);
        for part in &self.parts {
            text += &format!(
                "{:<10}  {:>9.3} ms  {:>5.1} %\n",
                part.name,
                part.milliseconds,
                100.0 * part.share
            );
        }
        text + &format!("{:<10}  {:>9.3} ms", "a step", self.total)
    }
}
