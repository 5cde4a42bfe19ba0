//! Tables in memory → batches of rows, through the same checks as files.

use polars::prelude::*;

use super::filter::Filters;
use super::interactions::Interactions;
use super::pairs::Pairs;
use super::parquet::batch;
use super::rows::{BadRows, Columns, Wanted as _};
use super::source::Source;
use crate::dataset::parquet::is_readable;
use crate::error::{Error, Result};
use crate::files::Hasher;

/// Rows of a batch.
const ROWS: usize = if cfg!(test) { 3 } else { 1 << 20 };

/// Interactions in memory, one a row: what a file of them would hold.
#[derive(Clone, Debug)]
pub struct Frames {
    /// Tables with the same columns, one below the other.
    pub tables: Vec<DataFrame>,
    /// The columns; the path is a name for the tables in messages.
    pub columns: Source,
}

impl Frames {
    /// True for types that a column in memory may have.
    #[must_use]
    pub fn can_hold(dtype: &ArrowDataType) -> bool {
        is_readable(dtype)
    }

    /// The columns that matter.
    fn columns(&self, filters: &Filters) -> Result<Columns> {
        let names = self.tables.first().map(DataFrame::get_column_names).unwrap_or_default();
        let names: Vec<String> = names.into_iter().map(ToString::to_string).collect();
        Columns::find(&self.columns, filters, &self.columns.path, &names)
    }

    /// The columns that matter, a batch of rows after the other.
    fn batches(&self, columns: &Columns) -> impl Iterator<Item = Result<Vec<Series>>> {
        let pieces = self.tables.iter().flat_map(|table| {
            let starts = (0..table.height()).step_by(ROWS);
            #[allow(clippy::cast_possible_wrap, reason = "rows of a table")]
            starts.map(|start| table.slice(start as i64, ROWS))
        });
        pieces.map(|piece| {
            let wrap = |error| Error::library(self.columns.path.display().to_string(), error);
            let cells = columns.names().map(|name| {
                Ok(piece.column(name).map_err(wrap)?.as_materialized_series().rechunk())
            });
            cells.collect()
        })
    }

    /// SHA-256 of the cells that matter, in hex: the same however the rows are divided into tables.
    ///
    /// # Errors
    /// A column that is missing, or was not named.
    pub fn digest(&self, filters: &Filters) -> Result<String> {
        let columns = self.columns(filters)?;
        let mut hashers: Vec<Hasher> = columns.names().map(|_| Hasher::default()).collect();
        let wrap = |error| Error::library(self.columns.path.display().to_string(), error);
        for cells in self.batches(&columns) {
            for (column, hasher) in cells?.iter().zip(&mut hashers) {
                let bytes = bytes(column).map_err(wrap)?;
                hasher.update(&bytes);
            }
        }
        let mut all = Hasher::default();
        for hasher in hashers {
            all.update(hasher.hex().as_bytes());
        }
        Ok(all.hex())
    }
}

/// The cells of a column as bytes, each with its length or with a mark that there is one.
fn bytes(column: &Series) -> PolarsResult<Vec<u8>> {
    let mut bytes = Vec::with_capacity(9 * column.len());
    if column.dtype().is_float() {
        for cell in column.cast(&DataType::Float64)?.f64()?.iter() {
            bytes.push(u8::from(cell.is_some()));
            bytes.extend(cell.unwrap_or_default().to_le_bytes());
        }
    } else if column.dtype().is_signed_integer() || column.dtype().is_temporal() {
        for cell in column.to_physical_repr().cast(&DataType::Int64)?.i64()?.iter() {
            bytes.push(u8::from(cell.is_some()));
            bytes.extend(cell.unwrap_or_default().to_le_bytes());
        }
    } else {
        for cell in column.cast(&DataType::String)?.str()?.iter() {
            let cell = cell.map(str::as_bytes);
            bytes.extend(cell.map_or(u64::MAX, |text| text.len() as u64).to_le_bytes());
            bytes.extend(cell.unwrap_or_default());
        }
    }
    Ok(bytes)
}

/// Reads and filters interactions in memory, as [`read`](super::read()) does files.
///
/// # Errors
/// An error naming the table's row and column: for a missing column, a cell that cannot be read and
/// may not be skipped, a threshold without ratings, or a filter that leaves nothing.
pub fn read_frames(frames: &Frames, filters: &Filters) -> Result<Interactions> {
    pairs(frames, filters)?.finish(frames.columns.path.clone())
}

/// The interactions in memory, each pair of a user and an item once, as a table of `user`, `item` and, if
/// times are asked for, `time`. Filters of rows and of users are applied, that of items is not: so a log can be
/// reduced in parts, each with all rows of its users, and parts without their filter of users first.
///
/// # Errors
/// An error naming the table's row and column, as in [`read_frames`].
pub fn distinct(frames: &Frames, filters: &Filters) -> Result<DataFrame> {
    pairs(frames, filters)?.table()
}

fn pairs<'a>(frames: &Frames, filters: &'a Filters) -> Result<Pairs<'a>> {
    let Frames { columns: Source { path, first_times, .. }, .. } = frames;
    let columns = frames.columns(filters)?;
    let mut pairs = Pairs::new(filters, *first_times);
    let mut bad = BadRows::up_to(filters.skip_bad_rows);
    let mut first_row = 1;
    for cells in frames.batches(&columns) {
        let batch = batch(path, &columns, cells?, first_row)?;
        first_row += batch.columns[0].len() as u64;
        pairs.add(path, &columns, &batch, &mut bad)?;
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(users: &[i64], items: &[&str]) -> DataFrame {
        let columns = vec![Column::new("u".into(), users), Column::new("i".into(), items)];
        DataFrame::new_infer_height(columns).unwrap()
    }

    fn frames(tables: Vec<DataFrame>) -> Frames {
        let columns = Source {
            path: "interactions".into(),
            user_column: Some("u".into()),
            item_column: Some("i".into()),
            ..Source::default()
        };
        Frames { tables, columns }
    }

    #[test]
    fn how_rows_are_divided_is_no_matter() {
        let filters = Filters { min_user_interactions: 1, ..Filters::default() };
        let (users, items) = ([1, 2, 2, 3, 1, 1, 3], ["a", "b", "a", "c", "b", "a", "a"]);
        let whole = frames(vec![table(&users, &items)]);
        let parts = frames(vec![
            table(&users[..4], &items[..4]),
            table(&[], &[]),
            table(&users[4..], &items[4..]),
        ]);
        assert_eq!(whole.digest(&filters).unwrap(), parts.digest(&filters).unwrap());
        let (one, other) = (read_frames(&whole, &filters), read_frames(&parts, &filters));
        let (one, other) = (one.unwrap(), other.unwrap());
        assert_eq!(one.items_of, other.items_of);
        assert_eq!(one.items_of.num_pairs(), 6);
        let changed = frames(vec![table(&users, &["a", "b", "a", "c", "b", "a", "b"])]);
        assert_ne!(whole.digest(&filters).unwrap(), changed.digest(&filters).unwrap());
    }

    #[test]
    fn a_threshold_of_ratings_is_as_precise_as_they_are() {
        for dtype in [DataType::Float32, DataType::Float64] {
            let mut rated = table(&[1, 1, 1], &["a", "b", "c"]);
            let ratings = Column::new("r".into(), [4.1, 4.0, 4.2]).cast(&dtype).unwrap();
            rated.with_column(ratings).unwrap();
            let mut rated = frames(vec![rated]);
            rated.columns.rating_column = Some("r".into());
            let filters =
                Filters { min_user_interactions: 1, min_rating: Some(4.1), ..Filters::default() };
            assert_eq!(read_frames(&rated, &filters).unwrap().items_of.num_pairs(), 2, "{dtype}");
        }
    }

    #[test]
    fn what_is_wrong_names_row_and_column() {
        let filters = Filters { min_user_interactions: 1, ..Filters::default() };
        let says = |frames: &Frames, said: &str| {
            let message = read_frames(frames, &filters).unwrap_err().to_string();
            assert!(message.contains(said), "{message}");
        };
        says(
            &frames(vec![table(&[1, 2, 3, 4, 5], &["a", "b", "a", "", "b"])]),
            "row 4: column `i`",
        );
        says(&frames(vec![table(&[], &[])]), "holds no rows");
        let mut other = frames(vec![table(&[1], &["a"])]);
        other.columns.user_column = Some("x".into());
        says(&other, "no column `x`; the columns are u, i");
    }
}
