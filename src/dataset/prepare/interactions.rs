//! The distinct pairs of a log, as numbers: what reading makes and splitting takes.

use std::collections::HashMap;

use polars::prelude::*;

use crate::dataset::{ActionSets, Label, Split};
use crate::error::{Error, Result};

/// Distinct pairs of users and items, numbered by ascending id (of integers where every id is one,
/// of text otherwise).
#[derive(Clone, Debug)]
pub struct Interactions {
    /// Ids of the users, ascending.
    pub(super) users: Series,
    /// Ids of the items, ascending.
    pub(super) items: Series,
    /// Title and group of each item, where the input has any at all.
    pub(super) labels: Option<Vec<Label>>,
    /// The items of each user, by their rows in `items`.
    pub(super) items_of: ActionSets,
    /// When each pair of `items_of` last happened (first, with [`Source::first_times`](super::Source)), in seconds since 1970, if it was asked for.
    pub(super) times: Option<Vec<i64>>,
    /// The [`mark`]s of the files that hold each pair of `items_of`, if the files are split already.
    pub(super) files: Option<Vec<u8>>,
}

/// The mark of the file for `split`; a pair that several files hold has the sum of theirs.
pub(super) fn mark(split: Split) -> u8 {
    1 << split as u8
}

/// True if `marks` say that the file for `split` holds the pair.
pub(super) fn in_file(marks: u8, split: Split) -> bool {
    marks & mark(split) != 0
}

impl Interactions {
    /// Sets each item's title and group by its id.
    pub(super) fn set_labels(&mut self, labels: &HashMap<String, Label>) -> Result<()> {
        let ids = self.items.cast(&DataType::String);
        let found = ids.and_then(|ids| {
            let label = |id: Option<&str>| labels.get(id?).cloned();
            Ok(ids.str()?.iter().map(|id| label(id).unwrap_or_default()).collect())
        });
        self.labels = Some(found.map_err(|error| Error::library("matching titles", error))?);
        Ok(())
    }
}
