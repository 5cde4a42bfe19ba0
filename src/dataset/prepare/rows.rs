//! What the readers of text and of Parquet share: a batch of rows as columns, the columns to look
//! for, and the count of bad rows.

use std::path::Path;

use polars::prelude::*;

use super::filter::Filters;
use super::source::Source;
use crate::dataset::parquet::missing_column;
use crate::dataset::registry;
use crate::error::{Error, Result, shown, the_columns};

/// Some rows of one file.
pub(crate) struct Batch {
    /// Number of the first row, from 1.
    pub(crate) first_row: u64,
    /// The number of each row where rows were left out before; empty where none was.
    pub(crate) numbers: Vec<u64>,
    /// The columns that [`Wanted::names`] names, in that order; ids are `i64` or text.
    pub(crate) columns: Vec<Series>,
}

/// The columns of a table that matter.
pub(crate) trait Wanted {
    /// Their names, in the order of [`Batch::columns`].
    fn names(&self) -> impl Iterator<Item = &str>;
}

impl Batch {
    /// The number of the row at `index`, from 1.
    pub(crate) fn row(&self, index: usize) -> u64 {
        self.numbers.get(index).copied().unwrap_or(self.first_row + index as u64)
    }
}

/// The columns of a table of interactions that matter.
#[derive(Clone, Debug)]
pub(super) struct Columns {
    pub(super) user: String,
    pub(super) item: String,
    pub(super) rating: Option<String>,
    pub(super) time: Option<String>,
    /// A column and the value that rows are kept for.
    pub(super) only: Option<(String, String)>,
}

impl Columns {
    /// Finds the columns that `source` names, or else those of a known data set, in `available`.
    ///
    /// # Errors
    /// [`Error::MissingColumn`], or [`Error::File`] for a column that has to be named.
    pub(super) fn find(
        source: &Source,
        filters: &Filters,
        path: &Path,
        available: &[String],
    ) -> Result<Self> {
        let known = registry::with_columns(available);
        let find = |given: &Option<String>, known: Option<&str>, kind: &str, what: &str| match (
            given, known,
        ) {
            (Some(column), _) if available.contains(column) => Ok(column.clone()),
            (Some(column), _) => Err(missing_column(path, column, available)),
            (None, Some(column)) => Ok(column.to_owned()),
            (None, None) => {
                let columns = the_columns(path, available);
                let problem = format!(
                    "which column holds the {what}? Say it with --{kind}-column; {columns}"
                );
                Err(Error::file(path, problem))
            }
        };
        let user = find(&source.user_column, known.map(|known| known.user), "user", "users")?;
        let item = find(&source.item_column, known.map(|known| known.item), "item", "items")?;
        let rating = match &source.rating_column {
            None if filters.min_rating.is_none() => None,
            given => {
                let known = known.and_then(|known| known.rating);
                let known = known.filter(|name| available.iter().any(|column| column == name));
                Some(find(given, known, "rating", "ratings for --min-rating")?)
            }
        };
        // A name that is given is checked even when nothing needs the ratings.
        let rating = rating.filter(|_| filters.min_rating.is_some());
        let time = source.time_column.is_some();
        let time = time.then(|| find(&source.time_column, None, "time", "times")).transpose()?;
        let only = filters.rows.of(known);
        if let Some((column, _)) = only.as_ref().filter(|(column, _)| !available.contains(column)) {
            return Err(missing_column(path, column, available));
        }
        if user == item {
            let problem = format!("column `{user}` cannot hold both the users and the items");
            return Err(Error::file(path, problem));
        }
        Ok(Self { user, item, rating, time, only })
    }
}

impl Wanted for Columns {
    /// Users and items first, then ratings, times and the column that rows are chosen by, if asked
    /// for.
    fn names(&self) -> impl Iterator<Item = &str> {
        let only = self.only.as_ref().map(|(column, _)| column);
        let Self { user, item, rating, time, .. } = self;
        [user, item].into_iter().chain(rating).chain(time).chain(only).map(String::as_str)
    }
}

/// Rows that cannot be read. None may be skipped by default.
#[derive(Debug, Default)]
pub(crate) struct BadRows {
    /// The most rows that may be skipped.
    allowed: u64,
    /// Somebody may allow some, with `--skip-bad-rows`.
    by_choice: bool,
    /// The number of rows that were skipped.
    pub(crate) skipped: u64,
    /// What was wrong with the first.
    pub(crate) first: Option<String>,
}

impl BadRows {
    /// None yet, of at most `allowed`.
    pub(crate) fn up_to(allowed: u64) -> Self {
        Self { allowed, by_choice: true, ..Self::default() }
    }

    /// True if any may be skipped.
    pub(super) fn may_skip(&self) -> bool {
        self.allowed > 0
    }

    /// The error that a row with this `problem` ends the reading with.
    pub(super) fn refusal(&self, problem: Error) -> Error {
        match (self.allowed, problem) {
            (0, Error::Row { path, row, problem }) if self.by_choice => {
                let problem = format!("{problem}; --skip-bad-rows skips such rows");
                Error::Row { path, row, problem }
            }
            (0, Error::Cell { path, row, column, expected, found }) if self.by_choice => {
                let problem = format!(
                    "column `{column}`: expected {expected}, found `{}`; --skip-bad-rows skips such rows",
                    shown(&found)
                );
                Error::Row { path, row, problem }
            }
            (0, problem) => problem,
            (allowed, problem) => Error::TooManyBadRows { allowed, problem: Box::new(problem) },
        }
    }

    /// Skips a row, which has this `problem`.
    ///
    /// # Errors
    /// `problem`, unless it may be skipped.
    pub(crate) fn skip(&mut self, problem: Error) -> Result<()> {
        if self.skipped == self.allowed {
            return Err(self.refusal(problem));
        }
        self.skipped += 1;
        self.first.get_or_insert_with(|| problem.to_string());
        Ok(())
    }
}
