//! A data set ↔ three Parquet files, which polars, pandas and DuckDB read as they are.
//!
//! | file | columns | rows |
//! |---|---|---|
//! | `interactions.parquet` | `context: u32`, `action: u32`, `hidden: bool`, `split: str`, perhaps `time: i64` | by context, action |
//! | `contexts.parquet` | `context: u32`, `user_id: i64 \| str`, perhaps `split: str` | row i is context i |
//! | `actions.parquet` | `action: u32`, `item_id: i64 \| str`, perhaps `title: str \| null`, `group: str \| null` | row i is action i |
//!
//! A user has one context, or, where `contexts.parquet` has splits, up to three, one after the other.
//!
//! Reading checks every number, whichever program wrote the files, so that no later code meets one
//! out of range. polars writes no checksums into Parquet: a flipped bit that leaves a valid table is
//! found by the digests in `prepare.toml`, not here.

use std::io::{BufWriter, Write as _};
use std::ops::Range;
use std::path::Path;

use fs_err as fs;
use polars::prelude::*;

use super::parquet::{batched, column_names, read_columns, row_groups, write_table};
use super::{ActionSets, Dataset, Sessions, Split, Times};
use crate::error::{Error, Result};

const INTERACTIONS: &str = "interactions.parquet";
const TIME: &str = "time";
pub(super) const CONTEXTS: &str = "contexts.parquet";
pub(super) const ACTIONS: &str = "actions.parquet";

/// The names of the three files.
pub const FILES: [&str; 3] = [INTERACTIONS, CONTEXTS, ACTIONS];

/// The least rows of a row group of interactions, except for the last. One group is in memory at a
/// time, when writing and when reading.
const ROW_GROUP: usize = 1 << 20;

/// Writes the three tables into an existing `folder`.
///
/// # Errors
/// An error naming the file that could not be written, on a full disk for one.
pub fn write(dataset: &Dataset, folder: &Path) -> Result<()> {
    let (sessions, times) = (&dataset.sessions, dataset.times.as_ref());
    write_interactions(sessions, times, &folder.join(INTERACTIONS), ROW_GROUP)?;
    write_table(&mut dataset.contexts.clone(), &folder.join(CONTEXTS))?;
    write_table(&mut dataset.actions.clone(), &folder.join(ACTIONS))
}

/// Reads the sessions in `folder`.
///
/// # Errors
/// An error naming the file that is missing or damaged, the column that is missing or of another
/// type, or the row that is out of order or out of range.
pub fn read_sessions(folder: &Path) -> Result<Sessions> {
    let num_contexts = read_columns(&folder.join(CONTEXTS), &["context"])?.height();
    let num_actions = read_columns(&folder.join(ACTIONS), &["action"])?.height();
    let path = folder.join(INTERACTIONS);
    let mut reading = Reading {
        path: &path,
        num_contexts,
        num_actions,
        rows: 0,
        above: 0,
        split: Vec::with_capacity(num_contexts),
        observed: ActionSets::none(),
        hidden: ActionSets::none(),
    };
    for table in row_groups(&path, &["context", "action", "hidden", "split"])? {
        reading.read(&table?)?;
    }
    reading.finish()
}

/// Reads the times of the interactions of the `sessions` in `folder`, if it has them.
///
/// # Errors
/// The errors of [`read_sessions`]; the order of the rows is not checked again.
pub fn read_times(folder: &Path, sessions: &Sessions) -> Result<Option<Times>> {
    let path = folder.join(INTERACTIONS);
    if !column_names(&path)?.iter().any(|name| name == TIME) {
        return Ok(None);
    }
    let mut times = Times {
        observed: Vec::with_capacity(sessions.observed.num_pairs()),
        hidden: Vec::with_capacity(sessions.hidden.num_pairs()),
    };
    for table in row_groups(&path, &["hidden", TIME])? {
        let table = table?;
        let [hidden, cells] = table.columns() else { continue };
        let (hidden, cells) = (hidden.as_materialized_series(), cells.as_materialized_series());
        let is_hidden = hidden.bool().map_err(|_| wrong_type(&path, hidden, "booleans"))?;
        let seconds = cells.i64().map_err(|_| wrong_type(&path, cells, "i64"))?;
        if cells.null_count() > 0 {
            return Err(wrong_type(&path, cells, "no empty cells"));
        }
        for (hidden, time) in is_hidden.iter().zip(seconds.into_no_null_iter()) {
            if hidden == Some(true) { &mut times.hidden } else { &mut times.observed }.push(time);
        }
    }
    let pairs = (sessions.observed.num_pairs(), sessions.hidden.num_pairs());
    if (times.observed.len(), times.hidden.len()) != pairs {
        return Err(Error::file(path, "holds other interactions than it did when it was opened"));
    }
    Ok(Some(times))
}

/// Sessions that grow row by row.
struct Reading<'a> {
    path: &'a Path,
    num_contexts: usize,
    num_actions: usize,
    /// Number of rows read.
    rows: u64,
    /// The action of the last row.
    above: u32,
    split: Vec<Split>,
    observed: ActionSets,
    hidden: ActionSets,
}

impl Reading<'_> {
    /// Reads the rows that come next.
    fn read(&mut self, table: &DataFrame) -> Result<()> {
        let contexts = numbers(table, "context", self.path)?;
        let actions = numbers(table, "action", self.path)?;
        let typed = |column: &str| {
            let column = table.column(column).map_err(|error| Error::library("", error))?;
            Ok::<_, Error>(column.as_materialized_series().clone())
        };
        let (hidden, splits) = (typed("hidden")?, typed("split")?);
        let hidden = hidden.bool().map_err(|_| wrong_type(self.path, &hidden, "booleans"))?;
        let splits = splits.str().map_err(|_| wrong_type(self.path, &splits, "text"))?;
        let rows = contexts.into_iter().zip(actions).zip(hidden.iter().zip(splits.iter()));
        for ((context, action), (hidden, split)) in rows {
            self.rows += 1;
            self.push(context, action, hidden, split.unwrap_or_default())?;
        }
        Ok(())
    }

    fn push(&mut self, context: u32, action: u32, hidden: Option<bool>, name: &str) -> Result<()> {
        let cell = |column: &str, expected, found: String| Error::Cell {
            path: self.path.to_owned(),
            row: self.rows,
            column: column.into(),
            expected,
            found,
        };
        let Some(here) = Split::ALL.into_iter().find(|split| split.name() == name) else {
            return Err(cell("split", "train, validation or test", name.into()));
        };
        let Some(hidden) = hidden else {
            return Err(cell("hidden", "true or false", String::new()));
        };
        if action as usize >= self.num_actions {
            return Err(cell("action", "a row of actions.parquet, from 0", action.to_string()));
        }
        // Contexts come in order, without gaps, each in one split, their actions ascending.
        if context as usize == self.split.len() && self.split.len() < self.num_contexts {
            self.split.push(here);
            self.observed.push_set();
            self.hidden.push_set();
        } else if context as usize + 1 != self.split.len() {
            let expected = "the same context as above, or the next row of contexts.parquet";
            return Err(cell("context", expected, context.to_string()));
        } else if self.split.last() != Some(&here) {
            return Err(cell("split", "the same split as above for the same context", name.into()));
        } else if self.above >= action {
            return Err(cell("action", "a greater action than above", action.to_string()));
        }
        self.above = action;
        if hidden { &mut self.hidden } else { &mut self.observed }.push(action);
        Ok(())
    }

    fn finish(self) -> Result<Sessions> {
        let Self { path, num_contexts, num_actions, split, observed, hidden, .. } = self;
        if split.len() < num_contexts {
            let problem = format!(
                "holds {} contexts, {CONTEXTS} beside it {num_contexts}: prepare the data again",
                split.len()
            );
            return Err(Error::file(path, problem));
        }
        Ok(Sessions { observed, hidden, split, num_actions })
    }
}

fn write_interactions(
    sessions: &Sessions,
    times: Option<&Times>,
    path: &Path,
    row_group: usize,
) -> Result<()> {
    let failed = |error| Error::writing(path, error);
    let mut file = BufWriter::new(fs::File::create(path)?);
    let schema = interactions(sessions, times, 0..0)?.schema().clone();
    let mut writer = batched(&mut file, &schema, Vec::new()).map_err(failed)?;
    let (mut start, mut rows) = (0, 0);
    for context in sessions.observed.contexts() {
        rows += sessions.observed.of(context).len() + sessions.hidden.of(context).len();
        let end = context + 1;
        if rows >= row_group || end as usize == sessions.num_contexts() {
            writer.write_batch(&interactions(sessions, times, start..end)?).map_err(failed)?;
            (start, rows) = (end, 0);
        }
    }
    writer.finish().map_err(failed)?;
    drop(writer);
    Ok(file.flush()?)
}

/// Makes the table of the pairs of some contexts, by context, then action.
fn interactions(
    sessions: &Sessions,
    times: Option<&Times>,
    contexts: Range<u32>,
) -> Result<DataFrame> {
    let (mut numbers, mut actions, mut hidden, mut splits) = (vec![], vec![], vec![], vec![]);
    let (mut pairs, mut seconds) = (Vec::new(), Vec::new());
    for context in contexts {
        let name = sessions.split[context as usize].name();
        pairs.clear();
        pairs.extend(sessions.observed.of(context).iter().map(|&action| (action, false)));
        pairs.extend(sessions.hidden.of(context).iter().map(|&action| (action, true)));
        if let Some(times) = times {
            let observed = sessions.observed.values_of(context, &times.observed);
            let of_pairs = observed.iter().chain(sessions.hidden.values_of(context, &times.hidden));
            let mut rows: Vec<_> = pairs.iter().zip(of_pairs).collect();
            rows.sort_unstable();
            seconds.extend(rows.into_iter().map(|(_, time)| *time));
        }
        pairs.sort_unstable();
        numbers.extend(std::iter::repeat_n(context, pairs.len()));
        splits.extend(std::iter::repeat_n(name, pairs.len()));
        actions.extend(pairs.iter().map(|pair| pair.0));
        hidden.extend(pairs.iter().map(|pair| pair.1));
    }
    let mut columns = vec![
        Column::new("context".into(), numbers),
        Column::new("action".into(), actions),
        Column::new("hidden".into(), hidden),
        Column::new("split".into(), splits),
    ];
    columns.extend(times.map(|_| Column::new(TIME.into(), seconds)));
    DataFrame::new_infer_height(columns).map_err(|error| Error::library(INTERACTIONS, error))
}

/// The numbers of a `u32` column without empty cells.
pub(crate) fn numbers(table: &DataFrame, column: &str, path: &Path) -> Result<Vec<u32>> {
    let column = table.column(column).map_err(|error| Error::library(column, error))?;
    let series = column.as_materialized_series();
    match series.u32() {
        Ok(numbers) if numbers.null_count() == 0 => Ok(numbers.into_no_null_iter().collect()),
        Ok(_) => Err(wrong_type(path, series, "no empty cells")),
        Err(_) => Err(wrong_type(path, series, "u32")),
    }
}

/// [`Error::File`]: a column does not hold what it should.
pub(crate) fn wrong_type(path: &Path, found: &Series, expected: &str) -> Error {
    let problem =
        format!("column `{}`: expected {expected}, found {}", found.name(), found.dtype());
    Error::file(path, problem)
}

#[cfg(test)]
pub(super) mod tests;
