//! The same learner step under Burn's own `SupervisedTraining`: its data loader, metrics and
//! checkpoints instead of this crate's loop. What the loop does beside the step is left out: the learning
//! rate does not fall or grow, halves are not drawn anew, batches mix folds, and no checkpoint is chosen.
//!
//! `cargo run --release --example burn_trainer`

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use burn::data::dataloader::DataLoaderBuilder;
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::module::Module as _;
use burn::tensor::Device;
use burn::train::metric::LossMetric;
use burn::train::{Learner as BurnLearner, SupervisedTraining};
use fast_slate::dataset::{Split, SyntheticSettings};
use fast_slate::device;
use fast_slate::evaluation::Evaluation;
use fast_slate::prepared::{Input, PrepareSettings, Prepared};
use fast_slate::retrieval::Search;
use fast_slate::settings::Preset;
use fast_slate::task::Task;
use fast_slate::training::{Batch, Learner, adam};

/// Burn's loader does not say which step a batch is for; the noise needs to know, so this counts.
struct Contexts {
    task: Arc<Task>,
    step: AtomicU64,
}

impl Batcher<u32, Batch> for Contexts {
    fn batch(&self, contexts: Vec<u32>, _device: &Device) -> Batch {
        let step = self.step.fetch_add(1, Ordering::Relaxed);
        Batch { step, inputs: self.task.contexts.select(&contexts), contexts }
    }
}

fn main() -> Result<()> {
    let out = Path::new("artifacts/burn_trainer");
    let input = Input::Synthetic(SyntheticSettings::default());
    let prepared = Prepared::create(&input, &PrepareSettings::default(), &out.join("data"), true)?;
    let settings = prepared.preset(Preset::Default);
    let task = Arc::new(Task::load(&prepared, &settings)?);
    let device = device::choose(None)?.device;

    let loader = |split| {
        let batcher = Contexts { task: Arc::clone(&task), step: AtomicU64::new(0) };
        let contexts = InMemDataset::new(task.sessions.contexts(split));
        DataLoaderBuilder::new(batcher).batch_size(32).shuffle(0).build(contexts)
    };
    let initial = task.initial_model(&settings, &device)?;
    let (optimizer, estimator) =
        (&settings.optimizer, task.estimator(&settings.method, settings.seed)?);
    let learner = Learner::new(task.to_train(initial.clone()), estimator)
        .with_clipping(optimizer.gradient_clipping);
    let result = SupervisedTraining::new(out, loader(Split::Train), loader(Split::Validation))
        .metric_train_numeric(LossMetric::new())
        .metric_valid_numeric(LossMetric::new())
        .num_epochs(5)
        .launch(BurnLearner::new(learner, adam(optimizer), optimizer.learning_rate));

    let held_out = task.sessions.contexts(Split::Test);
    let evaluate = |model| Evaluation::of(&task, model, &held_out, Search::Exact);
    let gain = evaluate(&result.model.model().valid())?.gain_over(&evaluate(&initial)?);
    println!("gain on test users {:+.4} [{:+.4}, {:+.4}]", gain.mean, gain.low, gain.high);
    Ok(())
}
