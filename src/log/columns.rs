//! The columns of a table: made of the fields of rows, and read again as iterators over their cells.

use std::path::Path;

use polars::prelude::*;

use crate::error::{Error, Result};

/// Columns of these rows.
pub(super) struct Build<'a, R>(pub(super) &'a [R]);

impl<R> Build<'_, R> {
    pub(super) fn values<T>(&self, name: &str, of: impl Fn(&R) -> T) -> Column
    where
        Series: NamedFrom<Vec<T>, [T]>,
    {
        let values: Vec<T> = self.0.iter().map(of).collect();
        Series::new(name.into(), values).into_column()
    }

    pub(super) fn texts(&self, name: &str, of: impl Fn(&R) -> Vec<String>) -> Column {
        let mut builder = ListStringChunkedBuilder::new(name.into(), self.0.len(), self.0.len());
        for row in self.0 {
            builder.append_values_iter(of(row).iter().map(String::as_str));
        }
        builder.finish().into_series().into_column()
    }

    pub(super) fn numbers(&self, name: &str, of: impl Fn(&R) -> Option<Vec<f32>>) -> Column {
        let mut builder = ListPrimitiveChunkedBuilder::<Float32Type>::new(
            name.into(),
            self.0.len(),
            self.0.len(),
            DataType::Float32,
        );
        for row in self.0 {
            builder.append_opt_slice(of(row).as_deref());
        }
        builder.finish().into_series().into_column()
    }
}

/// The columns of a part of the file at `path`, with `above` rows of the file before it.
pub(super) struct Columns<'a> {
    table: &'a DataFrame,
    path: &'a Path,
    above: usize,
}

type Cells<T> = std::vec::IntoIter<T>;

impl<'a> Columns<'a> {
    pub(super) fn new(table: &'a DataFrame, path: &'a Path, above: usize) -> Self {
        Self { table, path, above }
    }

    /// [`Error::Row`] for row `at` of this part.
    pub(super) fn refused(&self, at: usize, problem: String) -> Error {
        let row = (self.above + at) as u64 + 1;
        Error::Row { path: self.path.to_owned(), row, problem }
    }

    fn series(&self, name: &str, dtype: &DataType) -> Result<&Series> {
        let column = self.table.column(name);
        let series = column.map_err(|error| Error::library(name, error))?.as_materialized_series();
        if series.dtype() == dtype {
            return Ok(series);
        }
        let problem = format!("column `{name}`: expected {dtype}, found {}", series.dtype());
        Err(Error::file(self.path, problem))
    }

    /// The cells, none of which may be null.
    fn needed<T>(&self, name: &str, cells: impl Iterator<Item = Option<T>>) -> Result<Cells<T>> {
        let cells = cells.enumerate().map(|(at, cell)| {
            cell.ok_or_else(|| Error::Cell {
                path: self.path.to_owned(),
                row: (self.above + at) as u64 + 1,
                column: name.into(),
                expected: "a value",
                found: "null".into(),
            })
        });
        Ok(cells.collect::<Result<Vec<T>>>()?.into_iter())
    }

    pub(super) fn optional_text(&self, name: &str) -> Result<Cells<Option<String>>> {
        let series = self.series(name, &DataType::String)?;
        let cells = series.str().map_err(|error| Error::library(name, error))?.iter();
        Ok(cells.map(|cell| cell.map(str::to_owned)).collect::<Vec<_>>().into_iter())
    }

    pub(super) fn text(&self, name: &str) -> Result<Cells<String>> {
        self.needed(name, self.optional_text(name)?)
    }

    pub(super) fn number<T: PolarsNumericType>(&self, name: &str) -> Result<Cells<T::Native>> {
        let series = self.series(name, &T::get_static_dtype())?;
        let cells = series.unpack::<T>().map_err(|error| Error::library(name, error))?;
        self.needed(name, cells.iter())
    }

    pub(super) fn truth(&self, name: &str) -> Result<Cells<bool>> {
        let series = self.series(name, &DataType::Boolean)?;
        let cells = series.bool().map_err(|error| Error::library(name, error))?;
        self.needed(name, cells.iter())
    }

    /// The lists of a column; `read` makes the values of one.
    fn lists<T>(
        &self,
        name: &str,
        of: DataType,
        read: impl Fn(&Series) -> PolarsResult<Option<Vec<T>>>,
    ) -> Result<Cells<Option<Vec<T>>>> {
        let series = self.series(name, &DataType::List(Box::new(of)))?;
        let failed = |error| Error::library(name, error);
        let lists = series.list().map_err(failed)?;
        let mut cells = Vec::with_capacity(lists.len());
        for at in 0..lists.len() {
            let Some(list) = lists.get_as_series(at) else {
                cells.push(None);
                continue;
            };
            let values = read(&list).map_err(failed)?;
            cells.push(Some(values.ok_or_else(|| Error::Cell {
                path: self.path.to_owned(),
                row: (self.above + at) as u64 + 1,
                column: name.into(),
                expected: "a list without nulls",
                found: "null".into(),
            })?));
        }
        Ok(cells.into_iter())
    }

    pub(super) fn texts(&self, name: &str) -> Result<Cells<Vec<String>>> {
        let read = |list: &Series| Ok(list.str()?.iter().map(|x| x.map(str::to_owned)).collect());
        self.needed(name, self.lists(name, DataType::String, read)?)
    }

    pub(super) fn optional_numbers(&self, name: &str) -> Result<Cells<Option<Vec<f32>>>> {
        self.lists(name, DataType::Float32, |list| Ok(list.f32()?.iter().collect()))
    }

    pub(super) fn numbers(&self, name: &str) -> Result<Cells<Vec<f32>>> {
        self.needed(name, self.optional_numbers(name)?)
    }
}
