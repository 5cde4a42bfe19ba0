//! Where interactions are.

use std::path::PathBuf;

use super::{archive, movielens};
use crate::error::Result;

/// Where interactions are logged, one a row.
///
/// A MovieLens folder or the archive it comes in (`ml-25m.zip`, unpacked beside itself once), its
/// `ratings.csv` or `ratings.dat`, or any table in a `.csv`, `.tsv`
/// (`.gz` or not) or `.parquet` file. Columns that are not given are MovieLens's, where the table
/// has them.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// A file, or the folder of a MovieLens release.
    pub path: PathBuf,
    /// The column of user ids.
    pub user_column: Option<String>,
    /// The column of item ids.
    pub item_column: Option<String>,
    /// The column of ratings.
    pub rating_column: Option<String>,
}

impl Source {
    /// The file that holds the interactions.
    pub(super) fn file(&self) -> Result<PathBuf> {
        let path = archive::unpacked(&self.path)?;
        if fs_err::metadata(&path)?.is_dir() { movielens::ratings_file(&path) } else { Ok(path) }
    }
}
