//! `slate bench recall`: a prepared folder in, the least width of the graph search with a given recall
//! out. `slate prepare --recall` records it.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueHint};

use crate::cli::report::Report;
use crate::cli::workshop::prologue::{Opened, SettingsArgs, share};
use crate::task::{Audits, EfSearch, Task};

#[derive(Debug, Args)]
pub(crate) struct BenchRecallArgs {
    /// The prepared folder.
    #[arg(value_hint = ValueHint::DirPath)]
    data: PathBuf,
    /// The share of the exact top K that the search must find.
    #[arg(long, value_parser = share, default_value_t = 0.98)]
    recall: f64,
    #[command(flatten)]
    settings: SettingsArgs,
}

pub(super) fn run(args: &BenchRecallArgs) -> Result<Report> {
    args.settings.require_no_budget()?;
    let Opened { prepared, device, settings } = args.settings.open(&args.data)?;
    let task = Task::to_decide(&prepared, &settings)?.on(&device)?;
    let model = task.initial_model(&settings, &device.device)?;
    let audits = Audits { task: &task, method: &settings.method, seed: settings.seed };
    let options = settings.retrieval.hnsw;
    let found = audits.least_ef_search(&prepared, options, &model, args.recall)?;
    let mut text = table(&found);
    if let Some(set) = set(&found) {
        text += &format!("train with\n  {set}");
    }
    Report::new(&found, text)
}

/// Writes a line for each width that was tried, and one for the result.
pub(crate) fn table(found: &EfSearch) -> String {
    let mut text = String::from("ef_search  recall\n");
    for tried in &found.tried {
        text += &format!("{:>9}  {:.4}\n", tried.ef_search, tried.recall);
    }
    let target = found.target;
    text + &match found.ef_search {
        Some(ef_search) => format!("ef_search {ef_search} is the least with recall {target}\n"),
        None => format!(
            "no ef_search has recall {target}, the best is {:.4}: raise \
             retrieval.hnsw.connectivity or ef_construction\n",
            found.best_recall()
        ),
    }
}

/// The flag that makes a run use the width, if one was found.
fn set(found: &EfSearch) -> Option<String> {
    found.ef_search.map(|ef_search| format!("--set retrieval.hnsw.ef_search={ef_search}"))
}
