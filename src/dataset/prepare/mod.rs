//! What parses, filters and cuts logs of interactions; no run needs it once a data set is on disk.

mod archive;
mod filter;
mod interactions;
mod log;
mod movielens;
mod read;
mod scan;
mod source;
mod split;
mod synthetic;

pub use filter::Filters;
pub use interactions::Interactions;
pub use read::{digest, read};
pub use source::Source;
pub use split::{SplitSettings, assemble};
pub use synthetic::{SyntheticSettings, synthetic};
