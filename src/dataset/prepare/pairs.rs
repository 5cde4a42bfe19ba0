//! Batches of rows → distinct pairs of numbers → the interactions that the filters keep.

use std::path::{Path, PathBuf};

use polars::prelude::*;
use rayon::prelude::*;

use super::filter::Filters;
use super::ids::Numbered;
use super::interactions::Interactions;
use super::moment;
use super::rows::{BadRows, Batch, Columns, Wanted as _};
use crate::dataset::ActionSets;
use crate::error::{Error, Result};
use crate::interrupt;

/// Repeated pairs are dropped whenever there are twice as many as when they last were, and not
/// before there are so many: 2²⁶ are 512 MiB.
const FIRST_SWEEP: usize = 1 << 26;

/// What a cell of a column of times holds.
const TIME: &str = "a time, as a number of seconds, milli-, micro- or nanoseconds since 1970, or as in \
                    2024-01-31 or 2024-01-31T17:05:00Z";

/// What programs write where there is no value.
const NO_VALUE: [&str; 7] = ["NULL", "null", "None", "NaN", "nan", "NA", "<NA>"];

/// The interactions of a log while it is read: 8 bytes for each different pair, and 8 more for its
/// time where times are asked for.
pub(super) struct Pairs<'a> {
    filters: &'a Filters,
    users: Numbered,
    items: Numbered,
    /// A user's number above an item's.
    seen: Vec<u64>,
    /// When each pair of `seen` happened; empty where no time is asked for.
    times: Vec<i64>,
    /// The first of a pair's times counts, not the last.
    first_times: bool,
    sweep_at: usize,
    rows: u64,
    kept_rows: u64,
    /// The rows whose user, or item, is each word of [`NO_VALUE`].
    no_value: [[u64; NO_VALUE.len()]; 2],
}

impl<'a> Pairs<'a> {
    pub(super) fn new(filters: &'a Filters, first_times: bool) -> Self {
        Self {
            filters,
            users: Numbered::default(),
            items: Numbered::default(),
            seen: Vec::new(),
            times: Vec::new(),
            first_times,
            sweep_at: FIRST_SWEEP,
            rows: 0,
            kept_rows: 0,
            no_value: Default::default(),
        }
    }

    /// Takes the rows in `batch` of the file at `path`, but for those that are `bad`.
    ///
    /// # Errors
    /// [`Error::Cell`] for the first cell that cannot be read, unless its row may be skipped;
    /// [`Error::Interrupted`].
    pub(super) fn add(
        &mut self,
        path: &Path,
        columns: &Columns,
        batch: &Batch,
        bad: &mut BadRows,
    ) -> Result<()> {
        interrupt::check()?;
        let (keep, times) = self.keep(path, columns, batch, bad)?;
        let (users, items) = rayon::join(
            || self.users.number(&batch.columns[0], &keep),
            || self.items.number(&batch.columns[1], &keep),
        );
        for (column, counts) in batch.columns.iter().zip(&mut self.no_value) {
            count_no_value(column, &keep, counts);
        }
        let pairs = users?.into_iter().zip(items?);
        self.seen.extend(pairs.map(|(user, item)| u64::from(user) << 32 | u64::from(item)));
        let kept = times.into_iter().zip(&keep).filter(|(_, keep)| **keep);
        self.times.extend(kept.map(|(time, _)| time));
        self.rows += keep.len() as u64;
        self.kept_rows += keep.iter().filter(|keep| **keep).count() as u64;
        if self.seen.len() >= self.sweep_at {
            self.sweep();
            self.sweep_at = FIRST_SWEEP.max(2 * self.seen.len());
        }
        Ok(())
    }

    /// Which rows are readable interactions and, if times are asked for, when each row happened.
    fn keep(
        &self,
        path: &Path,
        columns: &Columns,
        batch: &Batch,
        skipped: &mut BadRows,
    ) -> Result<(Vec<bool>, Vec<i64>)> {
        let wrap = |error| Error::reading(path, error);
        let mut keep = vec![true; batch.columns[0].len()];
        // Row, column and what the cell should hold.
        let mut bad: Vec<(usize, usize, &str)> = Vec::new();
        for (at, column) in batch.columns[..2].iter().enumerate() {
            if let Ok(ids) = column.str() {
                let rows = ids.iter().enumerate().filter(|(_, id)| id.is_none_or(str::is_empty));
                bad.extend(rows.map(|(row, _)| (row, at, "an id")));
            } else if column.null_count() > 0 {
                let nulls = column.is_null();
                let rows = nulls.iter().enumerate().filter(|(_, null)| *null == Some(true));
                bad.extend(rows.map(|(row, _)| (row, at, "an id")));
            }
        }
        if let Some(least) = self.filters.min_rating {
            let ratings = &batch.columns[2];
            // 4.1 as f32 is below 4.1, and not below 4.1 as f32.
            #[allow(clippy::cast_possible_truncation, reason = "as precise as the ratings")]
            let least = match ratings.dtype() {
                DataType::Float32 => f64::from(least as f32),
                _ => least,
            };
            let ratings = ratings.cast(&DataType::Float64).map_err(wrap)?;
            let ratings = ratings.f64().map_err(wrap)?;
            for ((row, keep), rating) in keep.iter_mut().enumerate().zip(ratings.iter()) {
                match rating.filter(|rating| rating.is_finite()) {
                    Some(rating) => *keep = rating >= least,
                    None => bad.push((row, 2, "a finite number")),
                }
            }
        }
        let mut times = Vec::new();
        if columns.time.is_some() {
            let at = 2 + usize::from(columns.rating.is_some());
            for (row, time) in seconds(&batch.columns[at]).map_err(wrap)?.into_iter().enumerate() {
                if time.is_none() {
                    bad.push((row, at, TIME));
                }
                times.push(time.unwrap_or_default());
            }
        }
        if let (Some((_, value)), Some(column)) = (&columns.only, batch.columns.last()) {
            let cells = column.cast(&DataType::String).map_err(wrap)?;
            for (keep, cell) in keep.iter_mut().zip(cells.str().map_err(wrap)?.iter()) {
                *keep &= cell == Some(value);
            }
        }
        bad.sort_by_key(|(row, ..)| *row);
        bad.dedup_by_key(|(row, ..)| *row);
        for (at, column, expected) in bad {
            keep[at] = false;
            let found = batch.columns[column].get(at).ok().filter(|cell| !cell.is_null());
            skipped.skip(Error::Cell {
                path: path.to_owned(),
                row: batch.row(at),
                column: columns.names().nth(column).unwrap_or_default().to_owned(),
                expected,
                found: found.map_or_else(String::new, |cell| cell.str_value().to_string()),
            })?;
        }
        Ok((keep, times))
    }

    /// Sorts the pairs, each once, with the last of its times, or the first.
    fn sweep(&mut self) {
        if !self.times.is_empty() {
            // The complement of a time falls as the time rises, and is the time again in turn.
            let first_times = self.first_times;
            let place = |time: i64| if first_times { time } else { !time };
            let times = self.times.drain(..).map(place);
            let mut rows: Vec<_> = self.seen.drain(..).zip(times).collect();
            rows.par_sort_unstable();
            rows.dedup_by_key(|row| row.0);
            let rows = rows.into_iter().map(|(pair, time)| (pair, place(time)));
            (self.seen, self.times) = rows.unzip();
            return;
        }
        if self.seen.is_sorted_by_key(|pair| user(*pair)) {
            // Users are numbered as they come, so this is a log that comes by user.
            let of_users: Vec<&mut [u64]> =
                self.seen.chunk_by_mut(|a, b| user(*a) == user(*b)).collect();
            of_users.into_par_iter().for_each(<[u64]>::sort_unstable);
        } else {
            self.seen.par_sort_unstable();
        }
        self.seen.dedup();
    }

    /// The pairs, a row each: `user`, `item` and, if times are asked for, `time` in seconds since 1970.
    /// Thin users are dropped, thin items are not.
    ///
    /// # Errors
    /// [`Error::Library`].
    pub(super) fn table(mut self) -> Result<DataFrame> {
        self.sweep();
        let Self { filters, seen, times, users, items, .. } = self;
        let mut pairs = seen.clone();
        thin(&mut pairs, users.len(), user, filters.min_user_interactions);
        let ids = |ids: Numbered, name: &str, of: fn(u64) -> usize| {
            let used = vec![true; ids.len()];
            let (ids, ranks) = ids.ranked(&used);
            let ranks: Vec<u32> = pairs.iter().map(|pair| ranks[of(*pair)]).collect();
            Ok(ids.take_slice(&ranks)?.with_name(name.into()).into_column())
        };
        let mut columns: PolarsResult<Vec<Column>> =
            ids(users, "user", user).and_then(|users| Ok(vec![users, ids(items, "item", item)?]));
        if !times.is_empty()
            && let Ok(columns) = &mut columns
        {
            let time = |pair| times[seen.partition_point(|entry| entry < pair)];
            let times: Vec<i64> = pairs.iter().map(time).collect();
            columns.push(Column::new("time".into(), times));
        }
        let table = columns.and_then(DataFrame::new_infer_height);
        table.map_err(|error| Error::library("the different pairs", error))
    }

    /// Warns of ids in the log at `path` that may not be what they seem.
    fn warn(&self, path: &Path) {
        let path = path.display();
        let cure = "as pandas writes integers beside empty cells: drop rows without an id and cast to \
                    integers, for example with .astype('Int64')";
        for (ids, whose) in [(&self.users, "users"), (&self.items, "items")] {
            if ids.are_floats() {
                tracing::warn!("{path}: each id of the {whose} ends in `.0`, {cure}");
            }
            if let (count, Some(id)) = ids.twice() {
                tracing::warn!(
                    "{path}: {count} integers are two {whose} each, such as `{id}` and `{id}.0`; some ids \
                     end in `.0`, {cure}"
                );
            }
        }
        for (counts, one) in self.no_value.iter().zip(["user", "item"]) {
            for (word, count) in NO_VALUE.iter().zip(counts).filter(|(_, count)| **count > 0) {
                tracing::warn!(
                    "{path}: `{word}` is the {one} of {count} rows; if it means that the {one} is not known, \
                     drop these rows, or empty the cells and skip them with --skip-bad-rows {count}"
                );
            }
        }
    }

    /// Drops thin users and items and numbers what is left by ascending id; `path` is the log.
    ///
    /// # Errors
    /// [`Error::NothingLeft`] naming the first filter that nothing passes.
    pub(super) fn finish(mut self, path: PathBuf) -> Result<Interactions> {
        if self.rows == 0 {
            return Err(Error::file(path, "holds no rows"));
        }
        self.sweep();
        self.warn(&path);
        let Self { filters, seen: mut pairs, times, users, items, .. } = self;
        let latest: Vec<(u64, i64)> = pairs.iter().copied().zip(times).collect();
        let mut left = Left { path, before: self.rows };
        left.some(self.kept_rows, || match filters.min_rating {
            Some(least) => (format!("a rating of at least {least}"), "--min-rating"),
            None => (format!("`{}`", filters.rows), "--rows"),
        })?;
        left.some(pairs.len() as u64, || ("reading".into(), "--rows"))?;

        let least = filters.min_user_interactions;
        let thin_users = thin(&mut pairs, users.len(), user, least);
        left.some(pairs.len() as u64, || {
            (format!("at least {least} items per user"), "--min-user-interactions")
        })?;
        if let Some([thin, of]) = thin_users {
            let few = format!("have fewer than {least} items (--min-user-interactions)");
            tell(thin, of, &format!("{thin} of {of} users are left out: they {few}"));
        }
        let least = filters.min_item_interactions;
        let thin_items = thin(&mut pairs, items.len(), item, least);
        left.some(pairs.len() as u64, || {
            (format!("at least {least} users per item"), "--min-item-interactions")
        })?;
        if let Some([thin, of]) = thin_items {
            let few = format!("have fewer than {least} users (--min-item-interactions)");
            tell(thin, of, &format!("{thin} of {of} items are left out: they {few}"));
        }

        let (mut used_users, mut used_items) = (vec![false; users.len()], vec![false; items.len()]);
        for &pair in &pairs {
            used_users[user(pair)] = true;
            used_items[item(pair)] = true;
        }
        let (user_ids, user_ranks) = users.ranked(&used_users);
        let (item_ids, item_ranks) = items.ranked(&used_items);
        // Pairs are sorted by the users' numbers, so each user's are one slice.
        let mut slices = vec![&[][..]; user_ids.len()];
        for slice in pairs.chunk_by(|a, b| user(*a) == user(*b)) {
            slices[user_ranks[user(slice[0])] as usize] = slice;
        }
        let sizes: Vec<usize> = slices.iter().map(|slice| slice.len()).collect();
        let items_of = ActionSets::filled(&sizes, |rank, items| {
            for (to, pair) in items.iter_mut().zip(slices[rank as usize]) {
                *to = item_ranks[item(*pair)];
            }
        });
        let time = |pair| latest[latest.partition_point(|entry| entry.0 < pair)].1;
        let times = slices.par_iter().flat_map_iter(|slice| {
            let mut of_user: Vec<(u32, i64)> =
                slice.iter().map(|&pair| (item_ranks[item(pair)], time(pair))).collect();
            of_user.sort_unstable();
            of_user.into_iter().map(|(_, time)| time)
        });
        let times = (!latest.is_empty()).then(|| times.collect());
        let (users, items) = (user_ids, item_ids);
        Ok(Interactions { users, items, labels: None, items_of, times, files: None })
    }
}

/// Says that `some` of `all` are left out; a program that shows warnings alone hears of more than a tenth.
fn tell(some: usize, all: usize, said: &str) {
    if 10 * some > all {
        tracing::warn!("{said}");
    } else {
        tracing::info!("{said}");
    }
}

/// How many interactions the last step left.
struct Left {
    path: PathBuf,
    before: u64,
}

impl Left {
    /// Fails when a step, `filter` and the option that sets it, leaves nothing.
    fn some(&mut self, left: u64, filter: impl FnOnce() -> (String, &'static str)) -> Result<()> {
        if left == 0 {
            let (filter, knob) = filter();
            let (path, before) = (self.path.clone(), format!("{} interactions", self.before));
            return Err(Error::NothingLeft { path, filter, before, knob });
        }
        self.before = left;
        Ok(())
    }
}

fn user(pair: u64) -> usize {
    (pair >> 32) as usize
}

#[allow(clippy::cast_possible_truncation, reason = "the lower half")]
fn item(pair: u64) -> usize {
    pair as u32 as usize
}

/// Keeps the pairs of those users, or items, that are in at least `least` pairs. Says how many of how many it
/// dropped, if any.
fn thin(
    pairs: &mut Vec<u64>,
    len: usize,
    of: impl Fn(u64) -> usize,
    least: u32,
) -> Option<[usize; 2]> {
    let mut counts = vec![0; len];
    for pair in &*pairs {
        counts[of(*pair)] += 1;
    }
    pairs.retain(|pair| counts[of(*pair)] >= least);
    let dropped = counts.iter().filter(|count| (1..least).contains(*count)).count();
    (dropped > 0).then(|| [dropped, counts.iter().filter(|count| **count > 0).count()])
}

/// Adds the number of rows to `keep` whose id is each word of [`NO_VALUE`] to `counts`.
fn count_no_value(column: &Series, keep: &[bool], counts: &mut [u64; NO_VALUE.len()]) {
    let Ok(ids) = column.str() else { return };
    for id in ids.iter().zip(keep).filter(|(_, keep)| **keep).filter_map(|(id, _)| id) {
        // Most ids are told from all words by their first letter.
        if id.starts_with(['N', 'n', '<'])
            && let Some(word) = NO_VALUE.iter().position(|word| *word == id)
        {
            counts[word] += 1;
        }
    }
}

/// Seconds since 1970 of each cell, where it holds a time.
fn seconds(column: &Series) -> PolarsResult<Vec<Option<i64>>> {
    if column.dtype().is_temporal() {
        let times = column.cast(&DataType::Datetime(TimeUnit::Milliseconds, None))?;
        let times = times.cast(&DataType::Int64)?;
        return Ok(times.i64()?.iter().map(|time| Some(time?.div_euclid(1000))).collect());
    }
    if let Ok(cells) = column.str() {
        return Ok(cells.par_iter().map(|cell| moment::seconds(cell?)).collect());
    }
    let numbers = column.cast(&DataType::Float64)?;
    Ok(numbers.f64()?.iter().map(|number| moment::in_seconds(number?)).collect())
}
