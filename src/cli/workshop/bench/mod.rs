//! `slate bench`: a prepared folder or sizes in, times out.

pub(super) mod recall;
mod search;
mod slates;
mod step;

use anyhow::{Result, ensure};
use clap::{Args, Subcommand};
use serde::Serialize;

use crate::cli::report::Report;
use crate::device::{Chosen, Manner};
use crate::retrieval::{OnDevice, Trials};

#[derive(Debug, Subcommand)]
pub(crate) enum BenchVerb {
    /// Measure a training step and its parts.
    Step(step::BenchStepArgs),
    /// Measure exact search on random embeddings, beside plain matrix products.
    Search(search::BenchSearchArgs),
    /// Measure the slates of a bundle, one alone and many at once.
    Slates(slates::BenchSlatesArgs),
    /// Find the least retrieval.hnsw.ef_search with a given recall.
    Recall(recall::BenchRecallArgs),
}

#[derive(Debug, Default, Args)]
struct MannerArgs {
    /// How exact searches on a GPU multiply: sweep, in f32, or half, in f16, with the same answers [default: the
    /// faster one].
    #[arg(long, value_parser = manner)]
    manner: Option<Manner>,
}

/// Reads the value of `--manner`.
fn manner(text: &str) -> Result<Manner, String> {
    let found = Manner::ALL.into_iter().find(|(name, _)| *name == text);
    found.map(|(_, manner)| manner).ok_or_else(|| {
        let names = Manner::ALL.map(|(name, _)| name);
        format!("expected one of {}", names.join(", "))
    })
}

impl MannerArgs {
    /// The device with this manner.
    fn of(&self, chosen: Chosen) -> Result<Chosen> {
        let name = chosen.name;
        ensure!(
            self.manner.is_none() || chosen.memory.is_some(),
            "--manner: {name} is no GPU, and searches in one manner; leave it out"
        );
        Ok(Chosen { manner: self.manner, ..chosen })
    }
}

/// What makes exact searches.
#[derive(Clone, Debug, Serialize)]
struct Searcher {
    /// The name of the GPU as its driver gives it, or the CPU.
    hardware: String,
    /// None on a CPU.
    manner: Option<Manner>,
    /// The numbers of the embeddings there; the answers are those of f32.
    numbers: &'static str,
    /// What the manner was chosen by, unless it was given.
    trials: Option<Trials>,
}

impl Searcher {
    fn new(chosen: &Chosen, search: Option<&OnDevice>) -> Self {
        Self {
            hardware: chosen.hardware(),
            manner: search.map(OnDevice::manner),
            numbers: search.map_or("f32", |search| search.blocks().format().numbers()),
            trials: search.and_then(OnDevice::trials),
        }
    }

    fn text(&self) -> String {
        let manner = self.manner.map(|manner| format!(", by {manner:?}").to_lowercase());
        format!("{}{}, vectors in {}", self.hardware, manner.unwrap_or_default(), self.numbers)
    }
}

pub(super) fn run(verb: &BenchVerb) -> Result<Report> {
    match verb {
        BenchVerb::Step(args) => step::run(args),
        BenchVerb::Recall(args) => recall::run(args),
        BenchVerb::Search(args) => search::run(args),
        BenchVerb::Slates(args) => slates::run(args),
    }
}
