//! What is particular to MovieLens: the files of a release's folder, the `::` of the 1M and 10M
//! releases, and titles.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use fs_err as fs;
use polars::prelude::*;

use super::scan::{collect, scan_csv};
use crate::error::{Error, Result};

/// Columns of a release's ratings.
pub(super) const USER: &str = "userId";
/// See [`USER`].
pub(super) const ITEM: &str = "movieId";
/// See [`USER`].
pub(super) const RATING: &str = "rating";

/// The ratings of the release in `folder`.
///
/// # Errors
/// [`Error::File`] when the folder holds none.
pub(super) fn ratings_file(folder: &Path) -> Result<PathBuf> {
    let candidates = ["ratings.csv", "ratings.dat"].map(|name| folder.join(name));
    candidates.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        Error::file(
            folder,
            "holds neither ratings.csv nor ratings.dat (MovieLens); \
             for other data name the file, a .csv, .tsv, .csv.gz, .tsv.gz or .parquet",
        )
    })
}

/// `user::item::rating::time` of the 1M and 10M releases. Separators have one byte in polars, so
/// every second column is the nothing between two colons.
///
/// # Errors
/// What polars says of the file.
pub(super) fn scan_dat(path: &Path) -> Result<LazyFrame> {
    let columns = [USER, "_1", ITEM, "_3", RATING, "_5", "timestamp"];
    let schema: Schema =
        columns.into_iter().map(|name| Field::new(name.into(), DataType::String)).collect();
    scan_csv(path, |reader| {
        reader
            .with_separator(b':')
            .with_has_header(false)
            .with_quote_char(None)
            .with_schema(Some(Arc::new(schema)))
    })
}

/// Titles by item id, from the `movies.csv` or `movies.dat` beside the ratings; `None` when there
/// is neither.
///
/// # Errors
/// An I/O error, or [`Error`] naming the file and what is wrong with it.
pub(super) fn titles(ratings: &Path) -> Result<Option<HashMap<String, String>>> {
    let (csv, dat) = (ratings.with_file_name("movies.csv"), ratings.with_file_name("movies.dat"));
    if csv.is_file() {
        titles_csv(&csv).map(Some)
    } else if dat.is_file() {
        titles_dat(&dat).map(Some)
    } else {
        Ok(None)
    }
}

fn titles_csv(path: &Path) -> Result<HashMap<String, String>> {
    let table = collect(scan_csv(path, |reader| reader)?, path)?;
    let text = |name: &str| {
        table.column(name).and_then(|column| column.str()).map_err(|_| Error::MissingColumn {
            path: path.to_owned(),
            column: name.to_owned(),
            available: table.get_column_names_owned().iter().map(ToString::to_string).collect(),
        })
    };
    let pairs = text(ITEM)?.iter().zip(text("title")?.iter());
    Ok(pairs.filter_map(|(id, title)| Some((id?.to_owned(), title?.to_owned()))).collect())
}

/// `id::title::genres`. 1M is Latin-1, 10M is UTF-8; titles of the latter would pass as the former.
fn titles_dat(path: &Path) -> Result<HashMap<String, String>> {
    let text = String::from_utf8(fs::read(path)?).unwrap_or_else(|error| {
        // Latin-1 is the first 256 code points.
        error.into_bytes().into_iter().map(char::from).collect()
    });
    let lines = text.lines().zip(1..).filter(|(line, _)| !line.is_empty());
    lines
        .map(|(line, number)| {
            let mut fields = line.split("::");
            match (fields.next(), fields.next()) {
                (Some(id), Some(title)) => Ok((id.to_owned(), title.to_owned())),
                _ => Err(Error::file(
                    path,
                    format!("line {number}: expected id::title::genres, found `{line}`"),
                )),
            }
        })
        .collect()
}
