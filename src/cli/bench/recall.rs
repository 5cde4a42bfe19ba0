//! `slate bench recall`: how wide the graph must be searched. `slate prepare --recall` says it too.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueHint};

use crate::cli::prologue::{Opened, SettingsArgs, share};
use crate::cli::report::Report;
use crate::problem::Problem;
use crate::problem::Tuning;

#[derive(Debug, Args)]
pub(crate) struct BenchRecallArgs {
    /// The prepared folder.
    #[arg(value_hint = ValueHint::DirPath)]
    data: PathBuf,
    /// The share of the exact top K that training is to find.
    #[arg(long, value_parser = share, default_value_t = 0.98)]
    recall: f64,
    #[command(flatten)]
    settings: SettingsArgs,
}

pub(super) fn run(args: &BenchRecallArgs) -> Result<Report> {
    let Opened { prepared, device, settings } = args.settings.open(&args.data)?;
    let problem = Problem::load(&prepared, &settings)?;
    let model = problem.initial_model(&settings, &device.device)?;
    let tuning = problem.tune_ef_search(&prepared, &settings, &model, args.recall)?;
    let mut text = table(&tuning);
    if let Some(set) = set(&tuning) {
        text += &format!("train with\n  {set}");
    }
    Report::new(&tuning, text)
}

/// A line for each width tried, and one for what came of it.
pub(crate) fn table(tuning: &Tuning) -> String {
    let mut text = String::from("ef_search  recall\n");
    for tried in &tuning.tried {
        text += &format!("{:>9}  {:.4}\n", tried.ef_search, tried.recall);
    }
    let target = tuning.target;
    text + &match tuning.ef_search {
        Some(ef_search) => format!("ef_search {ef_search} is the least with recall {target}\n"),
        None => format!(
            "no ef_search has recall {target}, the best is {:.4}: raise \
             retrieval.hnsw.connectivity or ef_construction\n",
            tuning.best_recall()
        ),
    }
}

/// What makes a run use what was found, if anything was.
pub(crate) fn set(tuning: &Tuning) -> Option<String> {
    tuning.ef_search.map(|ef_search| format!("--set retrieval.hnsw.ef_search={ef_search}"))
}
