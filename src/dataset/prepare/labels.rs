//! A table of items → the title and the group of each.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::PathBuf;

use super::bytes::Packed;
use super::table::{Table, ids, texts};
use crate::dataset::{Items, Label};
use crate::error::{Error, Result};

/// A table of items, one row each.
#[derive(Clone, Debug)]
pub struct ItemSource {
    /// A .parquet, .csv or .tsv file (gzipped or not); it is held in memory as a whole.
    pub path: PathBuf,
    /// The column of item ids, as the log has them.
    pub item_column: String,
    /// The column of titles; none for `title`, where the table has it.
    pub title_column: Option<String>,
    /// The column of groups; none for `group`, where the table has it. Of `Action|Adventure` the group
    /// is `Action`.
    pub group_column: Option<String>,
}

/// Titles and groups by item id.
#[derive(Clone, Debug)]
pub struct ItemTable {
    source: ItemSource,
    labels: HashMap<String, Label>,
}

impl ItemTable {
    /// Reads the columns that `source` names.
    ///
    /// # Errors
    /// A file that is missing or damaged, a column that is missing or of another type, a row without an
    /// id, or one that says something else of an item than a row before it: each names the file.
    pub fn read(source: ItemSource) -> Result<Self> {
        fn wanted<'a>(given: Option<&'a String>, usual: &'a str) -> Wanted<'a> {
            given.map_or(Wanted::May(usual), |name| Wanted::Must(name))
        }
        let title = wanted(source.title_column.as_ref(), "title");
        let group = wanted(source.group_column.as_ref(), "group");
        let labels = labels(&Packed::file(&source.path), &source.item_column, title, group)?;
        Ok(Self { source, labels })
    }

    /// Gives `items` the titles and groups of this table; returns the number of ids here that no item
    /// has. Items that are not here lose theirs. Without any titles here, or any groups, `items` keep
    /// those that they have.
    ///
    /// # Errors
    /// [`Error::File`] if no item is here.
    pub fn label(&self, items: &mut Items) -> Result<usize> {
        let strangers = self.labels.keys().filter(|id| items.ids.find(id).is_none()).count();
        if strangers == self.labels.len() {
            let example = |id: Option<&str>| id.map_or_else(String::new, |id| format!(" (`{id}`)"));
            let problem = format!(
                "column `{}`: none of its {strangers} ids{} is an item of the log{}",
                self.source.item_column,
                example(self.labels.keys().min().map(String::as_str)),
                example(items.ids.iter().next()),
            );
            return Err(Error::file(&self.source.path, problem));
        }
        items.label(&self.labels);
        Ok(strangers)
    }
}

/// The name of a column.
#[derive(Clone, Copy)]
pub(super) enum Wanted<'a> {
    /// The table must have it.
    Must(&'a str),
    /// The table may have it.
    May(&'a str),
}

/// Reads titles and groups of the items in `file`, whose ids are in the column `item`.
///
/// # Errors
/// The errors of [`ItemTable::read`].
pub(super) fn labels(
    file: &Packed,
    item: &str,
    title: Wanted<'_>,
    group: Wanted<'_>,
) -> Result<HashMap<String, Label>> {
    let table = Table::open(file)?;
    let path = &table.path;
    let column = |wanted: Wanted<'_>| match wanted {
        Wanted::May(name) if !table.has(name) => Ok(None),
        Wanted::May(name) | Wanted::Must(name) => texts(path, &table.column(name)?).map(Some),
    };
    let rows = ids(path, &table.column(item)?)?;
    let (titles, groups) = (column(title)?, column(group)?);
    if titles.is_none() && groups.is_none() {
        let problem = format!(
            "expected titles or groups beside the ids in `{item}`; name their columns with \
             --title-column or --group-column; the columns are {}",
            table.names.join(", ")
        );
        return Err(Error::file(path, problem));
    }
    let mut labels: HashMap<String, (Label, u64)> = HashMap::with_capacity(rows.len());
    for (at, (id, row)) in rows.into_iter().enumerate() {
        let cell = |cells: &Option<Vec<Option<String>>>| cells.as_ref()?[at].clone();
        let label = Label::new(cell(&titles), cell(&groups).as_deref());
        match labels.entry(id) {
            Entry::Vacant(entry) => drop(entry.insert((label, row))),
            Entry::Occupied(entry) if entry.get().0 == label => {}
            Entry::Occupied(entry) => {
                let (id, earlier) = (entry.key(), entry.get().1);
                let problem = format!("item `{id}` has another title or group in row {earlier}");
                return Err(Error::Row { path: path.clone(), row, problem });
            }
        }
    }
    Ok(labels.into_iter().map(|(id, (label, _))| (id, label)).collect())
}
