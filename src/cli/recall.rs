//! `slate bench recall`: how wide the graph must be searched. `slate prepare --recall` says it too.

#[cfg(feature = "train")]
use anyhow::Result;

#[cfg(feature = "train")]
use super::args::BenchRecallArgs;
#[cfg(feature = "train")]
use super::train::resolve;
#[cfg(feature = "train")]
use super::{Report, watched};
#[cfg(feature = "train")]
use crate::device;
#[cfg(feature = "train")]
use crate::prepared::Prepared;
#[cfg(feature = "train")]
use crate::task::Task;
use crate::task::Tuning;

#[cfg(feature = "train")]
pub(super) fn run(args: &BenchRecallArgs) -> Result<Report> {
    let chosen = device::choose(args.settings.device.device.as_deref())?;
    let prepared = watched(Prepared::open(&args.data)?);
    let preset = prepared.preset(args.settings.preset.unwrap_or_default());
    let settings = resolve(&preset, &args.settings)?;
    let task = Task::load(&prepared, &settings)?;
    let model = task.initial_model(&settings, &chosen.device)?;
    let tuning = problem.tune_ef_search(&prepared, &settings, &model, args.recall)?;
    let mut text = table(&tuning);
    if let Some(set) = set(&tuning) {
        text += &format!("train with\n  {set}");
    }
    Report::new(&tuning, text)
}

/// A line for each width tried, and one for what came of it.
pub(super) fn table(tuning: &Tuning) -> String {
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
pub(super) fn set(tuning: &Tuning) -> Option<String> {
    tuning.ef_search.map(|ef_search| format!("--set retrieval.hnsw.ef_search={ef_search}"))
}
