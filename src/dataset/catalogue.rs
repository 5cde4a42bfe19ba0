//! The users' and items' own ids ↔ the numbers that the policy uses.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use polars::prelude::*;
use rayon::prelude::*;

use super::Dataset;
use super::parquet::{column_names, read_columns};
use super::tables::{ACTIONS, CONTEXTS, numbers, wrong_type};
use crate::error::{Error, Result};

/// The column of item ids in `actions.parquet`, and the default elsewhere.
pub const ITEM_ID: &str = "item_id";

/// The column of user ids in `contexts.parquet`.
pub(crate) const USER_ID: &str = "user_id";

const TITLE: &str = "title";
const GROUP: &str = "group";

/// The ids of users or of items, each once: id ↔ number.
#[derive(Clone, Debug)]
pub struct Ids {
    /// The table that holds them.
    path: PathBuf,
    kind: &'static str,
    /// Integers or text, as in the log.
    column: Column,
    texts: StringChunked,
    /// Numbers by rising text.
    order: Vec<u32>,
}

impl Ids {
    /// The column `name` of `table`, which was read from `path`; row i has number i.
    ///
    /// # Errors
    /// [`Error::File`] if the column holds an id twice or an empty cell.
    pub(crate) fn new(
        table: &DataFrame,
        name: &str,
        kind: &'static str,
        path: &Path,
    ) -> Result<Self> {
        let texts = as_text(table, name, path)?.rechunk().into_owned();
        let mut sorted: Vec<(&str, u32)> =
            texts.iter().map(Option::unwrap_or_default).zip(0..).collect();
        sorted.par_sort_unstable();
        if sorted.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err(Error::file(path, format!("column `{name}` holds an id twice")));
        }
        let order = sorted.into_iter().map(|(_, number)| number).collect();
        let column = table.column(name).map_err(|error| Error::library(name, error))?.clone();
        Ok(Self { path: path.to_owned(), kind, column, texts, order })
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// True if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The id with a number.
    ///
    /// # Panics
    /// If there is no such number.
    #[must_use]
    pub fn id(&self, number: u32) -> &str {
        self.texts.get(number as usize).unwrap_or_default()
    }

    /// The number of an id, if the id is there.
    #[must_use]
    pub fn find(&self, id: &str) -> Option<u32> {
        let at = self.order.binary_search_by(|&number| self.id(number).cmp(id)).ok()?;
        Some(self.order[at])
    }

    /// The number of an id.
    ///
    /// # Errors
    /// [`Error::UnknownId`].
    pub fn number(&self, id: &str) -> Result<u32> {
        self.find(id).ok_or_else(|| Error::UnknownId {
            path: self.path.clone(),
            kind: self.kind,
            id: id.into(),
        })
    }

    /// All ids, by number.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(Option::unwrap_or_default)
    }

    /// The ids by number, integers or text as in the log.
    #[must_use]
    pub fn column(&self) -> &Column {
        &self.column
    }
}

/// What is said of an item.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) title: Option<String>,
    pub(crate) group: Option<String>,
}

impl Label {
    /// A title and the groups of an item, as `Action|Adventure`: the first of them is its group.
    pub(crate) fn new(title: Option<String>, groups: Option<&str>) -> Self {
        let group = groups.and_then(|groups| groups.split('|').next()).map(str::trim);
        Self { title, group: group.filter(|group| !group.is_empty()).map(str::to_owned) }
    }

    /// The columns of titles and of groups; none where no label has one.
    pub(crate) fn columns(labels: &[Option<&Self>]) -> [Option<Column>; 2] {
        let column = |name: &str, of: fn(&Self) -> Option<&str>| {
            let texts: Vec<Option<&str>> = labels.iter().map(|label| label.and_then(of)).collect();
            texts.iter().any(Option::is_some).then(|| Column::new(name.into(), texts))
        };
        [
            column(TITLE, |label| label.title.as_deref()),
            column(GROUP, |label| label.group.as_deref()),
        ]
    }
}

/// The items of a catalogue: their ids, and their titles and groups where there are any.
#[derive(Clone, Debug)]
pub struct Items {
    /// Row i is action i.
    pub ids: Ids,
    titles: Option<Column>,
    groups: Option<Column>,
}

impl Items {
    /// The columns `item_id` and, if there, `title` and `group` of `table`, which was read from
    /// `path`.
    ///
    /// # Errors
    /// [`Error::File`] if a column is not what it should be.
    pub(crate) fn new(table: &DataFrame, path: &Path) -> Result<Self> {
        let texts = |name: &str| {
            let column = table.column(name).ok().cloned();
            if let Some(column) = &column {
                let series = column.as_materialized_series();
                series.str().map_err(|_| wrong_type(path, series, "text"))?;
            }
            Ok::<_, Error>(column)
        };
        let (titles, groups) = (texts(TITLE)?, texts(GROUP)?);
        Ok(Self { ids: Ids::new(table, ITEM_ID, "item", path)?, titles, groups })
    }

    /// True if there are titles.
    #[must_use]
    pub fn has_titles(&self) -> bool {
        self.titles.is_some()
    }

    /// The title of an action's item, where there is one.
    #[must_use]
    pub fn title(&self, action: u32) -> Option<&str> {
        self.titles.as_ref()?.str().ok()?.get(action as usize)
    }

    /// True if there are groups.
    #[must_use]
    pub fn has_groups(&self) -> bool {
        self.groups.is_some()
    }

    /// The group of an action's item, where there is one.
    #[must_use]
    pub fn group(&self, action: u32) -> Option<&str> {
        self.groups.as_ref()?.str().ok()?.get(action as usize)
    }

    /// Takes titles and groups from `labels`, by id. Where no item has a title there, or none has a
    /// group, the titles or the groups stay what they are.
    pub(crate) fn label(&mut self, labels: &HashMap<String, Label>) {
        let found: Vec<Option<&Label>> = self.ids.iter().map(|id| labels.get(id)).collect();
        let [titles, groups] = Label::columns(&found);
        self.titles = titles.or(self.titles.take());
        self.groups = groups.or(self.groups.take());
    }

    /// A table of what is here: `item_id` and, where there are any, `title` and `group`.
    ///
    /// # Errors
    /// Never on items of this crate; polars has no way to say so.
    pub fn table(&self) -> Result<DataFrame> {
        let columns = [Some(self.ids.column.clone()), self.titles.clone(), self.groups.clone()];
        DataFrame::new_infer_height(columns.into_iter().flatten().collect())
            .map_err(|error| Error::library(ACTIONS, error))
    }
}

/// The ids of a prepared folder.
#[derive(Clone, Debug)]
pub struct Catalogue {
    /// The users, in the order of their contexts.
    pub users: Ids,
    /// The items; row i is action i.
    pub items: Items,
    /// The context of each user: the last one of several, which holds the most of what is known.
    pub contexts: Vec<u32>,
}

impl Catalogue {
    /// Reads `contexts.parquet` and `actions.parquet` in `folder`.
    ///
    /// # Errors
    /// An error naming the file that is missing or damaged and the column at fault, or the column in
    /// which an id occurs twice.
    pub fn read(folder: &Path) -> Result<Self> {
        let (contexts_path, actions_path) = (folder.join(CONTEXTS), folder.join(ACTIONS));
        let (table, user_ids) = ids(&contexts_path, "context", USER_ID)?;
        let repeated = has_splits(&contexts_path)?;
        let last = |context: &u32| {
            let at = *context as usize;
            !repeated || user_ids.get(at + 1) != Some(&user_ids[at])
        };
        #[allow(clippy::cast_possible_truncation, reason = "contexts are numbered by u32")]
        let contexts: Vec<u32> = (0..user_ids.len() as u32).filter(last).collect();
        let rows = IdxCa::from_vec("".into(), contexts.clone());
        let users = table.take(&rows).map_err(|error| Error::library(CONTEXTS, error))?;
        let users = Ids::new(&users, USER_ID, "user", &contexts_path)?;

        ids(&actions_path, "action", ITEM_ID)?;
        let names = column_names(&actions_path)?;
        let mut columns = vec![ITEM_ID, TITLE, GROUP];
        columns.retain(|column| names.iter().any(|name| name == column));
        let table = read_columns(&actions_path, &columns)?;
        Ok(Self { users, items: Items::new(&table, &actions_path)?, contexts })
    }

    /// The context of a user, the last one of several.
    ///
    /// # Errors
    /// [`Error::UnknownId`].
    pub fn context_of(&self, user_id: &str) -> Result<u32> {
        Ok(self.contexts[self.users.number(user_id)? as usize])
    }
}

/// True if the contexts in the table have splits, so that a user may have several.
fn has_splits(path: &Path) -> Result<bool> {
    Ok(column_names(path)?.iter().any(|name| name == "split"))
}

/// A table whose `number` column counts its rows from 0, and its ids as text.
fn ids(path: &Path, number: &str, id: &str) -> Result<(DataFrame, Vec<String>)> {
    let table = read_columns(path, &[number, id])?;
    if numbers(&table, number, path)?.into_iter().ne((0..).take(table.height())) {
        return Err(Error::file(path, format!("column `{number}` does not count its rows from 0")));
    }
    let texts = id_texts(&table, id, path)?;
    Ok((table, texts))
}

/// The ids in column `id` of `table`, which was read from `path`, as text.
pub(super) fn id_texts(table: &DataFrame, id: &str, path: &Path) -> Result<Vec<String>> {
    Ok(as_text(table, id, path)?.iter().flatten().map(ToOwned::to_owned).collect())
}

/// The column `id` of `table`, which was read from `path`: integers or text without empty cells, as
/// text.
pub(crate) fn as_text(table: &DataFrame, id: &str, path: &Path) -> Result<StringChunked> {
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
    Ok(texts.clone())
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
    Ok(ids(&folder.join(CONTEXTS), "context", USER_ID)?.1)
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
        assert_eq!(catalogue.items.ids.number("12").unwrap(), 2);
        assert_eq!(catalogue.items.ids.id(0), "70");
        let title = |action| catalogue.items.title(action);
        assert_eq!((title(0), title(1)), (Some("Heat"), None));
        let message = catalogue.context_of("carol").unwrap_err().to_string();
        assert!(message.contains("contexts.parquet: no user `carol`"), "{message}");
        let message = catalogue.items.ids.number("13").unwrap_err().to_string();
        assert!(message.contains("actions.parquet: no item `13`"), "{message}");
    }
}
