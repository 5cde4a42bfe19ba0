//! β made elsewhere, in a file whose extension names the format:
//!
//! | | rows belong to |
//! |---|---|
//! | `.safetensors` (`beta` `[P, L]`), `.npy` (`[P, L]`) | the rows of `actions.parquet`, or the ids of a text file, one a line |
//! | `.parquet`: a column of ids, and one of lists of floats or L of floats | the ids |
//!
//! Half and double precision are accepted and kept as f32.

use std::collections::HashMap;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use npyz::{NpyFile, Order};
use serde::{Deserialize, Serialize};

use crate::dataset::{ITEM_ID, read_vectors};
use crate::embedding::tensors::TensorFile;
use crate::embedding::{BETA, StoredEmbeddings};
use crate::error::{Error, Result};
use crate::matrix::Matrix;

/// A file of embeddings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Import {
    /// The `.safetensors`, `.npy` or `.parquet` file.
    pub path: PathBuf,
    /// The column of ids of a Parquet file.
    pub id_column: String,
    /// The text file of the ids of another file's rows; without it they are those of
    /// `actions.parquet`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ids: Option<PathBuf>,
    /// What becomes of items whose ids are not in the file.
    pub missing: Missing,
}

/// What becomes of items that a file of embeddings does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Missing {
    /// They are an error.
    #[default]
    Error,
    /// Their embeddings are 0.
    Zero,
}

impl Import {
    /// Of the file at `path`, with nothing else said.
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
        Some("npy") => (None, npy(path)?),
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
    Ok(StoredEmbeddings { v, singular_values: None })
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

#[allow(clippy::cast_possible_truncation, reason = "f32 is the precision of β")]
fn npy(path: &Path) -> Result<Matrix> {
    let damaged = |error: std::io::Error| Error::file(path, format!("is no .npy file: {error}"));
    let file = NpyFile::new(BufReader::new(fs_err::File::open(path)?)).map_err(damaged)?;
    let shape: Vec<usize> =
        file.shape().iter().map(|&size| usize::try_from(size).unwrap_or(usize::MAX)).collect();
    let ([_, cols], order) = (matrix_shape(path, &shape)?, file.order());
    let kind = file.dtype().descr();
    let data: std::io::Result<Vec<f32>> = match file.try_data::<f32>() {
        Ok(data) => data.collect(),
        Err(file) => {
            let Ok(data) = file.try_data::<f64>() else {
                let problem = format!("holds {kind}, expected 'f4' or 'f8': save it as float32");
                return Err(Error::file(path, problem));
            };
            data.map(|number| Ok(number? as f32)).collect()
        }
    };
    let data = data.map_err(damaged)?;
    let stored = match order {
        Order::C => Matrix::new(data, cols)?,
        Order::Fortran => {
            let rows = data.len() / cols;
            let mut matrix = Matrix::zeros(rows, cols);
            for row in 0..rows {
                for (column, value) in matrix.row_mut(row).iter_mut().enumerate() {
                    *value = data[column * rows + row];
                }
            }
            matrix
        }
    };
    finite(path, stored)
}

/// `[P, L]` of a matrix with rows and columns.
pub(super) fn matrix_shape(path: &Path, shape: &[usize]) -> Result<[usize; 2]> {
    match *shape {
        [rows, cols] if rows > 0 && cols > 0 => Ok([rows, cols]),
        _ => Err(Error::Shape {
            what: path.display().to_string(),
            expected: "[P, L]".into(),
            found: format!("{shape:?}"),
        }),
    }
}

pub(super) fn finite(path: &Path, matrix: Matrix) -> Result<Matrix> {
    matrix.require_finite(&path.display().to_string())?;
    Ok(matrix)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use half::{bf16, f16};
    use npyz::WriterBuilder as _;
    use safetensors::Dtype;
    use safetensors::tensor::TensorView;

    use super::*;

    const NUMBERS: [f32; 6] = [1.0, -2.0, 0.5, 4.0, 0.25, 6.0];

    /// Without ids.
    fn import_rows(path: &Path, num_actions: usize) -> Result<StoredEmbeddings> {
        import(&Import::new(path), &vec![String::new(); num_actions])
    }

    fn expected() -> StoredEmbeddings {
        let v = Matrix::new(NUMBERS.to_vec(), 2).unwrap();
        StoredEmbeddings { v, singular_values: None }
    }

    fn safetensors(folder: &Path, dtype: Dtype, name: &str, bytes: &[u8]) -> PathBuf {
        let path = folder.join("beta.safetensors");
        let view = TensorView::new(dtype, vec![3, 2], bytes).unwrap();
        fs_err::write(&path, safetensors::serialize([(name, view)], None).unwrap()).unwrap();
        path
    }

    fn npy_file<T>(folder: &Path, order: Order, shape: &[u64], numbers: &[T]) -> PathBuf
    where
        T: npyz::AutoSerialize + Copy,
    {
        let path = folder.join("beta.npy");
        let mut bytes = Vec::new();
        let options = npyz::WriteOptions::new().default_dtype().order(order).shape(shape);
        let mut writer = options.writer(&mut bytes).begin_nd().unwrap();
        writer.extend(numbers.iter().copied()).unwrap();
        writer.finish().unwrap();
        fs_err::write(&path, bytes).unwrap();
        path
    }

    #[test]
    fn safetensors_of_every_float_come_in() {
        let folder = tempfile::tempdir().unwrap();
        let bytes = |number: fn(f32) -> Vec<u8>| -> Vec<u8> {
            NUMBERS.iter().flat_map(|&value| number(value)).collect()
        };
        for (dtype, bytes) in [
            (Dtype::F32, bytes(|value| value.to_le_bytes().to_vec())),
            (Dtype::F64, bytes(|value| f64::from(value).to_le_bytes().to_vec())),
            (Dtype::F16, bytes(|value| f16::from_f32(value).to_le_bytes().to_vec())),
            (Dtype::BF16, bytes(|value| bf16::from_f32(value).to_le_bytes().to_vec())),
        ] {
            let path = safetensors(folder.path(), dtype, "beta", &bytes);
            assert_eq!(import_rows(&path, 3).unwrap(), expected(), "{dtype:?}");
        }
    }

    #[test]
    fn npy_in_either_order_comes_in() {
        let folder = tempfile::tempdir().unwrap();
        let columns = [1.0, 0.5, 0.25, -2.0, 4.0, 6.0];
        let path = npy_file(folder.path(), Order::C, &[3, 2], &NUMBERS);
        assert_eq!(import_rows(&path, 3).unwrap(), expected());
        let path = npy_file(folder.path(), Order::Fortran, &[3, 2], &columns);
        assert_eq!(import_rows(&path, 3).unwrap(), expected());
        let path = npy_file(folder.path(), Order::Fortran, &[3, 2], &columns.map(f64::from));
        assert_eq!(import_rows(&path, 3).unwrap(), expected());
    }

    #[test]
    fn the_wrong_shape_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = npy_file(folder.path(), Order::C, &[3, 2], &NUMBERS);
        let error = import_rows(&path, 4).unwrap_err().to_string();
        assert!(error.contains("[4, L], found [3, 2]"), "{error}");
        let path = npy_file(folder.path(), Order::C, &[6], &NUMBERS);
        let error = import_rows(&path, 6).unwrap_err().to_string();
        assert!(error.contains("[P, L], found [6]"), "{error}");
    }

    #[test]
    fn other_elements_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = npy_file(folder.path(), Order::C, &[3, 2], &[1_i32; 6]);
        let error = import_rows(&path, 3).unwrap_err().to_string();
        assert!(error.contains("i4") && error.contains("float32"), "{error}");
        let path = safetensors(folder.path(), Dtype::I32, "beta", &[0; 24]);
        let error = import_rows(&path, 3).unwrap_err().to_string();
        assert!(error.contains("I32, expected F32"), "{error}");
    }

    #[test]
    fn nan_is_named_by_row_and_column() {
        let folder = tempfile::tempdir().unwrap();
        let mut numbers = NUMBERS;
        numbers[3] = f32::NAN;
        let path = npy_file(folder.path(), Order::C, &[3, 2], &numbers);
        let error = import_rows(&path, 3).unwrap_err().to_string();
        assert!(error.contains("beta.npy: row 1, column 1 is NaN"), "{error}");
    }

    #[test]
    fn a_missing_tensor_names_those_there_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = safetensors(folder.path(), Dtype::F32, "weight", &[0; 24]);
        let error = import_rows(&path, 3).unwrap_err().to_string();
        assert!(error.contains("no tensor `beta`; its tensors are: weight"), "{error}");
    }

    #[test]
    fn truncated_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let npy = npy_file(folder.path(), Order::C, &[3, 2], &NUMBERS);
        let bytes = NUMBERS.map(f32::to_le_bytes).concat();
        let tensors = safetensors(folder.path(), Dtype::F32, "beta", &bytes);
        for path in [npy, tensors] {
            let whole = fs_err::read(&path).unwrap();
            fs_err::write(&path, &whole[..whole.len() - 3]).unwrap();
            assert!(matches!(import_rows(&path, 3), Err(Error::File { .. })), "{}", path.display());
        }
    }
}
