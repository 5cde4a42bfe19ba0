//! `slate bench`: a prepared folder or sizes in, times out.

#[cfg(feature = "prepare")]
pub(super) mod recall;
mod search;
#[cfg(feature = "train")]
mod step;

use anyhow::Result;
use clap::Subcommand;

use super::report::Report;

#[derive(Debug, Subcommand)]
pub(crate) enum BenchVerb {
    /// Measure a training step and its parts.
    #[cfg(feature = "train")]
    Step(step::BenchStepArgs),
    /// Measure exact search on random embeddings, beside plain matrix products.
    Search(search::BenchSearchArgs),
    /// Find the least retrieval.hnsw.ef_search with a given recall.
    #[cfg(feature = "prepare")]
    Recall(recall::BenchRecallArgs),
}

pub(super) fn run(verb: &BenchVerb) -> Result<Report> {
    match verb {
        #[cfg(feature = "train")]
        BenchVerb::Step(args) => step::run(args),
        #[cfg(feature = "prepare")]
        BenchVerb::Recall(args) => recall::run(args),
        BenchVerb::Search(args) => search::run(args),
    }
}
