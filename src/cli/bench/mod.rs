//! `slate bench`: where the time goes, and how near the machine's limit that is.

mod search;
#[cfg(feature = "train")]
mod step;

use anyhow::Result;

use super::Report;
use super::args::BenchVerb;
#[cfg(feature = "train")]
use super::recall;

pub(super) fn run(verb: &BenchVerb) -> Result<Report> {
    match verb {
        #[cfg(feature = "train")]
        BenchVerb::Step(args) => step::run(args),
        #[cfg(feature = "train")]
        BenchVerb::Recall(args) => recall::run(args),
        BenchVerb::Search(args) => search::run(args),
    }
}
