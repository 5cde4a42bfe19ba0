//! A file of embeddings → β, in the order of the actions. The extension names the format:
//!
//! | | rows belong to |
//! |---|---|
//! | `.safetensors` (`beta` `[P, L]`, perhaps `inputs` `[P, L]`, `singular_values` `[L]`), `.npy` (`[P, L]`) | the rows of `actions.parquet`, or the ids of a text file, one a line |
//! | `.parquet`: a column of ids, and one of lists of floats or L of floats | the ids |
//!
//! Half and double precision are accepted and kept as f32. `inputs` are the vectors that contexts are
//! made of, where those are others than the ones that are retrieved. With singular values, `beta` is V of a
//! decomposition, and `embedding.power` and the other settings of its form hold; `energy` `[2]` beside them is the
//! sum of the squares of the decomposed matrix, and the smaller of its sides.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::dataset::{ITEM_ID, read_vectors};
use crate::embedding::tensors::finite;
use crate::embedding::{EmbeddingFile, StoredEmbeddings, npy};
use crate::error::{Error, Result};
use crate::files::read_text;
use crate::matrix::{Matrix, dot};

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
    let (rows, stored) = match extension {
        Some("parquet") => {
            let (rows, v) = read_vectors(path, id_column)?;
            (Some(rows), finite(path, v)?.into())
        }
        Some("safetensors") => (None, EmbeddingFile::open(path)?.load()?),
        Some("npy") => (None, npy::matrix(path)?.into()),
        _ => {
            let problem = "expected a `.safetensors`, a `.npy` or a `.parquet` file";
            return Err(Error::file(path, problem));
        }
    };
    let StoredEmbeddings { v, spectrum, inputs } = stored;
    let too_long = |row: &[f32]| !dot(row, row).is_finite();
    let mut all = std::iter::once(&v).chain(&inputs);
    if let Some(row) = all.find_map(|matrix| matrix.iter_rows().position(too_long)) {
        let problem = format!(
            "row {} is too long, its squared length is infinite; scale the vectors",
            row + 1
        );
        return Err(Error::file(path, problem));
    }
    let places = match (rows, ids) {
        (Some(_), Some(ids)) => {
            let problem = format!("{} has ids of its own (--embedding-ids)", path.display());
            return Err(Error::file(ids, problem));
        }
        (Some(rows), None) => Some(places(&rows, path, item_ids, *missing)?),
        (None, Some(ids)) => {
            let text = read_text(ids)?;
            let rows: Vec<&str> = text.lines().collect();
            if rows.len() != v.rows() {
                let problem = format!(
                    "holds {} ids, one a line, but {} holds {} rows",
                    rows.len(),
                    path.display(),
                    v.rows()
                );
                return Err(Error::file(ids, problem));
            }
            Some(places(&rows, ids, item_ids, *missing)?)
        }
        (None, None) if v.rows() == item_ids.len() => None,
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
    let in_order = |matrix: Matrix| match &places {
        None => matrix,
        Some(places) => arranged(&matrix, places),
    };
    let inputs = inputs.map(&in_order);
    Ok(StoredEmbeddings { v: in_order(v), spectrum, inputs })
}

/// The rows at `places`, with zeros where there is none.
fn arranged(matrix: &Matrix, places: &[Option<usize>]) -> Matrix {
    let mut arranged = Matrix::zeros(places.len(), matrix.cols());
    for (row, place) in places.iter().enumerate() {
        if let Some(place) = place {
            arranged.row_mut(row).copy_from_slice(matrix.row(*place));
        }
    }
    arranged
}

/// The row of each of `item_ids`, if it has one, where `rows` are the ids that `path` gives to rows. Blanks
/// around them count only where an item has them too.
fn places<T: AsRef<str>>(
    rows: &[T],
    path: &Path,
    item_ids: &[String],
    missing: Missing,
) -> Result<Vec<Option<usize>>> {
    let mut places = HashMap::with_capacity(rows.len());
    for (row, id) in rows.iter().enumerate() {
        if let Some(first) = places.insert(id.as_ref(), row) {
            let problem =
                format!("id `{}` is in row {} and in row {}", id.as_ref(), first + 1, row + 1);
            return Err(Error::file(path, problem));
        }
    }
    let has_blanks = |(_, id): &(usize, &T)| id.as_ref().trim() != id.as_ref();
    for (row, id) in rows.iter().enumerate().filter(has_blanks) {
        places.entry(id.as_ref().trim()).or_insert(row);
    }
    let found: Vec<Option<usize>> =
        item_ids.iter().map(|id| places.get(id.as_str()).copied()).collect();
    let without = item_ids.iter().zip(&found).filter(|(_, place)| place.is_none());
    let absent: Vec<&str> = without.map(|(id, _)| id.as_str()).collect();
    let count = item_ids.len() - absent.len();
    let first = |ids: &[&str]| {
        let more = if ids.len() > NAMED { ", …" } else { "" };
        ids.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ") + more
    };
    if count == 0 || (missing == Missing::Error && !absent.is_empty()) {
        let way = if count == 0 { "" } else { "; --missing-embeddings zero takes zeros for them" };
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
    if rows.len() > count {
        tracing::info!(
            "left out {} embeddings of items that are not in the log",
            rows.len() - count
        );
    }
    Ok(found)
}

/// The most ids that a message lists.
const NAMED: usize = 10;

#[cfg(test)]
mod tests;
