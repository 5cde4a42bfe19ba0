//! `slate bench`: where the time goes, and how near the machine's limit that is.

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
    /// The parts of a training step.
    #[cfg(feature = "train")]
    Step(step::BenchStepArgs),
    /// Exact search on random embeddings, beside the machine's own product rate.
    Search(search::BenchSearchArgs),
    /// The least retrieval.hnsw.ef_search that has a recall.
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
