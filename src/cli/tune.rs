//! `slate tune`.

use clap::{Args, ValueHint};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use serde::Serialize;

use super::prologue::{SettingsArgs, open};
use super::report::Report;
use super::train::stop_on_interrupt;
use crate::prepared::Prepared;
use crate::run::RunOrigin;
use crate::settings::{BudgetSettings, BudgetUnit, PolicyKind, Settings};
use crate::tuning::{Dimension, Plan, Space, Tried, Tuned, Tuner, Watcher};

#[derive(Debug, Args)]
pub(crate) struct TuneArgs {
    /// The prepared folder [default with --resume: the search's own].
    #[arg(long, value_hint = ValueHint::DirPath, required_unless_present = "resume")]
    data: Option<PathBuf>,
    /// The search's folder; every trial is a run below it.
    #[arg(long, value_hint = ValueHint::DirPath)]
    out: PathBuf,
    /// Go on where the search was stopped.
    #[arg(long, conflicts_with_all = ["preset", "config", "set", "over", "trials", "within", "budget"])]
    resume: bool,
    /// Seconds of training, all trials together; evaluations do not count. A budget in steps,
    /// epochs or seconds is that of each trial of the first rung instead.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, conflicts_with = "budget")]
    within: u64,
    /// Trials of the first rung; a third of each rung trains on, three times as long.
    #[arg(long, default_value_t = 27, value_parser = clap::value_parser!(u64).range(1..))]
    trials: u64,
    /// What to search: KEY=A|B|C or KEY=LOW..HIGH, as in `optimizer.learning_rate=1e-4..1e-2`; may
    /// be given again [default: learning rate, samples, σ, the power of β's singular values, tower].
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
    let begun = args.resume.then(|| Plan::read(&args.out)).transpose()?;
    let data = match (&begun, &args.data) {
        (_, Some(data)) => data,
        (Some(plan), None) => &plan.origin.data,
        (None, None) => bail!("--data is missing"),
    };
    let prepared = open(data)?;
    let recorded = begun.as_ref().map(|plan| plan.origin.device.as_str());
    let chosen = args.settings.device.choose(recorded)?;
    let plan = match begun {
        Some(plan) => {
            let origin = RunOrigin::new(&prepared, chosen.name);
            if (&origin.data_digest, &origin.device)
                != (&plan.origin.data_digest, &plan.origin.device)
            {
                bail!("{}: was begun on other data or another device", args.out.display());
            }
            plan
        }
        None => begin(args, &prepared, chosen.name)?,
    };
    let (stop, device) = (stop_on_interrupt()?, &chosen.device);
    let search = Tuner { plan: &plan, prepared: &prepared, folder: &args.out, device, stop };
    let tuned = search.run(&mut Lines)?;
    let text = text(&plan, &tuned, &args.out);
    let interrupted = tuned.interrupted;
    let mut report = Report::new(&TuneReport { plan, tuned }, text)?;
    report.interrupted = interrupted;
    Ok(report)
}

/// Plans a search and writes the plan down.
fn begin(args: &TuneArgs, prepared: &Prepared, device: &str) -> Result<Plan> {
    let preset = prepared.preset(args.settings.preset.unwrap_or_default());
    let mut settings = args.settings.resolve(&preset)?;
    let given = &args.settings;
    if given.steps.is_none() && given.epochs.is_none() && given.seconds.is_none() {
        // Whole seconds, at least one a trial.
        let amount = (args.within / Plan::total(args.trials).max(1)).max(1);
        settings.budget = BudgetSettings { unit: BudgetUnit::Seconds, amount };
    }
    let over = if args.over.is_empty() { usual(prepared, &settings)? } else { args.over.clone() };
    let plan = Plan {
        trials: args.trials,
        space: Space::new(over, &settings)?,
        settings,
        origin: RunOrigin::new(prepared, device),
    };
    plan.begin(&args.out, prepared)?;
    Ok(plan)
}

/// What is searched unless told: what depends most on the data.
fn usual(prepared: &Prepared, settings: &Settings) -> Result<Vec<Dimension>> {
    let mut over = vec!["optimizer.learning_rate=1e-4..1e-2", "method.samples=10|30|100"];
    if settings.policy.kind != PolicyKind::PlackettLuce {
        over.push("method.sigma=relative(0.1..1)");
    }
    if prepared.embeddings.has_singular_values() {
        over.push("embedding.power=0|0.5|1");
    }
    if !settings.embedding.learn {
        over.push("tower.kind=linear|residual-mlp");
    }
    Ok(over.into_iter().map(str::parse).collect::<Result<_, _>>()?)
}

/// A line a trial, on stderr.
struct Lines;

impl Watcher for Lines {
    fn tried(&mut self, tried: &Tried, done: u64, of: u64) {
        // Nobody may be reading; the search goes on.
        drop(writeln!(
            std::io::stderr(),
            "{done:>3} of {of}  rung {}  trial {:>3}  reward {:.4}  {}",
            tried.rung,
            tried.trial,
            tried.best.reward,
            described(tried)
        ));
    }
}

fn described(tried: &Tried) -> String {
    if tried.settings.is_empty() { "as given".to_owned() } else { tried.settings.join("  ") }
}

fn text(plan: &Plan, tuned: &Tuned, out: &Path) -> String {
    let mut text = String::from("rung  trial  validation reward  settings\n");
    for tried in &tuned.trials {
        text += &format!(
            "{:>4}  {:>5}  {:>17.4}  {}\n",
            tried.rung,
            tried.trial,
            tried.best.reward,
            described(tried)
        );
    }
    if tuned.interrupted {
        return text
            + &format!("interrupted; go on with\n  slate tune --resume --out {}", out.display());
    }
    if let Some(best) = tuned.trials.first() {
        text += &format!(
            "the best is trained: {0}\ntrain with its settings with\n  slate train --data {1} --out RUN \
             --config {0}/run.toml",
            best.run.display(),
            plan.origin.data.display(),
        );
    }
    text
}

/// A dimension as it was typed.
fn dimension(text: &str) -> Result<Dimension, String> {
    text.parse().map_err(|error: crate::Error| error.to_string())
}
