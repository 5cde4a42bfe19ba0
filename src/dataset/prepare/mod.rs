//! Logs of interactions → [`Dataset`](super::Dataset): reads, filters and splits them. Training and
//! serving need none of this once a data set is on disk.
//!
//! A log is one file or many ([`source`]). Its bytes, unpacked on the way ([`bytes`]), come in
//! blocks of whole records ([`records`]). polars parses each block ([`text`]; [`parquet`] for
//! Parquet), and only the different pairs of a user's and an item's number are kept ([`ids`],
//! [`pairs`]). Tables in memory go the same way ([`frames`]), and what a prepared folder holds comes
//! back as its log was ([`whole`]). So memory grows with the number of different pairs and ids, not
//! with the length of the log. polars' own streaming engine would bound memory too, but its errors
//! name no row, a bad row ends it, and it does not read archives.

mod bytes;
mod features;
mod filter;
mod frames;
mod given;
mod ids;
mod interactions;
mod labels;
mod moment;
mod movielens;
mod pairs;
mod parquet;
mod read;
mod records;
mod rows;
mod source;
mod split;
mod synthetic;
mod table;
mod text;
mod whole;

pub(crate) use bytes::Packed;
pub use features::{FeatureSource, UserTable};
pub use filter::{Filters, RowFilter};
pub use frames::{Frames, distinct, read_frames};
pub use given::{Given, read_given};
pub(crate) use ids::Numbered;
pub use interactions::Interactions;
pub use labels::{ItemSource, ItemTable};
pub use moment::Moment;
pub(crate) use parquet::as_ids;
pub use read::{digest, read};
pub(crate) use rows::{BadRows, Batch, Wanted};
pub use source::Source;
pub use split::{SplitKind, SplitSettings, assemble};
pub(crate) use synthetic::{Model, Newcomer, Taste};
pub use synthetic::{
    PAPER_SHAPES, Shape, Synthesized, SyntheticLog, SyntheticSettings, synthesize, synthetic,
};
pub(crate) use text::read as read_text;
