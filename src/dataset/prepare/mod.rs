//! What parses, filters and cuts logs of interactions; no run needs it once a data set is on disk.
//!
//! A log is one file or many ([`source`]). Its bytes, unpacked on the way ([`bytes`]), come in
//! blocks of whole rows ([`blocks`]), which polars parses ([`text`]; [`parquet`] for Parquet), and
//! of each batch of rows only pairs of numbers are kept ([`ids`], [`pairs`]): memory is bounded by
//! what a log says, not by how long it is. polars' own streaming engine does the first half of
//! that, but its errors name no row, a bad row ends it, and it knows neither archives nor which
//! rows an error came from.

mod blocks;
mod bytes;
mod features;
mod filter;
mod ids;
mod interactions;
mod movielens;
mod pairs;
mod parquet;
mod read;
mod rows;
mod source;
mod split;
mod synthetic;
mod text;

pub use features::{FeatureSource, UserTable};
pub use filter::{Filters, RowFilter};
pub use interactions::Interactions;
pub use read::{digest, read};
pub use source::Source;
pub use split::{SplitSettings, assemble};
pub use synthetic::{
    Estimate, PAPER_SHAPES, Rewards, Shape, Synthesized, SyntheticLog, SyntheticSettings,
    synthesize, synthetic,
};
