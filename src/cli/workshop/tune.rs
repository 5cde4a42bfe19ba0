//! `slate tune`: searches for a run's settings.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, bail};
use clap::{Args, ValueHint};
use serde::Serialize;

use super::folders::typed;
use super::prologue::{SettingsArgs, open};
use super::train::stop_on_interrupt;
use crate::cli::report::Report;
use crate::device::Chosen;
use crate::experiment::tune::{Dimension, Plan, Space, Tried, Tuned, Tuner, Watcher};
use crate::method::Learned;
use crate::prepared::Prepared;
use crate::run::RunOrigin;
use crate::settings::Settings;
use crate::task::Task;

#[derive(Debug, Args)]
pub(crate) struct TuneArgs {
    /// The prepared folder [default with --resume: the folder that the search was started on].
    #[arg(long, value_hint = ValueHint::DirPath, required_unless_present = "resume")]
    data: Option<PathBuf>,
    /// The folder to write the search to; every trial is a run below it.
    #[arg(long, value_hint = ValueHint::DirPath)]
    out: PathBuf,
    /// Continue the search in --out.
    #[arg(long, conflicts_with_all = ["preset", "config", "set", "over", "trials", "within", "budget",
          "method", "samples", "slate_size", "seed"])]
    resume: bool,
    /// The seconds that the whole search may take: loading, training and evaluations all count. With --steps,
    /// --epochs or --seconds, which are of each trial of the first rung, the search has no limit [default: 600].
    #[arg(long, value_name = "SECONDS", conflicts_with = "budget")]
    within: Option<u64>,
    /// The most trials of the first rung. A third of each rung trains again, from the start, for longer; the settings
    /// as given train in every rung.
    #[arg(long, default_value_t = 27, value_parser = clap::value_parser!(u64).range(1..))]
    trials: u64,
    /// A key to search: KEY=A|B|C or KEY=LOW..HIGH, such as optimizer.weight_decay=0.1..10; may
    /// be given several times [default: learning rate, samples, σ, the power of β's singular values, tower].
    #[arg(long, value_name = "KEY=VALUES", value_parser = dimension)]
    over: Vec<Dimension>,
    #[command(flatten)]
    settings: SettingsArgs,
}

#[derive(Debug, Serialize)]
struct TuneReport {
    plan: Plan,
    #[serde(flatten)]
    tuned: Tuned,
}

pub(super) fn run(args: &TuneArgs) -> Result<Report> {
    let started = Instant::now();
    let begun = args.resume.then(|| Plan::read(&args.out)).transpose()?;
    let data = match (&begun, &args.data) {
        (_, Some(data)) => data,
        (Some(plan), None) => &plan.origin.data,
        (None, None) => bail!("--data is missing"),
    };
    let prepared = open(data)?;
    let recorded = begun.as_ref().map(|plan| plan.origin.device.as_str());
    let chosen = args.settings.device.choose(recorded)?;
    let origin = RunOrigin::new(&prepared, chosen.name);
    let plan = match begun {
        Some(plan) => {
            let same = |origin: &RunOrigin| (origin.data_digest.clone(), origin.device.clone());
            if same(&origin) != same(&plan.origin) {
                bail!("{}: was begun on other data or another device", args.out.display());
            }
            plan
        }
        None => begin(args, &prepared, &chosen, origin)?,
    };
    let (stop, device) = (stop_on_interrupt()?, &chosen);
    let folder = &args.out;
    let search = Tuner { plan: &plan, prepared: &prepared, folder, device, started, stop };
    let tuned = search.run(&mut Lines)?;
    let text = text(&plan, &tuned, &args.out);
    let interrupted = tuned.interrupted;
    Ok(Report::new(&TuneReport { plan, tuned }, text)?.interrupted_if(interrupted))
}

/// Plans a search and writes the plan down.
fn begin(args: &TuneArgs, prepared: &Prepared, chosen: &Chosen, origin: RunOrigin) -> Result<Plan> {
    let given = &args.settings;
    let preset = prepared.preset(given.preset.unwrap_or_default());
    let settings = given.resolve(&preset)?;
    let has_flag = given.steps.is_some() || given.epochs.is_some() || given.seconds.is_some();
    let has_budget = has_flag || settings.budget != preset.budget;
    if has_budget && args.within.is_some() {
        bail!(
            "--within is the time of the whole search, and `budget` that of a trial: give one of them"
        );
    }
    let over = if args.over.is_empty() { usual(prepared, &settings)? } else { args.over.clone() };
    let plan = Plan {
        trials: args.trials,
        within: (!has_budget).then_some(args.within.unwrap_or(600)),
        space: Space::new(over, &settings)?,
        settings,
        origin,
    };
    Task::load(prepared, &plan.settings)?.check(&plan.settings, &chosen.device)?;
    plan.begin(&args.out, prepared)?;
    Ok(plan)
}

/// The keys to search unless `--over` names others: those that depend most on the data.
fn usual(prepared: &Prepared, settings: &Settings) -> Result<Vec<Dimension>> {
    let rate = settings.optimizer.learning_rate;
    let rates = format!("optimizer.learning_rate={:.1e}..{:.1e}", rate / 10.0, rate * 10.0);
    let mut over = vec![rates.as_str(), "method.samples=10|30|100"];
    if settings.method.latent().is_some() {
        over.push("method.sigma=relative(0.1..1)");
    }
    if prepared.embeddings.has_singular_values() && settings.embedding.ridge <= 0.0 {
        over.push("embedding.power=0|0.5|1");
    }
    if settings.method.recipe().learned() != Learned::Actions {
        over.push("tower.kind=linear|residual-mlp");
    }
    Ok(over.into_iter().map(str::parse).collect::<Result<_, _>>()?)
}

/// Prints a line per training on stderr.
struct Lines;

impl Watcher for Lines {
    fn tried(&mut self, tried: &Tried, done: usize) {
        // The search goes on even if nobody reads.
        drop(writeln!(std::io::stderr(), "{done:>3}  {}", line(tried)));
    }
}

fn line(tried: &Tried) -> String {
    let Tried { rung, trial, best, seconds, settings, .. } = tried;
    let settings = if settings.is_empty() { "as given".to_owned() } else { settings.join("  ") };
    format!("{rung:>4}  {trial:>5}  {:>17.4}  {seconds:>7.1}  {settings}", best.reward)
}

fn text(plan: &Plan, tuned: &Tuned, out: &Path) -> String {
    let mut text = String::from("rung  trial  validation reward  seconds  settings\n");
    tuned.trials.iter().for_each(|tried| text += &(line(tried) + "\n"));
    text += &format!("{} trainings in {:.1} s\n", tuned.trials.len(), tuned.seconds);
    if tuned.interrupted {
        return text
            + &format!("interrupted; go on with\n  slate tune --resume --out {}", typed(out));
    }
    if let Some(best) = tuned.trials.first() {
        text += &format!(
            "the best is trained: {2}\nits settings were chosen on the validation users; judge it on test users \
             with\n  slate evaluate {0}\ntrain with its settings with\n  slate train --data {1} --out RUN \
             --config {0}/run.toml",
            typed(&best.run),
            typed(&plan.origin.data),
            best.run.display(),
        );
    }
    text
}

/// Reads a dimension as it was typed.
fn dimension(text: &str) -> Result<Dimension, String> {
    text.parse().map_err(|error: crate::error::Error| error.to_string())
}
