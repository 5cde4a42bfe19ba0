//! A Parquet file → batches of rows.

use std::path::Path;

use polars::prelude::*;

use super::filter::Filters;
use super::rows::{Batch, Columns, Wanted as _};
use super::source::Source;
use crate::dataset::parquet;
use crate::error::{Error, Result};

/// Hands `each` the rows of the file at `path`. Columns that the file lacks are taken from its
/// folders' names, as Hive partitions tables (`country=se/part-0.parquet`).
///
/// # Errors
/// A damaged file, a column that is missing or of another type, or an error of `each`.
pub(super) fn for_each_batch(
    path: &Path,
    source: &Source,
    filters: &Filters,
    mut each: impl FnMut(&Columns, &Batch) -> Result<()>,
) -> Result<Columns> {
    let stored = parquet::column_names(path)?;
    let folders = partitions(path);
    let available: Vec<String> =
        stored.iter().chain(folders.iter().map(|(name, _)| name)).cloned().collect();
    let columns = Columns::find(source, filters, path, &available)?;
    let mut names: Vec<&str> =
        columns.names().filter(|name| stored.iter().any(|column| column == name)).collect();
    // Rows may be chosen by the column of times, for one.
    names.sort_unstable();
    names.dedup();
    let mut first_row = 1;
    for table in parquet::row_groups(path, &names)? {
        let table = table?;
        let wrap = |error| Error::reading(path, error);
        let cells = columns.names().map(|name| {
            let partition = folders.iter().find(|(column, _)| column == name);
            match partition.filter(|_| !names.contains(&name)) {
                Some((_, value)) => {
                    Ok(Series::new(name.into(), vec![value.as_str(); table.height()]))
                }
                None => Ok(table.column(name).map_err(wrap)?.as_materialized_series().rechunk()),
            }
        });
        each(&columns, &batch(path, &columns, cells.collect::<Result<_>>()?, first_row)?)?;
        first_row += table.height() as u64;
    }
    Ok(columns)
}

/// The rows from `first_row` on, whose typed `cells` are those of `columns`.
///
/// # Errors
/// [`Error::File`] for a column of another type.
pub(super) fn batch(
    path: &Path,
    columns: &Columns,
    mut cells: Vec<Series>,
    first_row: u64,
) -> Result<Batch> {
    for (cell, name) in cells.iter().zip(columns.names()) {
        let is_time = columns.time.as_deref() == Some(name);
        if cell.dtype().is_nested() || (cell.dtype().is_temporal() && !is_time) {
            let (found, ids) = (cell.dtype(), columns.names().take(2).any(|id| id == name));
            let expected = if ids { "integers or text" } else { "numbers, text or booleans" };
            let problem = format!("column `{name}`: expected {expected}, found {found}");
            return Err(Error::file(path, problem));
        }
    }
    for id in &mut cells[..2] {
        *id = as_ids(path, id)?;
    }
    Ok(Batch { first_row, numbers: Vec::new(), columns: cells })
}

/// Converts a column of ids: integers to `i64`, or to text if one is too large; text stays.
pub(crate) fn as_ids(path: &Path, column: &Series) -> Result<Series> {
    let wrap = |error| Error::reading(path, error);
    match column.dtype() {
        DataType::String | DataType::Int64 => Ok(column.clone()),
        dtype if dtype.is_integer() => column
            .strict_cast(&DataType::Int64)
            .or_else(|_| column.cast(&DataType::String))
            .map_err(wrap),
        found => {
            let cure = if found.is_float() {
                "; drop rows without an id and cast to integers, for example with .astype('Int64')"
            } else {
                ""
            };
            let name = column.name();
            let problem =
                format!("column `{name}`: expected integers or text, found {found}{cure}");
            Err(Error::file(path, problem))
        }
    }
}

/// `name=value` of each folder above the file, outermost first.
fn partitions(path: &Path) -> Vec<(String, String)> {
    let folders = path.parent().into_iter().flat_map(Path::components);
    let names = folders.filter_map(|folder| folder.as_os_str().to_str()?.split_once('='));
    names.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}
