//! A table of items → the title and the group of each.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::PathBuf;

use super::bytes::Packed;
use super::table::{Table, ids, texts};
use crate::dataset::{Items, Label};
use crate::error::{Error, Result, listed};

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
            listed(&table.names)
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

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use polars::prelude::*;

    use super::*;

    /// The items 30, 10 and 20, the first of which has a title.
    fn items() -> Items {
        let table = DataFrame::new_infer_height(vec![
            Column::new("item_id".into(), [30_i64, 10, 20]),
            Column::new("title".into(), [Some("Old"), None, None]),
        ]);
        Items::new(&table.unwrap(), "items.parquet".as_ref()).unwrap()
    }

    fn labels(items: &Items) -> Vec<(Option<&str>, Option<&str>)> {
        (0..3).map(|action| (items.title(action), items.group(action))).collect()
    }

    /// The source in a file with these bytes, with the usual columns.
    fn source(name: &str, bytes: impl AsRef<[u8]>) -> (tempfile::TempDir, ItemSource) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs_err::write(&path, bytes).unwrap();
        let item_column = "item_id".into();
        (folder, ItemSource { path, item_column, title_column: None, group_column: None })
    }

    fn labelled(source: ItemSource) -> Result<(Items, usize)> {
        let mut items = items();
        let ignored = ItemTable::read(source)?.label(&mut items)?;
        Ok((items, ignored))
    }

    fn parquet(columns: Vec<Column>) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut table = DataFrame::new_infer_height(columns).unwrap();
        ParquetWriter::new(&mut bytes).finish(&mut table).unwrap();
        bytes
    }

    #[test]
    fn items_are_labelled_by_id_from_text_and_from_parquet() {
        let text = "group,item_id,title\n Crime |Drama,10,\"Heat, again\"\n|x,30,\n,7,gone\n";
        let mut gzipped = GzEncoder::new(Vec::new(), Compression::fast());
        gzipped
            .write_all(text.replace("\"Heat, again\"", "Heat; again").replace(',', "\t").as_bytes())
            .unwrap();
        let gzipped = gzipped.finish().unwrap();
        let typed = parquet(vec![
            Column::new("group".into(), [Some("Crime"), None, None]),
            Column::new("item_id".into(), [10_u32, 30, 7]),
            Column::new("title".into(), ["Heat, again", "", "gone"]),
        ]);
        for (name, bytes, title) in [
            ("items.csv", text.as_bytes(), "Heat, again"),
            ("items.tsv.gz", &gzipped, "Heat; again"),
            ("items.parquet", &typed, "Heat, again"),
        ] {
            let (_folder, source) = source(name, bytes);
            let (items, ignored) = labelled(source).unwrap();
            assert_eq!(labels(&items), [(None, None), (Some(title), Some("Crime")), (None, None)]);
            assert_eq!(ignored, 1, "{name}");
            // As a bundle keeps them.
            let again = Items::new(&items.table().unwrap(), "items.parquet".as_ref()).unwrap();
            assert_eq!(labels(&again), labels(&items));
        }
    }

    #[test]
    fn groups_alone_leave_the_titles() {
        let text = "what,kind\n30,Drama\n20,7\n30,Drama\n";
        let (_folder, mut source) = source("items.csv", text);
        (source.item_column, source.group_column) = ("what".into(), Some("kind".into()));
        let (items, ignored) = labelled(source).unwrap();
        let expected = [(Some("Old"), Some("Drama")), (None, None), (None, Some("7"))];
        assert_eq!((labels(&items), ignored), (expected.to_vec(), 0));
    }

    #[test]
    fn what_is_wrong_with_a_table_of_items_is_named() {
        let named = |title: &str, group: &str, text: &str| {
            let (_folder, mut source) = source("items.csv", text);
            let given = |name: &str| (!name.is_empty()).then(|| name.to_owned());
            (source.title_column, source.group_column) = (given(title), given(group));
            let message = labelled(source).unwrap_err().to_string();
            assert!(message.contains("items.csv") && !message.contains('\n'), "{message}");
            message
        };
        for (title, group, text, said) in [
            ("", "", "id,title\n10,x\n", "no column `item_id`; the columns are id, title"),
            ("name", "", "item_id,title\n10,x\n", "no column `name`"),
            ("", "kind", "item_id,title\n10,x\n", "no column `kind`"),
            (
                "",
                "",
                "item_id,name\n10,x\n",
                "--title-column or --group-column; the columns are item_id, name",
            ),
            (
                "",
                "",
                "item_id,title\n10,x\n20,y\n10,z\n",
                "row 3: item `10` has another title or group in row 1",
            ),
            ("", "", "item_id,title\n10,x\n,y\n", "row 2: column `item_id`: expected an id"),
            ("", "", "item_id,title\n10,x,y\n", "row 1: expected 2 fields, found 3"),
            (
                "",
                "",
                "item_id,title\na,x\nb,y\n",
                "none of its 2 ids (`a`) is an item of the log (`30`)",
            ),
            ("", "", "item_id,title\n", "none of its 0 ids is an item of the log"),
            ("", "", "", "is empty"),
        ] {
            let message = named(title, group, text);
            assert!(message.contains(said), "{message}");
        }
        let ids = Column::new("item_id".into(), [10_i32]);
        let halves = Column::new("title".into(), [0.5]);
        let (_folder, source) = source("items.parquet", parquet(vec![ids, halves]));
        let message = labelled(source).unwrap_err().to_string();
        assert!(
            message.contains("column `title`: expected integers or text, found f64"),
            "{message}"
        );
    }
}
