//! The library in a few lines: a log, a trained policy, a slate.
//!
//! `cargo run --release --example quickstart`

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::path::Path;

use fast_slate::dataset::SyntheticSettings;
use fast_slate::facade::{Input, PrepareSettings, Prepared, Preset};

fn main() -> fast_slate::Result<()> {
    let out = Path::new("artifacts/quickstart");

    // Synthetic users with known tastes. `Input::log` reads a log of your own.
    let input = Input::Synthetic(SyntheticSettings::default());
    let data = Prepared::create(&input, &PrepareSettings::default(), &out.join("data"), true)?;

    let mut settings = data.preset(Preset::Default);
    settings.budget.amount = 1000;
    let policy = data.train(&settings, &out.join("run"))?;

    for item in policy.recommend("42")?.slate {
        println!("{}", item.title.unwrap_or(item.item_id));
    }
    Ok(())
}
