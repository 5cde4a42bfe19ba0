//! The settings that say which interactions count. The steps run once, in this order: rows of another
//! kind and ratings below the threshold are dropped, repeated pairs of a user and an item count once,
//! users with too few items are dropped, items with too few users are dropped. The steps are not
//! repeated, so a user may end with fewer items than asked for after items are dropped; FOPO's item
//! threshold of 1 never does that.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::dataset::registry::Known;

/// The interactions to keep.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Filters {
    /// The rows that are interactions at all.
    pub rows: RowFilter,
    /// Least rating that counts as an interaction; every interaction counts when not set.
    pub min_rating: Option<f64>,
    /// Least number of different items of a user.
    pub min_user_interactions: u32,
    /// Least number of different users of an item, among the users that are kept.
    pub min_item_interactions: u32,
    /// The most rows to skip that cannot be read; one more is an error. Where a quote of a delimited file
    /// is misplaced or not closed, each line is a row.
    pub skip_bad_rows: u64,
}

impl Default for Filters {
    fn default() -> Self {
        Self {
            rows: RowFilter::default(),
            min_rating: None,
            min_user_interactions: 5,
            min_item_interactions: 1,
            skip_bad_rows: 0,
        }
    }
}

/// The rows that are interactions; written `known`, `all` or `COLUMN=VALUE`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub enum RowFilter {
    /// The rows that experiments on a known data set use (`is_read=1` of GoodReads); all rows of any
    /// other data set.
    #[default]
    Known,
    /// All rows.
    All,
    /// The rows with one value in one column.
    Only {
        /// The column.
        column: String,
        /// Its value, as the file writes it.
        value: String,
    },
}

impl RowFilter {
    /// The column and its value in a table of `known`.
    pub(super) fn of(&self, known: Option<&Known>) -> Option<(String, String)> {
        match self {
            Self::All => None,
            Self::Only { column, value } => Some((column.clone(), value.clone())),
            Self::Known => {
                let (column, value) = known?.only?;
                Some((column.to_owned(), value.to_owned()))
            }
        }
    }
}

impl FromStr for RowFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.split_once('=')) {
            ("known", _) => Ok(Self::Known),
            ("all", _) => Ok(Self::All),
            (_, Some((column, value))) if !column.is_empty() => {
                Ok(Self::Only { column: column.into(), value: value.into() })
            }
            _ => Err(format!("expected `COLUMN=VALUE`, `all` or `known`, found `{text}`")),
        }
    }
}

impl From<RowFilter> for String {
    fn from(rows: RowFilter) -> Self {
        rows.to_string()
    }
}

impl fmt::Display for RowFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known => f.write_str("known"),
            Self::All => f.write_str("all"),
            Self::Only { column, value } => write!(f, "{column}={value}"),
        }
    }
}
