//! fast-slate.

pub mod dataset;
pub mod embedding;
pub mod error;
pub mod files;
pub mod matrix;
pub mod retrieval;
pub mod seed;

pub use error::{Error, Result};
