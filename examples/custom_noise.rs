//! A noise of one's own: the hyperbolic secant, `q(ε) = ½ sech(πε/2)`, between the logistic and the
//! Gaussian. Density, score and quantile are all that a latent perturbation needs.
//!
//! `cargo run --release --example custom_noise`

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::f64::consts::{FRAC_2_PI, FRAC_PI_2, LN_2};
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use fast_slate::dataset::{Split, SyntheticSettings};
use fast_slate::device;
use fast_slate::evaluation::Evaluation;
use fast_slate::policy::Noise;
use fast_slate::prepared::{Input, PrepareSettings, Prepared};
use fast_slate::retrieval::Search;
use fast_slate::run::{RunFolder, RunOrigin};
use fast_slate::settings::Preset;
use fast_slate::task::Task;
use fast_slate::training::Trainer;

#[derive(Debug)]
struct HyperbolicSecant;

impl Noise for HyperbolicSecant {
    fn log_density(&self, value: f64) -> f64 {
        -LN_2 - (FRAC_PI_2 * value).cosh().ln()
    }

    fn score(&self, value: f64) -> f64 {
        -FRAC_PI_2 * (FRAC_PI_2 * value).tanh()
    }

    fn quantile(&self, probability: f64) -> f64 {
        FRAC_2_PI * (FRAC_PI_2 * probability).tan().ln()
    }
}

fn main() -> Result<()> {
    let out = Path::new("artifacts/custom_noise");
    let input = Input::Synthetic(SyntheticSettings::default());
    let prepared = Prepared::create(&input, &PrepareSettings::default(), &out.join("data"), true)?;
    let mut settings = prepared.preset(Preset::Default);
    settings.budget.amount = 1000;

    let task = Task::load(&prepared, &settings)?.with_noise(Arc::new(HyperbolicSecant));
    let chosen = device::choose(None)?;
    let run = RunFolder::new(out.join("run"));
    if run.exists() {
        fs_err::remove_dir_all(run.path())?;
    }
    // A run that goes on needs the same noise.
    let name = Some("hyperbolic-secant".to_owned());
    let origin = RunOrigin { noise: name, ..RunOrigin::new(&prepared, chosen.name) };
    run.begin(&settings, &origin)?;
    let trainer = Trainer::new(&task, &settings, &run, &chosen.device);
    let model = trainer.train(&mut ())?.model;
    let initial = task.initial_model(&settings, &chosen.device)?;

    let held_out = task.sessions.contexts(Split::Test);
    let evaluate = |model| Evaluation::of(&task, model, &held_out, Search::Exact);
    let gain = evaluate(&model)?.gain_over(&evaluate(&initial)?);
    println!("gain on test users {:+.4} [{:+.4}, {:+.4}]", gain.mean, gain.low, gain.high);
    Ok(())
}
