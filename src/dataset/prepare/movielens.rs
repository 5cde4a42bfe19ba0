//! Titles of movies, from the file beside the ratings.

use std::collections::HashMap;

use super::bytes::Packed;
use super::text;
use crate::dataset::parquet::missing_column;
use crate::error::{Error, Result};

/// The column of items in every release; only tables that have it have movies.
pub(super) const ITEM: &str = "movieId";

/// Files of titles, in the order of preference.
pub(super) const TITLES: [&str; 2] = ["movies.csv", "movies.dat"];

/// Titles by item id, from the `movies.csv` or `movies.dat` beside the ratings; `None` when there
/// is neither.
///
/// # Errors
/// An I/O error, or [`Error`] naming the file and what is wrong with it.
pub(super) fn titles(ratings: &Packed) -> Result<Option<HashMap<String, String>>> {
    if let Some(movies) = ratings.sibling(TITLES[0])? {
        let (path, table) = (movies.shown(), text::read_table(&movies)?);
        let wrap = |error| Error::library(format!("reading {}", path.display()), error);
        let texts = |name: &str| {
            let column = table.column(name);
            column
                .map_err(|_| missing_column(&path, name, &text::names_of(&table)))?
                .str()
                .map_err(wrap)
        };
        let pairs = texts(ITEM)?.iter().zip(texts("title")?.iter());
        let pairs = pairs.filter_map(|(id, title)| Some((id?.to_owned(), title?.to_owned())));
        return Ok(Some(pairs.collect()));
    }
    ratings.sibling(TITLES[1])?.map(|movies| titles_dat(&movies)).transpose()
}

/// `id::title::genres`. 1M is Latin-1, 10M is UTF-8; titles of the latter would pass as the former.
fn titles_dat(movies: &Packed) -> Result<HashMap<String, String>> {
    let text = String::from_utf8(movies.bytes()?).unwrap_or_else(|error| {
        // Latin-1 is the first 256 code points.
        error.into_bytes().into_iter().map(char::from).collect()
    });
    let lines = text.lines().zip(1..).filter(|(line, _)| !line.is_empty());
    lines
        .map(|(line, row)| {
            let mut fields = line.split("::");
            match (fields.next(), fields.next()) {
                (Some(id), Some(title)) => Ok((id.to_owned(), title.to_owned())),
                _ => Err(Error::Row {
                    path: movies.shown(),
                    row,
                    problem: format!("expected id::title::genres, found `{line}`"),
                }),
            }
        })
        .collect()
}
