//! `slate bench`: a prepared folder or sizes in, times out.

pub(super) mod recall;
mod search;
mod slates;
mod step;

use anyhow::Result;
use clap::Subcommand;

use crate::cli::report::Report;

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

pub(super) fn run(verb: &BenchVerb) -> Result<Report> {
    match verb {
        BenchVerb::Step(args) => step::run(args),
        BenchVerb::Recall(args) => recall::run(args),
        BenchVerb::Search(args) => search::run(args),
        BenchVerb::Slates(args) => slates::run(args),
    }
}
