//! A small table of text or Parquet → its columns, held in memory as a whole.

use std::path::{Path, PathBuf};

use polars::prelude::*;

use super::bytes::Packed;
use super::parquet::as_ids;
use super::text;
use crate::dataset::parquet::{column_names, missing_column, read_columns};
use crate::error::{Error, Result};

/// A `.csv`, `.tsv` (gzipped or not) or `.parquet` file.
pub(super) struct Table {
    /// The file.
    pub(super) path: PathBuf,
    /// The names of its columns.
    pub(super) names: Vec<String>,
    /// All cells of a file of text.
    text: Option<DataFrame>,
}

impl Table {
    /// Reads the names of the columns.
    ///
    /// # Errors
    /// A file that is missing, damaged or of another format, or a row of text that cannot be read.
    pub(super) fn open(file: &Packed) -> Result<Self> {
        let path = file.shown();
        if file.name().ends_with(".parquet") {
            let names = column_names(&path)?;
            return Ok(Self { path, names, text: None });
        }
        let table = text::read_table(file)?;
        Ok(Self { path, names: text::names_of(&table), text: Some(table) })
    }

    /// True if the file says the types of its columns; otherwise all cells are text.
    pub(super) fn is_typed(&self) -> bool {
        self.text.is_none()
    }

    /// True if it has a column of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.names.iter().any(|column| column == name)
    }

    /// Reads a column.
    ///
    /// # Errors
    /// A column that is missing, or one of a type that this build of polars cannot hold.
    pub(super) fn column(&self, name: &str) -> Result<Series> {
        if !self.has(name) {
            return Err(missing_column(&self.path, name, &self.names));
        }
        let wrap = |error| Error::reading(&self.path, error);
        let column = match &self.text {
            Some(table) => table.column(name).cloned(),
            None => read_columns(&self.path, &[name])?.column(name).cloned(),
        };
        Ok(column.map_err(wrap)?.as_materialized_series().rechunk())
    }
}

/// The cells of a column of integers or text, as text; `None` where a cell is empty.
///
/// # Errors
/// [`Error::File`] for a column of another type.
pub(super) fn texts(path: &Path, column: &Series) -> Result<Vec<Option<String>>> {
    let wrap = |error| Error::reading(path, error);
    let column = as_ids(path, column)?.cast(&DataType::String).map_err(wrap)?;
    let texts = column.str().map_err(wrap)?.iter();
    Ok(texts.map(|text| text.filter(|text| !text.is_empty()).map(ToOwned::to_owned)).collect())
}

/// The ids of a column, each with the number of its row, from 1.
///
/// # Errors
/// [`Error::Cell`] for a row without an id; [`Error::File`] for a column of another type.
pub(super) fn ids(path: &Path, column: &Series) -> Result<Vec<(String, u64)>> {
    let with_row = |(id, row): (Option<String>, u64)| {
        let (path, name) = (path.to_owned(), column.name().to_string());
        let empty =
            Error::Cell { path, row, column: name, expected: "an id", found: String::new() };
        Ok((id.ok_or(empty)?, row))
    };
    texts(path, column)?.into_iter().zip(1..).map(with_row).collect()
}
