//! Which interactions count. The steps run once, in this order: rows of another kind and ratings
//! below the threshold go, what a user did several times with an item counts once, users with too
//! few items go, items with too few users go. They are not repeated until nothing changes, so a
//! user may end with fewer items than asked for when items went after them; FOPO's item threshold
//! of 1 never does that.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::dataset::registry::Known;

/// Which interactions are kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Filters {
    /// Which rows are interactions at all.
    pub rows: RowFilter,
    /// Least rating that counts as an interaction; every interaction counts when not set.
    pub min_rating: Option<f64>,
    /// Least number of different items of a user.
    pub min_user_interactions: u32,
    /// Least number of different users of an item, among the users that are kept.
    pub min_item_interactions: u32,
    /// How many rows that cannot be read are skipped instead of ending the reading. Where any may
    /// be, every line of a delimited file is a row, even within quotes.
    pub skip_bad_rows: u64,
}

impl Default for Filters {
    fn default() -> Self {
        Self {
            rows: RowFilter::default(),
            min_rating: None,
            min_user_interactions: 20,
            min_item_interactions: 1,
            skip_bad_rows: 0,
        }
    }
}

/// Which rows are interactions; written `known`, `all` or `COLUMN=VALUE`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum RowFilter {
    /// Those that the known data set's experiments use (`is_read=1` of GoodReads); all of any
    /// other.
    #[default]
    Known,
    /// All.
    All,
    /// Those with this value in that column.
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

impl TryFrom<String> for RowFilter {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
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
