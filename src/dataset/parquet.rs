//! Columns of Parquet files.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use fs_err as fs;
use polars::prelude::*;

use crate::error::{Error, Result};

/// The columns asked for, in that order.
///
/// # Errors
/// A file that is missing or damaged, a column that is missing, or one of a type that this build of
/// polars cannot hold.
pub(super) fn read_columns(path: &Path, columns: &[&str]) -> Result<DataFrame> {
    read_slice(path, columns, None)
}

/// `num_rows` rows of the columns asked for, from row `start`, which counts from 0.
///
/// # Errors
/// As [`read_columns`].
#[cfg(feature = "prepare")]
pub(super) fn read_rows(
    path: &Path,
    columns: &[&str],
    start: usize,
    num_rows: usize,
) -> Result<DataFrame> {
    read_slice(path, columns, Some((start, num_rows)))
}

/// How many rows there are.
///
/// # Errors
/// A file that is missing or damaged.
#[cfg(feature = "prepare")]
pub(super) fn num_rows(path: &Path) -> Result<usize> {
    let num_rows = open(path)?.num_rows();
    num_rows.map_err(|error| Error::library(format!("reading {}", path.display()), error))
}

fn read_slice(path: &Path, columns: &[&str], slice: Option<(usize, usize)>) -> Result<DataFrame> {
    let wrap = |error| Error::library(format!("reading {}", path.display()), error);
    let mut reader = open(path)?;
    let schema = reader.schema().map_err(wrap)?;
    for &column in columns {
        match schema.get(column) {
            None => return Err(missing_column(path, column, &column_names(path)?)),
            Some(field) if !is_readable(field.dtype()) => {
                return Err(Error::file(
                    path,
                    format!(
                        "column `{column}`: expected numbers, text or booleans, found {:?}",
                        field.dtype()
                    ),
                ));
            }
            Some(_) => {}
        }
    }
    let names = columns.iter().map(ToString::to_string).collect();
    let reader = reader.with_columns(Some(names)).with_slice(slice);
    // On some damaged pages polars panics where it should return an error.
    let read = catch_unwind(AssertUnwindSafe(|| reader.finish()));
    let table = read.map_err(|_| Error::file(path, "is damaged"))?.map_err(wrap)?;
    table.select(columns.iter().copied()).map_err(wrap)
}

/// The names of all columns.
///
/// # Errors
/// A file that is missing or damaged.
pub(super) fn column_names(path: &Path) -> Result<Vec<String>> {
    let schema = open(path)?.schema();
    let schema =
        schema.map_err(|error| Error::library(format!("reading {}", path.display()), error))?;
    Ok(schema.iter_names().map(ToString::to_string).collect())
}

/// [`Error::MissingColumn`].
pub(super) fn missing_column(path: &Path, column: &str, available: &[String]) -> Error {
    Error::MissingColumn {
        path: path.to_owned(),
        column: column.to_owned(),
        available: available.to_vec(),
    }
}

fn open(path: &Path) -> Result<ParquetReader<std::fs::File>> {
    // polars maps the file, which it can do with the standard library's handle only.
    Ok(ParquetReader::new(fs::File::open(path)?.into_parts().0))
}

/// polars panics on types whose feature is off.
fn is_readable(dtype: &ArrowDataType) -> bool {
    use ArrowDataType as A;
    matches!(
        dtype,
        A::Boolean
            | A::Int8
            | A::Int16
            | A::Int32
            | A::Int64
            | A::UInt8
            | A::UInt16
            | A::UInt32
            | A::UInt64
            | A::Float32
            | A::Float64
            | A::Utf8
            | A::LargeUtf8
            | A::Utf8View
    )
}
