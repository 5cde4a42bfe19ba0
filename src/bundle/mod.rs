//! A trained policy in, a folder that answers for it out, and slates from that folder: all that serving
//! needs, and no training data. [`Bundle`] is the content, [`Recommender`] answers requests with it,
//! and [`Batch`] answers a file of them.
//!
//! | file | content |
//! |---|---|
//! | `bundle.toml` | format version, what trained it, shapes, form of the tower, settings of the encoders and the index, BLAKE3 of every file and of itself |
//! | `vectors.safetensors` | `beta` `[P, L]`, which is searched; where they are others: `inputs` `[P, L]`, of which contexts are made, and `fold_in` `[P, L]`; perhaps `weights` `[P, 1]` of the weighted mean |
//! | `model.safetensors` | `layer.0` `[D, H]`, `layer.1` …, and perhaps `correction.0` `[D, L]` …; missing where β was learned: then h is the context |
//! | `tower.onnx` | perhaps the same tower as an ONNX model, for other programs: nothing here reads it |
//! | `items.parquet` | `item_id: i64 \| str`, perhaps `title: str`, `group: str`; row i is action i |
//! | `index.usearch` | perhaps a graph over β; of actions with equal vectors it holds the lowest |
//! | `users.parquet` | perhaps `user_id: i64 \| str`; row i is user i |
//! | `histories.parquet` | beside it `user: u32`, `action: u32`, perhaps `time: i64`, by user, action |
//! | `features.safetensors` | perhaps `features` `[U, F]` of these users |
//!
//! A number in f16 stands for itself divided by the tensor's scale in `bundle.toml`.
//!
//! A catalogue that one process does not hold is written in shards ([`Bundle::write_sharded`]).
//!
//! [`Bundle::open`] reads each file once, while its digest is computed; files are read side by side. A
//! bundle that changes on disk does not change what was opened. [`Bundle::map`] leaves vectors and graph
//! on disk, for folders that nobody changes.

mod asking;
mod batch;
mod filter;
mod groups;
mod join;
mod manifest;
mod onnx;
mod recommender;
mod request;
mod shard;
mod store;
mod table;
mod users;

use std::sync::Arc;

pub use batch::{Batch, Part, Summary};
pub use filter::Filter;
pub use join::join;
pub use manifest::{FileRecord, MANIFEST, Manifest, Scales, Shapes, Trained, VectorScalar};
pub use recommender::Recommender;
pub use request::{Answer, Options, Query, Recommendation, Request, Who};
pub use shard::{PartOf, shard_folders};
pub use store::Unchecked;
pub use table::Answers;
pub use users::Users;

use crate::dataset::Items;
use crate::embedding::{ActionEmbeddings, Vectors};
use crate::encoder::Encoding;
use crate::model::Model;
use crate::policy::Sigma;
use crate::retrieval::{Hnsw, HnswOptions};

/// A graph over β and its options.
pub type ServedIndex = (HnswOptions, Arc<Hnsw>);

/// A trained policy and what it needs to answer, in memory.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// What trained it, and what it was trained for.
    pub trained: Trained,
    /// The rule for σ of the policy `h + σε`, ε Gaussian, which is what exploring requests are
    /// answered by; none for a policy that draws otherwise.
    pub sigma: Option<Sigma>,
    /// h_θ; without a tower h is the context.
    pub model: Model,
    /// β `[P, L]`, which is searched.
    pub actions: Arc<ActionEmbeddings>,
    /// The vectors of which contexts are made.
    pub vectors: Vectors,
    /// What context encoders were fitted to.
    pub encoding: Encoding,
    /// Ids, titles and groups.
    pub items: Items,
    /// Users who are known by id, if they are part of it.
    pub users: Option<Users>,
    /// A graph over β, if it is part of it.
    pub index: Option<ServedIndex>,
    /// True if a copy of the tower as an ONNX model is part of it.
    pub onnx: bool,
    /// The catalogue that it is a part of, if it is a shard.
    pub part: Option<PartOf>,
}
