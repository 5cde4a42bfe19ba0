//! Features of users: a matrix of numbers, and what its columns are.

use serde::{Deserialize, Serialize};

use crate::matrix::Matrix;

/// The features of the users of some sessions.
#[derive(Clone, Debug, PartialEq)]
pub struct UserFeatures {
    /// `[U, F]`, row i of context i.
    pub values: Matrix,
    /// What the columns are.
    pub table: FeatureTable,
}

/// What features were made of, by statistics of the training users alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FeatureTable {
    /// F.
    pub width: usize,
    /// Users of the sessions of whom the table had no row, whose features are zeros.
    pub users_without_row: usize,
    /// In the order of the matrix.
    pub columns: Vec<FeatureColumn>,
}

/// A column of a table of users.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum FeatureColumn {
    /// A number, one column: `(value − mean) / deviation`, and 0 where it is missing or where all
    /// are the same.
    Number {
        /// Its name in the table.
        name: String,
        /// Of the training users.
        mean: f64,
        /// Their standard deviation.
        deviation: f64,
    },
    /// A category, one column for each of `categories`: 1 where it is the user's, otherwise 0.
    Category {
        /// Its name in the table.
        name: String,
        /// The most frequent ones among training users, by falling frequency.
        categories: Vec<String>,
    },
}

impl FeatureColumn {
    /// Columns of the matrix.
    #[must_use]
    pub fn width(&self) -> usize {
        match self {
            Self::Number { .. } => 1,
            Self::Category { categories, .. } => categories.len(),
        }
    }
}
