//! The library in one page: sessions → embeddings → training → slates.
//!
//! `cargo run --release --example quickstart`

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::path::Path;

use anyhow::Result;
use fast_slate::dataset::SyntheticSettings;
use fast_slate::device;
use fast_slate::prepared::{Input, PrepareSettings, Prepared};
use fast_slate::task::Task;
use fast_slate::recommend::{Recommender, TrainedPolicy};
use fast_slate::run::{RunFolder, RunOrigin, Which};
use fast_slate::settings::Preset;
use fast_slate::training::{Console, Trainer};

fn main() -> Result<()> {
    let out = Path::new("artifacts/quickstart");

    // Made-up sessions with known taste; `Input::File` reads a CSV, a Parquet file or MovieLens.
    let input = Input::Synthetic(SyntheticSettings::default());
    let prepared = Prepared::create(&input, &PrepareSettings::default(), &out.join("data"), true)?;
    println!("{}", prepared.manifest.statistics);

    // What the policy is trained on, and how.
    let mut settings = prepared.preset(Preset::Default);
    settings.budget.amount = 1000;
    let task = Task::load(&prepared, &settings)?;
    let chosen = device::choose(None)?;

    // A run keeps its settings, its record and its checkpoints in a folder.
    let run = RunFolder::new(out.join("run"));
    if run.exists() {
        fs_err::remove_dir_all(run.path())?;
    }
    run.begin(&settings, &RunOrigin::new(&prepared, chosen.name))?;
    let trainer = Trainer::new(&task, &settings, &run, &chosen.device);
    let outcome = trainer.train(&mut Console::new())?;
    println!("trained for {} steps on {}", outcome.step, chosen.name);

    // The best checkpoint, at work.
    let policy = TrainedPolicy::open(run.path(), Which::Best, None)?;
    let slate = Recommender::new(&policy)?.for_user("42")?;
    for (rank, item) in slate.iter().enumerate() {
        println!("{}  {}", rank + 1, item.title.as_deref().unwrap_or(&item.item_id));
    }
    Ok(())
}
