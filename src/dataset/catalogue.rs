//! The users' and items' own ids ↔ the numbers that the policy uses.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use polars::prelude::*;

use super::Dataset;
use super::parquet::{column_names, read_columns};
use super::tables::{ACTIONS, CONTEXTS, numbers, wrong_type};
use crate::error::{Error, Result};

/// The column of item ids in `actions.parquet`, and the default elsewhere.
pub const ITEM_ID: &str = "item_id";

/// Ids and titles of a data set's users and actions.
#[derive(Clone, Debug)]
pub struct Catalogue {
    contexts_path: PathBuf,
    actions_path: PathBuf,
    contexts: HashMap<String, u32>,
    user_ids: Vec<String>,
    actions: HashMap<String, u32>,
    item_ids: Vec<String>,
    titles: Vec<Option<String>>,
}

impl Catalogue {
    /// Reads `contexts.parquet` and `actions.parquet` in `folder`. Where a user has several contexts,
    /// the user's id stands for the last of them, which holds the most of what is known.
    ///
    /// # Errors
    /// An error naming the file that is missing or damaged and the column at fault, or the column in
    /// which an id occurs twice.
    pub fn read(folder: &Path) -> Result<Self> {
        let (contexts_path, actions_path) = (folder.join(CONTEXTS), folder.join(ACTIONS));
        let (_, user_ids) = ids(&contexts_path, "context", "user_id")?;
        let contexts = by_id(&user_ids, &contexts_path, "user_id", has_splits(&contexts_path)?)?;
        let (with_titles, item_ids) = ids(&actions_path, "action", ITEM_ID)?;
        let titles = if with_titles {
            let table = read_columns(&actions_path, &["title"])?;
            let column = &table.columns()[0];
            let texts = column
                .str()
                .map_err(|_| wrong_type(&actions_path, column.as_materialized_series(), "text"))?;
            texts.iter().map(|title| title.map(ToOwned::to_owned)).collect()
        } else {
            vec![None; item_ids.len()]
        };
        Ok(Self {
            contexts,
            actions: by_id(&item_ids, &actions_path, ITEM_ID, false)?,
            contexts_path,
            actions_path,
            user_ids,
            item_ids,
            titles,
        })
    }

    /// Ids of the users, each once, in the order of their contexts.
    pub fn user_ids(&self) -> impl Iterator<Item = &str> {
        self.user_ids.chunk_by(PartialEq::eq).map(|of_user| of_user[0].as_str())
    }

    /// P.
    #[must_use]
    pub fn num_actions(&self) -> usize {
        self.item_ids.len()
    }

    /// The context of a user, the last one of several.
    ///
    /// # Errors
    /// [`Error::UnknownId`].
    pub fn context_of(&self, user_id: &str) -> Result<u32> {
        self.contexts.get(user_id).copied().ok_or_else(|| Error::UnknownId {
            path: self.contexts_path.clone(),
            kind: "user",
            id: user_id.into(),
        })
    }

    /// The action of an item.
    ///
    /// # Errors
    /// [`Error::UnknownId`].
    pub fn action_of(&self, item_id: &str) -> Result<u32> {
        self.actions.get(item_id).copied().ok_or_else(|| Error::UnknownId {
            path: self.actions_path.clone(),
            kind: "item",
            id: item_id.into(),
        })
    }

    /// The id of an action's item.
    ///
    /// # Panics
    /// If there is no such action: compare [`num_actions`](Self::num_actions) with the model's.
    #[must_use]
    pub fn item_id(&self, action: u32) -> &str {
        &self.item_ids[action as usize]
    }

    /// The title of an action's item, where there is one.
    #[must_use]
    pub fn title(&self, action: u32) -> Option<&str> {
        self.titles.get(action as usize)?.as_deref()
    }
}

/// True if the contexts in the table have splits, so that a user may have several.
fn has_splits(path: &Path) -> Result<bool> {
    Ok(column_names(path)?.iter().any(|name| name == "split"))
}

/// The last row of each id. With `repeated`, an id may stand in several rows, one after the other.
fn by_id(
    ids: &[String],
    path: &Path,
    column: &str,
    repeated: bool,
) -> Result<HashMap<String, u32>> {
    let rows: HashMap<_, _> = ids.iter().cloned().zip(0..).collect();
    let expected = if repeated { ids.chunk_by(PartialEq::eq).count() } else { ids.len() };
    if rows.len() < expected {
        return Err(Error::file(path, format!("column `{column}` holds an id twice")));
    }
    Ok(rows)
}

/// The ids of a table whose `number` column counts its rows from 0, as text; and whether the table
/// has titles.
fn ids(path: &Path, number: &str, id: &str) -> Result<(bool, Vec<String>)> {
    let has_titles = column_names(path)?.iter().any(|name| name == "title");
    let table = read_columns(path, &[number, id])?;
    if numbers(&table, number, path)?.into_iter().ne((0..).take(table.height())) {
        return Err(Error::file(path, format!("column `{number}` does not count its rows from 0")));
    }
    Ok((has_titles, id_texts(&table, id, path)?))
}

/// The ids in column `id` of `table`, which was read from `path`, as text.
pub(super) fn id_texts(table: &DataFrame, id: &str, path: &Path) -> Result<Vec<String>> {
    let wrap = |error| Error::library(path.display().to_string(), error);
    let column = table.column(id).map_err(wrap)?;
    if !(column.dtype().is_integer() || *column.dtype() == DataType::String) {
        return Err(wrong_type(path, column.as_materialized_series(), "integers or text"));
    }
    let texts = column.cast(&DataType::String).map_err(wrap)?;
    let texts = texts.str().map_err(wrap)?;
    if texts.null_count() > 0 {
        return Err(Error::file(path, format!("column `{id}` has empty cells")));
    }
    Ok(texts.iter().flatten().map(ToOwned::to_owned).collect())
}

/// The ids of the items in `folder`, in the order of their actions, as text.
///
/// # Errors
/// An error naming `actions.parquet` where it is missing or damaged.
pub fn read_item_ids(folder: &Path) -> Result<Vec<String>> {
    Ok(ids(&folder.join(ACTIONS), "action", ITEM_ID)?.1)
}

impl Dataset {
    /// The ids of the items, in the order of their actions, as text.
    ///
    /// # Errors
    /// Never for a data set of [`assemble`](super::assemble).
    pub fn item_ids(&self) -> Result<Vec<String>> {
        id_texts(&self.actions, ITEM_ID, Path::new(ACTIONS))
    }
}

/// The ids of the users in `folder`, one for each context, as text.
///
/// # Errors
/// An error naming `contexts.parquet` where it is missing or damaged.
pub fn read_user_ids(folder: &Path) -> Result<Vec<String>> {
    Ok(ids(&folder.join(CONTEXTS), "context", "user_id")?.1)
}

#[cfg(test)]
mod tests {
    use super::super::tables::tests::written;
    use super::*;

    #[test]
    fn the_catalogue_translates_both_ways() {
        let (folder, _) = written();
        let catalogue = Catalogue::read(folder.path()).unwrap();
        assert_eq!(catalogue.context_of("bob").unwrap(), 1);
        assert_eq!(catalogue.action_of("12").unwrap(), 2);
        assert_eq!(catalogue.item_id(0), "70");
        assert_eq!((catalogue.title(0), catalogue.title(1)), (Some("Heat"), None));
        let message = catalogue.context_of("carol").unwrap_err().to_string();
        assert!(message.contains("contexts.parquet: no user `carol`"), "{message}");
        let message = catalogue.action_of("13").unwrap_err().to_string();
        assert!(message.contains("actions.parquet: no item `13`"), "{message}");
    }
}
