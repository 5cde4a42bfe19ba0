//! The file of movies beside the ratings → titles and groups by item id.

use std::collections::HashMap;

use super::bytes::Packed;
use super::labels::{Wanted, labels as read};
use crate::dataset::Label;
use crate::error::{Error, Result};

/// The column of items in every release; only tables that have it have movies.
pub(super) const ITEM: &str = "movieId";

/// Files of titles, in the order of preference.
pub(super) const TITLES: [&str; 2] = ["movies.csv", "movies.dat"];

/// What stands for the genres of a movie without any.
const NO_GENRES: &str = "(no genres listed)";

/// Reads the titles and genres in the `movies.csv` or `movies.dat` beside the ratings; `None` if there
/// is neither.
///
/// # Errors
/// An error naming the file and the row or column at fault.
pub(super) fn labels(ratings: &Packed) -> Result<Option<HashMap<String, Label>>> {
    let mut found = if let Some(movies) = ratings.sibling(TITLES[0])? {
        read(&movies, ITEM, Wanted::Must("title"), Wanted::May("genres"))?
    } else if let Some(movies) = ratings.sibling(TITLES[1])? {
        labels_dat(&movies)?
    } else {
        return Ok(None);
    };
    for label in found.values_mut() {
        label.group.take_if(|group| group == NO_GENRES);
    }
    Ok(Some(found))
}

/// `id::title::genres`. 1M is Latin-1, 10M is UTF-8; titles of the latter would pass as the former.
fn labels_dat(movies: &Packed) -> Result<HashMap<String, Label>> {
    let text = String::from_utf8(movies.bytes()?).unwrap_or_else(|error| {
        // Latin-1 is the first 256 code points.
        error.into_bytes().into_iter().map(char::from).collect()
    });
    let lines = text.lines().zip(1..).filter(|(line, _)| !line.is_empty());
    lines
        .map(|(line, row)| {
            let mut fields = line.split("::");
            match (fields.next(), fields.next(), fields.next()) {
                (Some(id), Some(title), genres) => {
                    Ok((id.to_owned(), Label::new(Some(title.to_owned()), genres)))
                }
                _ => Err(Error::Row {
                    path: movies.shown(),
                    row,
                    problem: format!("expected id::title::genres, found `{line}`"),
                }),
            }
        })
        .collect()
}
