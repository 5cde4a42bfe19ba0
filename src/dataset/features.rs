//! The features of users: a matrix of numbers and the meaning of its columns.

use serde::{Deserialize, Serialize};

use crate::matrix::Matrix;

/// The features of the users of some sessions.
#[derive(Clone, Debug, PartialEq)]
pub struct UserFeatures {
    /// `[U, F]`; row i belongs to context i.
    pub values: Matrix,
    /// The meaning of the columns.
    pub table: FeatureTable,
}

/// The columns that features were made of, with statistics of the training users alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FeatureTable {
    /// F.
    pub width: usize,
    /// Users of the sessions without a row in the table; their features are zeros.
    pub users_without_row: usize,
    /// The table's columns, in the order of the matrix.
    pub columns: Vec<FeatureColumn>,
}

/// A column of a table of users.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum FeatureColumn {
    /// A number, one column: `(value − mean) / deviation`, and 0 where the number is missing or where
    /// all numbers are equal.
    Number {
        /// Its name in the table.
        name: String,
        /// Mean of the training users' values.
        mean: f64,
        /// Standard deviation of the training users' values.
        deviation: f64,
    },
    /// A category, one column for each of `categories`: 1 for the user's category, otherwise 0.
    Category {
        /// Its name in the table.
        name: String,
        /// The most frequent ones among training users, by falling frequency.
        categories: Vec<String>,
    },
}

impl FeatureColumn {
    /// Number of columns in the matrix.
    #[must_use]
    pub fn width(&self) -> usize {
        match self {
            Self::Number { .. } => 1,
            Self::Category { categories, .. } => categories.len(),
        }
    }
}
