//! A log of interactions → distinct pairs of numbered users and items.

use std::path::Path;

use super::bytes::Packed;
use super::filter::Filters;
use super::interactions::Interactions;
use super::pairs::Pairs;
use super::rows::{BadRows, Columns};
use super::source::Source;
use super::{movielens, parquet, text};
use crate::error::Result;
use crate::files::{digest_bytes, digest_file};

/// Reads and filters the interactions at `source`. Memory holds the ids and the different pairs of a
/// user and an item: 8 bytes a pair, 16 while they are sorted.
///
/// # Errors
/// An error naming the file: for a missing file or column, a row that cannot be read and may not be
/// skipped, a threshold without ratings, or a filter that leaves nothing.
pub fn read(source: &Source, filters: &Filters) -> Result<Interactions> {
    let files = source.files()?;
    if let [first, .., last] = files.as_slice() {
        let (number, first, last) = (files.len(), first.path.display(), last.path.display());
        tracing::info!("reading {number} files, from {first} to {last}");
    }
    let mut pairs = Pairs::new(filters, source.first_times);
    let mut bad = BadRows::up_to(filters.skip_bad_rows);
    let mut movies = None;
    for file in &files {
        let columns = if is_parquet(file) {
            let path = &file.path;
            parquet::for_each_batch(path, source, filters, |columns, batch| {
                pairs.add(path, columns, batch, &mut bad)
            })?
        } else {
            let find = |path: &Path, names: &[String]| Columns::find(source, filters, path, names);
            text::read(file, &mut bad, find, |path, columns, batch, bad| {
                pairs.add(path, columns, batch, bad)
            })?
        };
        let has_movies = |columns: Columns| columns.item == movielens::ITEM;
        movies = movies.or_else(|| has_movies(columns).then_some(file));
    }
    if let Some(first) = &bad.first {
        let skipped = bad.skipped;
        tracing::warn!("rows that cannot be read and were skipped: {skipped}; the first: {first}");
    }
    let path = match files.as_slice() {
        [file] => file.shown(),
        _ => source.path.clone(),
    };
    let mut interactions = pairs.finish(path)?;
    if let Some(labels) = movies.map(movielens::labels).transpose()?.flatten() {
        interactions.set_labels(&labels)?;
    }
    Ok(interactions)
}

fn is_parquet(file: &Packed) -> bool {
    file.name().ends_with(".parquet")
}

/// SHA-256 of the file of interactions, in hex; where there are several, or a file of titles, over
/// the names and digests of all.
///
/// # Errors
/// An I/O error naming the file, or a folder without one.
pub fn digest(source: &Source) -> Result<String> {
    let mut files = source.files()?;
    for name in movielens::TITLES {
        let titles = files.first().map(|file| file.sibling(name)).transpose()?.flatten();
        files.extend(titles.filter(|titles| titles.member.is_none()));
    }
    if let [file] = files.as_slice() {
        return digest_file(&file.path);
    }
    let mut all = String::new();
    for file in &files {
        all += &format!("{} {}\n", file.path.display(), digest_file(&file.path)?);
    }
    Ok(digest_bytes(all.as_bytes()))
}

#[cfg(test)]
mod tests;
