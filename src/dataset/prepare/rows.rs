//! Rows of a log on their way in: a batch of them as columns, and what becomes of the bad ones.

use std::path::Path;

use polars::prelude::*;

use super::filter::Filters;
use super::source::Source;
use crate::dataset::parquet::missing_column;
use crate::dataset::registry;
use crate::error::{Error, Result};

/// Some rows of one file.
pub(super) struct Batch {
    /// Number of the first row, from 1.
    pub(super) first_row: u64,
    /// Indices of rows that were left out before, had they stayed; ascending.
    pub(super) left_out: Vec<u64>,
    /// The columns that [`Columns::names`] names, in that order; ids are `i64` or text.
    pub(super) columns: Vec<Series>,
    /// Indices of rows that are none, ascending, and why.
    pub(super) short: Vec<(usize, String)>,
}

impl Batch {
    /// Number of rows.
    pub(super) fn height(&self) -> usize {
        self.columns[0].len()
    }

    /// The number of the row at `index`, from 1.
    pub(super) fn row(&self, index: usize) -> u64 {
        let mut at = index as u64;
        for &left_out in &self.left_out {
            if left_out > at {
                break;
            }
            at += 1;
        }
        self.first_row + at
    }
}

/// The columns of a table that matter.
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
    /// Those that `source` names, or that a known data set among `available` has.
    ///
    /// # Errors
    /// [`Error::MissingColumn`], or [`Error::File`] for one that has to be named.
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
            (None, None) => Err(Error::file(
                path,
                format!(
                    "which column holds the {what}? Say it with --{kind}-column; \
                         the columns are {}",
                    available.join(", ")
                ),
            )),
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
        Ok(Self { user, item, rating, time, only })
    }

    /// Users, items, and what else there is.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        let only = self.only.as_ref().map(|(column, _)| column);
        let Self { user, item, rating, time, .. } = self;
        [user, item].into_iter().chain(rating).chain(time).chain(only).map(String::as_str)
    }
}

/// Rows that cannot be read: how many may be skipped, and how many were.
#[derive(Debug, Default)]
pub(super) struct BadRows {
    allowed: u64,
    /// How many were met.
    pub(super) skipped: u64,
    /// What was wrong with the first.
    pub(super) first: Option<String>,
}

impl BadRows {
    pub(super) fn new(allowed: u64) -> Self {
        Self { allowed, ..Self::default() }
    }

    /// Whether any may be skipped.
    pub(super) fn may_skip(&self) -> bool {
        self.allowed > 0
    }

    /// Skips a row.
    ///
    /// # Errors
    /// `problem`, unless it may be skipped.
    pub(super) fn skip(&mut self, problem: Error) -> Result<()> {
        if self.skipped == self.allowed {
            return Err(match self.allowed {
                0 => problem,
                allowed => Error::TooManyBadRows { allowed, problem: Box::new(problem) },
            });
        }
        self.skipped += 1;
        self.first.get_or_insert_with(|| problem.to_string());
        Ok(())
    }
}
