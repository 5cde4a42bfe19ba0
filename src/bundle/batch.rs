//! A Parquet file of users in, a Parquet file of slates out, block by block, so that memory does not
//! grow with the number of users.
//!
//! A block is a fixed number of users, counted from the beginning of the input, and ends a row group.
//! So the same input gives the same bytes on any number of threads, and the parts ([`Part`])
//! [`join`](super::join()) to the whole, byte for byte.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use polars::prelude::*;
use serde::Serialize;

use super::request::Placed;
use super::table::slates;
use super::{Options, Recommender, Request, Who};
use crate::dataset::parquet::{batched, column_names, num_rows, pieces, read_columns};
use crate::dataset::{ITEM_ID, USER_ID, as_text};
use crate::error::{Error, Result};
use crate::files::write_atomic;

/// Users in a block.
const BLOCK: usize = 4096;

/// Users that are read at once: reading a part of a row group decodes what stands before it.
const READ: usize = 16 * BLOCK;

const ITEMS: &str = "items";
const CONTEXT: &str = "context";

/// The columns of slates.
pub(super) const SLATES: &[&str] = &[USER_ID, "rank", ITEM_ID, "score"];

/// The key of a [`Part`] in the metadata of its Parquet file; the whole has none.
pub(super) const PART_KEY: &str = "fast-slate.batch.part";

/// Slates for the users in a file, a row each: `user_id` (integers or text) and, for users who are not
/// in the bundle, `items` (a list of item ids, empty for a stranger; null for a user of the bundle) or
/// `context` (a list of D numbers).
///
/// The slates have a row for each item, in the order of the users: `user_id`, `rank` (`u32`, from 1),
/// `item_id`, `score` (`f32`).
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// The users.
    pub users: &'a Path,
    /// Where to write the slates; only slates are replaced.
    pub out: &'a Path,
    /// The part of the users to do.
    pub part: Part,
}

/// The i-th of n parts, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub(super) index: u32,
    pub(super) of: u32,
}

impl Default for Part {
    /// The whole.
    fn default() -> Self {
        Self { index: 1, of: 1 }
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').map(|(index, of)| (index.parse(), of.parse()));
        match numbers {
            Some((Ok(index), Ok(of))) if (1..=of).contains(&index) => Ok(Self { index, of }),
            _ => Err("expected i/n with i from 1 to n, as in 2/4".into()),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

impl Part {
    /// The rows of this part of `rows`: whole blocks.
    fn of(self, rows: usize) -> std::ops::Range<usize> {
        let blocks = rows.div_ceil(BLOCK);
        let start = |index: u32| (blocks * index as usize / self.of as usize * BLOCK).min(rows);
        start(self.index - 1)..start(self.index)
    }
}

/// What was answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Users answered.
    pub users: usize,
    /// Users of whom no action is known.
    pub cold: usize,
    /// Users for whom fewer than K items are left.
    pub short: usize,
    /// Item ids that the catalogue does not have.
    pub ignored: usize,
}

/// What stands beside the ids of users.
#[derive(Clone, Copy, Debug)]
enum Beside {
    Items,
    Context,
    Nothing,
}

impl Batch<'_> {
    /// Answers all users of the part; `progress` hears how many of how many are done.
    ///
    /// # Errors
    /// An error naming the file, row and column at fault; [`Error::File`] for an `out` that holds
    /// something else than slates; the errors of [`Recommender::recommend`]. No file appears then.
    pub fn write(
        &self,
        recommender: &Recommender,
        options: &Options,
        mut progress: impl FnMut(usize, usize),
    ) -> Result<Summary> {
        if self.out.extension().is_some_and(|extension| extension != "parquet") {
            let problem = "what is written is Parquet: expected a name that ends with .parquet";
            return Err(Error::file(self.out, problem));
        }
        let place = |path: &Path| path.canonicalize().ok();
        if place(self.out).is_some_and(|out| Some(out) == place(self.users)) {
            return Err(Error::file(self.out, "holds the users; give another name for the slates"));
        }
        may_replace(self.out)?;
        let beside = self.beside(recommender)?;
        let columns: &[&str] = match beside {
            Beside::Items => &[USER_ID, ITEMS],
            Beside::Context => &[USER_ID, CONTEXT],
            Beside::Nothing => &[USER_ID],
        };
        let all = num_rows(self.users)?;
        let rows = self.part.of(all);
        let (first, total) = (rows.start, rows.len());
        let failed = |error: PolarsError| Error::writing(self.out, error);
        let mut summary = Summary::default();
        progress(0, total);
        // With no row, for the types of the columns.
        let empty = match pieces(self.users, columns, 0..all.min(1), 1)?.next() {
            Some(head) => head?.clear(),
            None => read_columns(self.users, columns)?,
        };
        let schema = self.slates(&empty, &[], recommender)?.schema().clone();
        write_atomic(self.out, |file| {
            let part = (PART_KEY.to_owned(), self.part.to_string());
            let part = (self.part.of > 1).then_some(part).into_iter().collect();
            let mut writer = batched(file, &schema, part).map_err(failed)?;
            for piece in pieces(self.users, columns, rows, READ)? {
                let piece = piece?;
                for at in (0..piece.height()).step_by(BLOCK) {
                    #[allow(clippy::cast_possible_wrap, reason = "rows of a piece")]
                    let block = piece.slice(at as i64, BLOCK);
                    let above = first + summary.users;
                    let requests = self.requests(&block, beside, above, recommender)?;
                    let placed = recommender.place(&requests, options)?;
                    let slates = self.slates(&block, &placed, recommender)?;
                    if slates.height() > 0 {
                        writer.write_batch(&slates).map_err(failed)?;
                    }
                    summary.add(&placed);
                    progress(summary.users, total);
                }
            }
            writer.finish().map_err(failed)?;
            Ok(())
        })?;
        Ok(summary)
    }

    fn beside(&self, recommender: &Recommender) -> Result<Beside> {
        let names = column_names(self.users)?;
        let has = |name: &str| names.iter().any(|other| other == name);
        match (has(ITEMS), has(CONTEXT)) {
            (true, true) => {
                let problem = format!("has both `{ITEMS}` and `{CONTEXT}`; keep one of them");
                Err(Error::file(self.users, problem))
            }
            (true, false) => Ok(Beside::Items),
            (false, true) => Ok(Beside::Context),
            (false, false) if recommender.bundle().users.is_some() => Ok(Beside::Nothing),
            (false, false) => {
                let problem = format!(
                    "has no column `{ITEMS}` (lists of item ids) or `{CONTEXT}` (lists of numbers), \
                     and the bundle holds no histories: export it with --histories"
                );
                Err(Error::file(self.users, problem))
            }
        }
    }

    /// The requests of a block; `above` rows of the file stand before it.
    fn requests(
        &self,
        block: &DataFrame,
        beside: Beside,
        above: usize,
        recommender: &Recommender,
    ) -> Result<Vec<Request>> {
        let cell = |at: usize, column: &str, expected, found: &str| Error::Cell {
            path: self.users.to_owned(),
            row: (above + at) as u64 + 1,
            column: column.into(),
            expected,
            found: found.into(),
        };
        let lists = |name: &str, of: DataType, expected| {
            let column = block.column(name).map_err(|error| Error::library(name, error))?;
            // A cast would make a list of each single value.
            let cast = column.dtype().is_list().then(|| column.cast(&DataType::List(Box::new(of))));
            let lists = cast.and_then(Result::ok).ok_or_else(|| {
                let problem =
                    format!("column `{name}`: expected {expected}, found {}", column.dtype());
                Error::file(self.users, problem)
            })?;
            lists.list().cloned().map_err(|error| Error::library(name, error))
        };
        let user = |at: usize, id: Option<&str>| {
            let id = id.unwrap_or_default();
            let who = Who::User { id: id.to_owned(), newer: Vec::new() };
            let stranger = || cell(at, USER_ID, "a user of the bundle", id);
            recommender.knows(id).then_some(who).ok_or_else(stranger)
        };
        let who: Vec<Who> = match beside {
            Beside::Nothing => {
                let ids = as_text(block, USER_ID, self.users)?;
                ids.iter().enumerate().map(|(at, id)| user(at, id)).collect::<Result<_>>()?
            }
            Beside::Items => {
                let lists = lists(ITEMS, DataType::String, "lists of item ids")?;
                let user_ids = as_text(block, USER_ID, self.users)?;
                let who = (0..block.height()).map(|at| {
                    let Some(list) = lists.get_as_series(at) else {
                        return user(at, user_ids.get(at));
                    };
                    let ids = list.str().map_err(|error| Error::library(ITEMS, error))?;
                    let found = ids.iter().map(|id| id.map(str::to_owned));
                    let missing = || cell(at, ITEMS, "an item id", "null");
                    found.collect::<Option<_>>().map(Who::Items).ok_or_else(missing)
                });
                who.collect::<Result<_>>()?
            }
            Beside::Context => {
                let lists = lists(CONTEXT, DataType::Float32, "lists of numbers")?;
                let dim = recommender.context_dim();
                let who = (0..block.height()).map(|at| {
                    let numbers: Vec<f32> = match lists.get_as_series(at) {
                        None => Vec::new(),
                        Some(list) => {
                            let numbers = list.f32().map_err(|e| Error::library(CONTEXT, e))?;
                            numbers.iter().map(|number| number.unwrap_or(f32::NAN)).collect()
                        }
                    };
                    let finite = numbers.iter().all(|number| number.is_finite());
                    if numbers.len() != dim || !finite {
                        let found = format!("{numbers:?}");
                        let found: String = found.chars().take(40).collect();
                        return Err(cell(at, CONTEXT, "a finite number for each of D", &found));
                    }
                    Ok(Who::Context(numbers))
                });
                who.collect::<Result<_>>()?
            }
        };
        Ok(who.into_iter().map(Request::from).collect())
    }

    /// The table of a block's slates.
    fn slates(
        &self,
        block: &DataFrame,
        placed: &[Placed],
        recommender: &Recommender,
    ) -> Result<DataFrame> {
        let users = block.column(USER_ID);
        let table = users.and_then(|users| slates(users, placed, recommender));
        table.map_err(|error| Error::library(self.out.display().to_string(), error))
    }
}

/// Fails if there is something else than slates at `out`.
fn may_replace(out: &Path) -> Result<()> {
    // Opening a pipe would wait for a writer.
    let holds_slates = || out.is_file() && column_names(out).is_ok_and(|names| names == SLATES);
    if !out.exists() || holds_slates() {
        return Ok(());
    }
    let problem = format!(
        "is there already, and only a file of slates, with the columns {}, is replaced; give another \
         name",
        SLATES.join(", ")
    );
    Err(Error::file(out, problem))
}

impl Summary {
    fn add(&mut self, placed: &[Placed]) {
        let count = |is: fn(&Placed) -> bool| placed.iter().filter(|placed| is(placed)).count();
        self.users += placed.len();
        self.cold += count(|placed| placed.cold);
        self.short += count(|placed| placed.short);
        self.ignored += placed.iter().map(|placed| placed.ignored.len()).sum::<usize>();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_whole_blocks_and_make_the_whole() {
        for rows in [0, 1, BLOCK, BLOCK + 1, 10 * BLOCK - 1] {
            for of in [1, 2, 3, 7, 20] {
                let mut end = 0;
                for index in 1..=of {
                    let part = Part { index, of }.of(rows);
                    assert_eq!(part.start, end);
                    assert!(part.end == rows || part.end.is_multiple_of(BLOCK));
                    end = part.end;
                }
                assert_eq!(end, rows);
            }
        }
        assert_eq!("2/4".parse(), Ok(Part { index: 2, of: 4 }));
        for text in ["", "1", "0/4", "5/4", "1/0", "a/b", "-1/2"] {
            assert!(text.parse::<Part>().unwrap_err().contains("2/4"), "{text}");
        }
    }
}
