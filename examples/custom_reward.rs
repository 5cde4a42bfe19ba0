//! A reward of one's own: what counts is the *rarest* hit on the slate, so a slate of nothing but
//! blockbusters earns little. It is a maximum, not a sum: no method for linear rewards applies.
//!
//! `cargo run --release --example custom_reward`

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use fast_slate::dataset::{Sessions, Split, SyntheticSettings};
use fast_slate::device;
use fast_slate::evaluation::Evaluation;
use fast_slate::prepared::{Input, PrepareSettings, Prepared};
use fast_slate::retrieval::Search;
use fast_slate::reward::SlateReward;
use fast_slate::run::{RunFolder, RunOrigin};
use fast_slate::settings::Preset;
use fast_slate::task::Task;
use fast_slate::training::Trainer;

#[derive(Debug)]
struct RarestHit {
    sessions: Arc<Sessions>,
}

impl SlateReward for RarestHit {
    fn reward(&self, context: u32, slate: &[u32]) -> f32 {
        let hits = slate.iter().filter(|&&a| self.sessions.hidden.contains(context, a));
        // Actions are numbered by falling popularity: a high number is a rare item.
        hits.map(|&action| (2.0 + action as f32).log2()).fold(0.0, f32::max)
    }
}

fn main() -> Result<()> {
    let out = Path::new("artifacts/custom_reward");
    let input = Input::Synthetic(SyntheticSettings::default());
    let prepared = Prepared::create(&input, &PrepareSettings::default(), &out.join("data"), true)?;
    let mut settings = prepared.preset(Preset::Default);
    settings.budget.amount = 1000;

    let reward = RarestHit { sessions: Arc::clone(&prepared.sessions) };
    let task = Task::load(&prepared, &settings)?.with_reward(Arc::new(reward));
    let chosen = device::choose(None)?;
    let run = RunFolder::new(out.join("run"));
    if run.exists() {
        fs_err::remove_dir_all(run.path())?;
    }
    // No other reward is to judge this run, or to go on with it.
    let name = Some("rarest-hit".to_owned());
    let origin = RunOrigin { reward: name, ..RunOrigin::new(&prepared, chosen.name) };
    run.begin(&settings, &origin)?;
    let trainer = Trainer::new(&task, &settings, &run, &chosen.device);
    let model = trainer.train(&mut ())?.model;
    let initial = task.initial_model(&settings, &chosen.device)?;

    let held_out = task.sessions.contexts(Split::Test);
    let evaluate = |model| Evaluation::of(&task, model, &held_out, Search::Exact);
    let start = evaluate(&initial)?;
    let end = evaluate(&model)?;
    let gain = end.gain_over(&start);
    println!("rarest hit of test users: {:.3} before, {:.3} after", start.mean(), end.mean());
    println!("gain {:+.3}, 95 % interval [{:+.3}, {:+.3}]", gain.mean, gain.low, gain.high);
    Ok(())
}
