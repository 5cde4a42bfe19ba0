//! A Parquet file of vectors → ids and a matrix. Beside the column of ids there is a column of lists
//! of floats, or a column of floats for each number of a vector.

use std::path::Path;

use polars::prelude::*;

use super::catalogue::id_texts;
use super::parquet::{missing_column, of_floats, row_groups, schema};
use crate::error::{Error, Result, listed};
use crate::matrix::Matrix;

/// Reads the ids in `id_column`, as text, and the vector beside each, `[rows, L]`.
///
/// # Errors
/// A file that is missing or damaged; [`Error::MissingColumn`]; [`Error::File`] if it is not clear
/// which columns hold the vectors; [`Error::Cell`] and [`Error::Row`] for a row without numbers, or
/// with more or fewer than the first.
pub(crate) fn read_vectors(path: &Path, id_column: &str) -> Result<(Vec<String>, Matrix)> {
    let (columns, lists) = columns(path, id_column)?;
    let names: Vec<&str> = columns.iter().map(String::as_str).collect();
    let (mut ids, mut numbers) = (Vec::new(), Vec::new());
    let mut width = if lists { None } else { Some(columns.len() - 1) };
    for table in row_groups(path, &names)? {
        let (table, above) = (table?, ids.len());
        ids.extend(id_texts(&table, id_column, path)?);
        if lists {
            push_lists(&table.columns()[1], path, above, &mut width, &mut numbers)?;
        } else {
            push_columns(&table.columns()[1..], path, above, &mut numbers)?;
        }
    }
    match width {
        Some(width) if width > 0 && !numbers.is_empty() => Ok((ids, Matrix::new(numbers, width)?)),
        _ => Err(Error::file(path, "holds no numbers")),
    }
}

/// The columns to read, the ids first, and true if the vectors are a column of lists.
fn columns(path: &Path, id_column: &str) -> Result<(Vec<String>, bool)> {
    let schema = schema(path)?;
    let names: Vec<String> = schema.iter_names().map(ToString::to_string).collect();
    if !names.iter().any(|name| name == id_column) {
        return Err(missing_column(path, id_column, &names));
    }
    let of = |wanted: &dyn Fn(&ArrowDataType) -> bool| -> Vec<String> {
        let fields = schema.iter_values().filter(|field| wanted(field.dtype()));
        let names = fields.map(|field| field.name.to_string());
        names.filter(|name| name != id_column).collect()
    };
    let lists = of(&|dtype| match dtype {
        ArrowDataType::List(item) | ArrowDataType::LargeList(item) => of_floats(item.dtype()),
        _ => false,
    });
    let arrays = of(&|dtype| matches!(dtype, ArrowDataType::FixedSizeList(..)));
    let floats = of(&of_floats);
    let (vectors, are_lists) = match (lists.as_slice(), arrays.as_slice(), floats.as_slice()) {
        ([_], _, _) => (lists, true),
        ([], [array, ..], _) => {
            let problem = format!(
                "column `{array}` holds arrays of a fixed size: save it as a column of lists \
                 (polars: .arr.to_list()), or each number as a column of its own"
            );
            return Err(Error::file(path, problem));
        }
        ([], [], [_, ..]) => (floats, false),
        _ => {
            let problem = format!(
                "expected one column of lists of floats, or columns of floats, beside \
                 `{id_column}`; the columns are {}",
                listed(&names)
            );
            return Err(Error::file(path, problem));
        }
    };
    Ok(([id_column.to_owned()].into_iter().chain(vectors).collect(), are_lists))
}

fn push_lists(
    column: &Column,
    path: &Path,
    above: usize,
    width: &mut Option<usize>,
    numbers: &mut Vec<f32>,
) -> Result<()> {
    let wrap = |error: PolarsError| Error::library(path.display().to_string(), error);
    let column = column.cast(&DataType::List(Box::new(DataType::Float32))).map_err(wrap)?;
    let lists = column.list().map_err(wrap)?;
    let lists = (0..lists.len()).map(|at| lists.get_as_series(at));
    for (list, row) in lists.zip(above as u64 + 1..) {
        let list = list.filter(|list| list.null_count() == 0).ok_or_else(|| Error::Cell {
            path: path.to_owned(),
            row,
            column: column.name().to_string(),
            expected: "a list of numbers",
            found: "null".into(),
        })?;
        let expected = *width.get_or_insert(list.len());
        if list.len() != expected {
            let problem = format!(
                "column `{}` holds {} numbers, expected {expected} as in the first row",
                column.name(),
                list.len()
            );
            return Err(Error::Row { path: path.to_owned(), row, problem });
        }
        numbers.extend(list.f32().map_err(wrap)?.iter().flatten());
    }
    Ok(())
}

fn push_columns(
    columns: &[Column],
    path: &Path,
    above: usize,
    numbers: &mut Vec<f32>,
) -> Result<()> {
    let wrap = |error: PolarsError| Error::library(path.display().to_string(), error);
    let start = numbers.len();
    numbers.resize(start + columns.first().map_or(0, Column::len) * columns.len(), 0.0);
    for (at, column) in columns.iter().enumerate() {
        let floats = column.cast(&DataType::Float32).map_err(wrap)?;
        let out = numbers[start..].iter_mut().skip(at).step_by(columns.len());
        for ((value, out), row) in floats.f32().map_err(wrap)?.iter().zip(out).zip(above + 1..) {
            *out = value.ok_or_else(|| Error::Cell {
                path: path.to_owned(),
                row: row as u64,
                column: column.name().to_string(),
                expected: "a number",
                found: "null".into(),
            })?;
        }
    }
    Ok(())
}
