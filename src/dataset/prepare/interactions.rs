//! Who did something with what: the numbers that sessions are cut from.

use std::collections::HashMap;
use std::path::PathBuf;

use polars::prelude::*;
use rayon::prelude::*;

use crate::dataset::ActionSets;
use crate::error::{Error, Result};

/// Distinct pairs of users and items, numbered by ascending id (of integers where every id is one,
/// of text otherwise).
#[derive(Clone, Debug)]
pub struct Interactions {
    /// The input, for messages.
    pub(super) path: PathBuf,
    /// Ids of the users, ascending.
    pub(super) users: Series,
    /// Ids of the items, ascending.
    pub(super) items: Series,
    /// Title of each item, where the input has titles at all.
    pub(super) titles: Option<Vec<Option<String>>>,
    /// The items of each user, by their rows in `items`.
    pub(super) items_of: ActionSets,
}

impl Interactions {
    /// From a table of distinct `user_id`, `item_id`.
    pub(super) fn new(path: PathBuf, table: &DataFrame) -> Result<Self> {
        let wrap = |error| Error::library(format!("numbering ids of {}", path.display()), error);
        let (users, user_rows) = number(table, "user_id").map_err(wrap)?;
        let (items, item_rows) = number(table, "item_id").map_err(wrap)?;
        let pairs = user_rows.into_iter().zip(item_rows);
        let items_of = ActionSets::from_pairs(users.len(), pairs);
        Ok(Self { path, users, items, titles: None, items_of })
    }

    /// Looks the items' titles up by id.
    pub(super) fn set_titles(&mut self, titles: &HashMap<String, String>) -> Result<()> {
        let ids = self.items.cast(&DataType::String);
        let ids = ids.and_then(|ids| {
            Ok(ids.str()?.iter().map(|id| titles.get(id?).cloned()).collect::<Vec<_>>())
        });
        self.titles = Some(ids.map_err(|error| Error::library("matching titles", error))?);
        Ok(())
    }
}

/// The distinct ids of a column, ascending, and where among them each row's id is.
fn number(table: &DataFrame, column: &str) -> PolarsResult<(Series, Vec<u32>)> {
    let rows = table.column(column)?.as_materialized_series().rechunk();
    let distinct = rows.unique()?.sort(SortOptions::default())?.rechunk();
    let places = if rows.dtype() == &DataType::Int64 {
        places(rows.i64()?.into_no_null_iter(), distinct.i64()?.into_no_null_iter())
    } else {
        places(rows.str()?.iter().flatten(), distinct.str()?.iter().flatten())
    };
    Ok((distinct, places))
}

fn places<T: Ord + Copy + Send + Sync>(
    rows: impl Iterator<Item = T>,
    distinct: impl Iterator<Item = T>,
) -> Vec<u32> {
    let (rows, distinct): (Vec<_>, Vec<_>) = (rows.collect(), distinct.collect());
    #[allow(clippy::cast_possible_truncation, reason = "polars counts rows in 32 bits")]
    rows.par_iter().map(|id| distinct.partition_point(|other| other < id) as u32).collect()
}
