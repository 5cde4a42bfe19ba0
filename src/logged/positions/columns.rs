//! The columns of a log of positions → where they are in a file.

use std::path::Path;

use crate::dataset::parquet::column_names;
use crate::dataset::{Packed, Wanted};
use crate::error::{Error, Result};

/// The names of the columns. The defaults are those of the Open Bandit data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    /// The id of the item: text or whole numbers.
    pub item: String,
    /// The position: a whole number.
    pub position: String,
    /// What happened: a finite number.
    pub outcome: String,
    /// The propensity, above 0 and at most 1. None reads [`Columns::PROPENSITY`] where there is such a
    /// column.
    pub propensity: Option<String>,
}

impl Columns {
    /// The default column of items.
    pub const ITEM: &str = "item_id";
    /// The default column of positions.
    pub const POSITION: &str = "position";
    /// The default column of outcomes.
    pub const OUTCOME: &str = "click";
    /// The default column of propensities.
    pub const PROPENSITY: &str = "propensity_score";

    /// True for a CSV or TSV file, and for a Parquet file with columns of items, positions and
    /// outcomes.
    #[must_use]
    pub fn are_in(&self, path: &Path) -> bool {
        match Format::of(path) {
            Ok(Format::Text) => path.is_file(),
            Ok(Format::Parquet) => column_names(path).is_ok_and(|names| {
                [&self.item, &self.position, &self.outcome].iter().all(|name| names.contains(name))
            }),
            Err(_) => false,
        }
    }

    /// The columns to read of those that there are.
    pub(super) fn find(&self, path: &Path, available: &[String]) -> Result<Found> {
        let default = available.iter().any(|name| name == Self::PROPENSITY);
        let propensity = self.propensity.as_deref().or(default.then_some(Self::PROPENSITY));
        let columns = [&self.item, &self.position, &self.outcome].map(String::as_str);
        let names: Vec<String> =
            columns.into_iter().chain(propensity).map(ToOwned::to_owned).collect();
        if let Some(missing) = names.iter().find(|name| !available.contains(name)) {
            return Err(Error::MissingColumn {
                path: path.to_owned(),
                column: missing.clone(),
                available: available.to_vec(),
            });
        }
        let others = available.iter().filter(|name| !name.is_empty() && !names.contains(name));
        Ok(Found { others: others.cloned().collect(), names })
    }
}

impl Default for Columns {
    fn default() -> Self {
        Self {
            item: Self::ITEM.into(),
            position: Self::POSITION.into(),
            outcome: Self::OUTCOME.into(),
            propensity: None,
        }
    }
}

/// The columns of a file.
#[derive(Debug)]
pub(super) struct Found {
    /// Items, positions, outcomes and, where there are some, propensities.
    pub(super) names: Vec<String>,
    /// The columns that are not read.
    pub(super) others: Vec<String>,
}

impl Found {
    pub(super) fn has_propensities(&self) -> bool {
        self.names.len() > 3
    }
}

impl Wanted for Found {
    fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }
}

/// How a file holds a table.
#[derive(Clone, Copy)]
pub(super) enum Format {
    Parquet,
    Text,
}

impl Format {
    /// The format that the file's name tells.
    pub(super) fn of(path: &Path) -> Result<Self> {
        match Packed::file(path).name().rsplit_once('.') {
            Some((_, "csv" | "tsv")) => Ok(Self::Text),
            Some((_, "parquet")) => Ok(Self::Parquet),
            _ => {
                let problem = "expected a .csv, .tsv, .csv.gz, .tsv.gz or .parquet file with a row for \
                               each position that was shown";
                Err(Error::file(path, problem))
            }
        }
    }
}
