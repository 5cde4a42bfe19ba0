//! Tables of interactions as polars sees them, before anything is filtered.
//!
//! Text is read as text: what a cell means is decided here, over the whole column, and never by
//! type inference over the first rows. One query checks every cell, so that a bad one is reported
//! with its row instead of turning into a null; only then does the query that filters run.

use std::path::{Path, PathBuf};

use polars::prelude::*;

use super::movielens;
use super::scan::{collect, reading, scan_csv};
use super::source::Source;
use crate::dataset::parquet;
use crate::error::{Error, Result};

/// The columns that matter, unread: `row` (from 1), `user_id`, `item_id` and, when ratings are
/// asked for, `rating`.
pub(super) struct Log {
    path: PathBuf,
    frame: LazyFrame,
    user: String,
    item: String,
    rating: Option<String>,
}

impl Log {
    /// Finds the format by the file's extension, and the columns.
    ///
    /// # Errors
    /// An extension that is not known, a column that is missing or was not named, or what polars
    /// says of the file.
    pub(super) fn open(source: &Source, path: &Path, with_ratings: bool) -> Result<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let is_parquet = name.ends_with(".parquet");
        let mut frame = match name.trim_end_matches(".gz").rsplit_once('.') {
            _ if is_parquet => LazyFrame::default(),
            Some((_, "csv")) => scan_csv(path, |reader| reader)?,
            Some((_, "tsv")) => scan_csv(path, |reader| reader.with_separator(b'\t'))?,
            Some((_, "dat")) => movielens::scan_dat(path)?,
            _ => {
                return Err(Error::file(
                    path,
                    "expected a .csv, .tsv, .csv.gz, .tsv.gz or .parquet file, a MovieLens \
                     ratings.dat, or the folder of a MovieLens release (unpack archives first)",
                ));
            }
        };
        let available: Vec<String> = if is_parquet {
            parquet::column_names(path)?
        } else {
            let schema = frame.collect_schema().map_err(|error| reading(path, &error))?;
            schema.iter_names().map(ToString::to_string).collect()
        };

        let find = |given: &Option<String>, default: &str, kind: &str, what: &str| match given {
            Some(column) if available.contains(column) => Ok(column.clone()),
            Some(column) => Err(parquet::missing_column(path, column, &available)),
            None if available.iter().any(|name| name == default) => Ok(default.to_owned()),
            None => Err(Error::file(
                path,
                format!(
                    "which column holds the {what}? Say it with --{kind}-column; \
                     the columns are {}",
                    available.join(", ")
                ),
            )),
        };
        let user = find(&source.user_column, movielens::USER, "user", "users")?;
        let item = find(&source.item_column, movielens::ITEM, "item", "items")?;
        let rating = match &source.rating_column {
            None if !with_ratings => None,
            given => Some(find(given, movielens::RATING, "rating", "ratings for --min-rating")?),
        };
        // A name that is given is checked even when nothing needs the ratings.
        let rating = rating.filter(|_| with_ratings);

        if is_parquet {
            // Reading the columns in question, rather than scanning, leaves the others free to be
            // of types that this build of polars does not know.
            let names: Vec<&str> =
                [&user, &item].into_iter().chain(&rating).map(String::as_str).collect();
            frame = parquet::read_columns(path, &names)?.lazy();
        }
        let mut columns = vec![col(&user).alias("user_id"), col(&item).alias("item_id")];
        columns.extend(rating.as_ref().map(|rating| col(rating).alias("rating")));
        let frame = frame.select(columns).with_row_index("row", Some(1));
        Ok(Self { path: path.to_owned(), frame, user, item, rating })
    }

    /// Whether the items are MovieLens's.
    pub(super) fn has_movies(&self) -> bool {
        self.item == movielens::ITEM
    }

    /// `user_id`, `item_id` (both `i64` or text) and `rating` (`f64`), every cell of them checked.
    ///
    /// # Errors
    /// [`Error::Cell`] for the first row with an empty id or an unreadable rating, [`Error::File`]
    /// for columns that can hold neither, or what polars says of the file.
    pub(super) fn typed(mut self) -> Result<LazyFrame> {
        let schema = self.frame.collect_schema().map_err(|error| reading(&self.path, &error))?;
        for (alias, name) in [("user_id", &self.user), ("item_id", &self.item)] {
            let found = schema.get(alias);
            if !found.is_some_and(|found| found.is_integer() || *found == DataType::String) {
                let found = found.map(ToString::to_string).unwrap_or_default();
                let problem =
                    format!("column `{name}`: expected ids, integers or text, found {found}");
                return Err(Error::file(&self.path, problem));
            }
        }

        let text = |name: &str| col(name).cast(DataType::String);
        let rating = col("rating").cast(DataType::Float64);
        let mut problems = vec![
            ("user_id", &self.user, "an id", text("user_id").fill_null(lit("")).eq(lit(""))),
            ("item_id", &self.item, "an id", text("item_id").fill_null(lit("")).eq(lit(""))),
        ];
        if let Some(name) = &self.rating {
            let bad = rating.clone().is_finite().fill_null(lit(false)).not();
            problems.push(("rating", name, "a finite number", bad));
        }
        // `007` is no integer here: as one it would lose its name and meet `7`.
        let is_integer = |name: &str| {
            let again = text(name).cast(DataType::Int64).cast(DataType::String);
            again.eq_missing(text(name)).all(false).alias(name)
        };
        let checks = problems.iter().map(|(name, _, _, bad)| {
            col("row").filter(bad.clone()).min().alias(format!("first bad {name}"))
        });
        let checks: Vec<_> = checks.chain(["user_id", "item_id"].map(is_integer)).collect();
        // Reading the other columns too is what finds rows with too many fields.
        let whole = self.frame.clone().with_projection_pushdown(false);
        let checked = collect(whole.select(checks), &self.path)?;

        for ((alias, name, expected, _), first_bad) in problems.iter().zip(checked.columns()) {
            if let Some(row) = first_bad.get(0).ok().and_then(|row| row.try_extract::<u64>().ok()) {
                let cell = self.frame.clone().filter(col("row").eq(lit(row)));
                let cell = collect(cell.select([text(alias)]), &self.path)?;
                let found = cell.columns()[0].get(0).ok();
                return Err(Error::Cell {
                    path: self.path,
                    row,
                    column: (*name).clone(),
                    expected,
                    found: found
                        .filter(|found| !found.is_null())
                        .map_or_else(String::new, |found| found.str_value().to_string()),
                });
            }
        }
        let id = |name: &str| {
            let integers = checked.column(name).and_then(|column| column.get(0));
            if integers.is_ok_and(|all| all == AnyValue::Boolean(true)) {
                col(name).strict_cast(DataType::Int64)
            } else {
                text(name)
            }
        };
        let mut columns = vec![id("user_id"), id("item_id")];
        columns.extend(self.rating.is_some().then_some(rating));
        Ok(self.frame.select(columns))
    }
}
