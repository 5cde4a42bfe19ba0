//! A file of embeddings → β, in the order of the actions. The extension names the format:
//!
//! | | rows belong to |
//! |---|---|
//! | `.safetensors` (`beta` `[P, L]`), `.npy` (`[P, L]`) | the rows of `actions.parquet`, or the ids of a text file, one a line |
//! | `.parquet`: a column of ids, and one of lists of floats or L of floats | the ids |
//!
//! Half and double precision are accepted and kept as f32.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::dataset::{ITEM_ID, read_vectors};
use crate::embedding::tensors::{TensorFile, finite};
use crate::embedding::{BETA, StoredEmbeddings, npy};
use crate::error::{Error, Result};
use crate::matrix::Matrix;

/// A file of embeddings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Import {
    /// The `.safetensors`, `.npy` or `.parquet` file.
    pub path: PathBuf,
    /// The column of ids of a Parquet file.
    pub id_column: String,
    /// A text file with the ids of the rows of a `.npy` or `.safetensors`, one a line; without it the
    /// rows are in the order of `actions.parquet`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ids: Option<PathBuf>,
    /// What to do about items whose ids are not in the file.
    pub missing: Missing,
}

/// What to do about items that a file of embeddings does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Missing {
    /// Fail.
    #[default]
    Error,
    /// Take zeros for their embeddings.
    Zero,
}

impl Import {
    /// The file at `path`, with defaults for the rest.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let (id_column, missing) = (ITEM_ID.to_owned(), Missing::default());
        Self { path: path.into(), id_column, ids: None, missing }
    }
}

/// Reads β of the items `item_ids`, in the order of their actions.
///
/// # Errors
/// [`Error::File`] for another format or element type, a damaged file, an id that occurs twice, or
/// items that are missing; [`Error::Shape`] for rows without ids unless they are `[P, L]`;
/// [`Error::NotFinite`] at the first NaN or infinity.
pub fn import(import: &Import, item_ids: &[String]) -> Result<StoredEmbeddings> {
    let Import { path, id_column, ids, missing } = import;
    let extension = path.extension().and_then(|extension| extension.to_str());
    let (rows, v) = match extension {
        Some("parquet") => {
            let (rows, v) = read_vectors(path, id_column)?;
            (Some(rows), finite(path, v)?)
        }
        Some("safetensors") => (None, TensorFile::open(path)?.matrix(BETA)?),
        Some("npy") => (None, npy::matrix(path)?),
        _ => {
            let problem = "expected a `.safetensors`, a `.npy` or a `.parquet` file";
            return Err(Error::file(path, problem));
        }
    };
    let v = match (rows, ids) {
        (Some(_), Some(ids)) => {
            let problem = format!("{} has ids of its own (--embedding-ids)", path.display());
            return Err(Error::file(ids, problem));
        }
        (Some(rows), None) => join(&v, &rows, path, item_ids, *missing)?,
        (None, Some(ids)) => {
            let text = fs_err::read_to_string(ids)?;
            let rows: Vec<&str> = text.lines().map(str::trim).collect();
            if rows.len() != v.rows() {
                let problem = format!(
                    "holds {} ids, one a line, but {} holds {} rows",
                    rows.len(),
                    path.display(),
                    v.rows()
                );
                return Err(Error::file(ids, problem));
            }
            join(&v, &rows, ids, item_ids, *missing)?
        }
        (None, None) if v.rows() == item_ids.len() => v,
        (None, None) => {
            return Err(Error::Shape {
                what: format!(
                    "{}: one row per action, as in actions.parquet (or name them with \
                     --embedding-ids)",
                    path.display()
                ),
                expected: format!("[{}, L]", item_ids.len()),
                found: format!("[{}, {}]", v.rows(), v.cols()),
            });
        }
    };
    Ok(v.into())
}

/// The rows of `v` in the order of `item_ids`, where `rows` are the ids that `path` gives to them.
fn join<T: AsRef<str>>(
    v: &Matrix,
    rows: &[T],
    path: &Path,
    item_ids: &[String],
    missing: Missing,
) -> Result<Matrix> {
    let mut places = HashMap::with_capacity(rows.len());
    for (row, id) in rows.iter().enumerate() {
        if let Some(first) = places.insert(id.as_ref(), row) {
            let problem =
                format!("id `{}` is in row {} and in row {}", id.as_ref(), first + 1, row + 1);
            return Err(Error::file(path, problem));
        }
    }
    let mut joined = Matrix::zeros(item_ids.len(), v.cols());
    let mut absent = Vec::new();
    for (action, id) in item_ids.iter().enumerate() {
        match places.get(id.as_str()) {
            Some(&row) => joined.row_mut(action).copy_from_slice(v.row(row)),
            None => absent.push(id.as_str()),
        }
    }
    let found = item_ids.len() - absent.len();
    let first = |ids: &[&str]| {
        let more = if ids.len() > NAMED { ", …" } else { "" };
        ids.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ") + more
    };
    if found == 0 || (missing == Missing::Error && !absent.is_empty()) {
        let way = if found == 0 { "" } else { "; --missing-embeddings zero takes zeros for them" };
        let problem = format!(
            "has no embeddings of {} of the {} items: {}{way}",
            absent.len(),
            item_ids.len(),
            first(&absent)
        );
        return Err(Error::file(path, problem));
    }
    if !absent.is_empty() {
        tracing::warn!("zeros for {} items without embeddings: {}", absent.len(), first(&absent));
    }
    if rows.len() > found {
        tracing::info!(
            "left out {} embeddings of items that are not in the log",
            rows.len() - found
        );
    }
    Ok(joined)
}

/// The most ids that a message lists.
const NAMED: usize = 10;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests;
