//! Rows ↔ a Parquet file, which polars, pandas and DuckDB read as it is.

use std::io::BufWriter;
use std::path::Path;

use fs_err as fs;
use polars::prelude::*;

use super::columns::{Build, Columns};
use super::segment::newer;
use super::{Exposure, FORMAT, Feedback};
use crate::bundle::Who;
use crate::dataset::parquet::{batched, metadata, num_rows, pieces};
use crate::error::{Error, Result};
use crate::files::write_atomic;

/// The key of the format in the metadata of a Parquet file.
pub const FORMAT_KEY: &str = "fast-slate.log.format";

/// Rows of a row group, which are in memory at once.
const GROUP: usize = 1 << 14;

/// A kind of rows.
pub(super) trait Row: Sized {
    /// The names of the columns.
    const COLUMNS: &'static [&'static str];

    fn table(rows: &[Self]) -> PolarsResult<DataFrame>;

    fn rows(columns: &Columns<'_>) -> Result<Vec<Self>>;

    fn check(&self) -> Result<()>;
}

/// Writes a file with all of `rows`, a row group after the other; the same rows make the same bytes.
///
/// # Errors
/// The first error of `rows`; an error naming the file, on a full disk for one. No file appears then.
pub(super) fn write<R: Row>(path: &Path, rows: impl Iterator<Item = Result<R>>) -> Result<()> {
    let failed = |error: PolarsError| Error::writing(path, error);
    let schema = R::table(&[]).map_err(failed)?.schema().clone();
    write_atomic(path, |file: &mut BufWriter<fs::File>| {
        let format = vec![(FORMAT_KEY.to_owned(), FORMAT.to_string())];
        let mut writer = batched(file, &schema, format).map_err(failed)?;
        let mut rows = rows.fuse();
        loop {
            let group = rows.by_ref().take(GROUP).collect::<Result<Vec<R>>>()?;
            if group.is_empty() {
                break;
            }
            writer.write_batch(&R::table(&group).map_err(failed)?).map_err(failed)?;
        }
        writer.finish().map_err(failed)?;
        Ok(())
    })
}

/// Reads the rows of a file, a part after the other.
///
/// # Errors
/// [`Error::File`] for a file of a newer format; an error naming the row or column that is not what it
/// should be.
pub(super) fn read<R: Row>(path: &Path) -> Result<impl Iterator<Item = Result<Vec<R>>>> {
    // A program that rewrites the file may drop its metadata; the columns are checked anyway.
    if let Some(format) = metadata(path, FORMAT_KEY)?
        && format != FORMAT.to_string()
    {
        return Err(Error::file(path, newer(&format)));
    }
    let pieces = pieces(path, R::COLUMNS, 0..num_rows(path)?, GROUP)?;
    let rows = pieces.scan(0, move |above, piece| {
        Some(piece.and_then(|table| {
            let columns = Columns::new(&table, path, *above);
            *above += table.height();
            let rows = R::rows(&columns)?;
            for (at, row) in rows.iter().enumerate() {
                row.check().map_err(|error| columns.refused(at, error.to_string()))?;
            }
            Ok(rows)
        }))
    });
    Ok(rows)
}

impl Row for Exposure {
    const COLUMNS: &'static [&'static str] = &[
        "request",
        "time",
        "bundle",
        "vectors",
        "retrieval",
        "user",
        "items",
        "context",
        "h",
        "z",
        "sigma",
        "exploring",
        "share",
        "k",
        "exclude",
        "exclude_seen",
        "filter",
        "allow",
        "deny",
        "filters",
        "slate",
        "scores",
        "shards_answered",
        "shards",
        "fallback",
    ];

    fn table(rows: &[Self]) -> PolarsResult<DataFrame> {
        let user = |row: &Self| match &row.who {
            Who::User { id, .. } => Some(id.clone()),
            Who::Items(_) | Who::Context(_) => None,
        };
        let items = |row: &Self| match &row.who {
            Who::Items(ids) | Who::User { newer: ids, .. } => ids.clone(),
            Who::Context(_) => Vec::new(),
        };
        let context = |row: &Self| match &row.who {
            Who::Context(context) => Some(context.clone()),
            Who::Items(_) | Who::User { .. } => None,
        };
        let build = Build(rows);
        DataFrame::new_infer_height(vec![
            build.values("request", |row| row.request.clone()),
            build.values("time", |row| row.time),
            build.values("bundle", |row| row.bundle.clone()),
            build.values("vectors", |row| row.vectors.clone()),
            build.values("retrieval", |row| row.retrieval.clone()),
            build.values("user", user),
            build.texts("items", items),
            build.numbers("context", context),
            build.numbers("h", |row| Some(row.h.clone())),
            build.numbers("z", |row| (row.sigma > 0.0).then(|| row.z.clone())),
            build.values("sigma", |row| row.sigma),
            build.values("exploring", |row| row.exploring),
            build.values("share", |row| row.share),
            build.values("k", |row| row.k),
            build.texts("exclude", |row| row.exclude.clone()),
            build.values("exclude_seen", |row| row.exclude_seen),
            build.values("filter", |row| row.filter.clone()),
            build.texts("allow", |row| row.allow.clone()),
            build.texts("deny", |row| row.deny.clone()),
            build.texts("filters", |row| row.filters.clone()),
            build.texts("slate", |row| row.slate.clone()),
            build.numbers("scores", |row| Some(row.scores.clone())),
            build.values("shards_answered", |row| row.shards_answered),
            build.values("shards", |row| row.shards),
            build.values("fallback", |row| row.fallback),
        ])
    }

    fn rows(columns: &Columns<'_>) -> Result<Vec<Self>> {
        let mut request = columns.text("request")?;
        let mut time = columns.number::<Int64Type>("time")?;
        let mut bundle = columns.text("bundle")?;
        let mut vectors = columns.text("vectors")?;
        let mut retrieval = columns.text("retrieval")?;
        let mut user = columns.optional_text("user")?;
        let mut items = columns.texts("items")?;
        let mut context = columns.optional_numbers("context")?;
        let mut h = columns.numbers("h")?;
        let mut z = columns.optional_numbers("z")?;
        let mut sigma = columns.number::<Float32Type>("sigma")?;
        let mut exploring = columns.truth("exploring")?;
        let mut share = columns.number::<Float32Type>("share")?;
        let mut k = columns.number::<UInt32Type>("k")?;
        let mut exclude = columns.texts("exclude")?;
        let mut exclude_seen = columns.truth("exclude_seen")?;
        let mut filter = columns.optional_text("filter")?;
        let mut allow = columns.texts("allow")?;
        let mut deny = columns.texts("deny")?;
        let mut filters = columns.texts("filters")?;
        let mut slate = columns.texts("slate")?;
        let mut scores = columns.numbers("scores")?;
        let mut shards_answered = columns.number::<UInt16Type>("shards_answered")?;
        let mut shards = columns.number::<UInt16Type>("shards")?;
        let mut fallback = columns.truth("fallback")?;
        let mut row = || {
            let (items, h) = (items.next()?, h.next()?);
            let who = match (user.next()?, context.next()?) {
                (Some(id), _) => Who::User { id, newer: items },
                (None, Some(context)) => Who::Context(context),
                (None, None) => Who::Items(items),
            };
            Some(Self {
                request: request.next()?,
                time: time.next()?,
                bundle: bundle.next()?,
                vectors: vectors.next()?,
                retrieval: retrieval.next()?,
                who,
                z: z.next()?.unwrap_or_else(|| h.clone()),
                h,
                sigma: sigma.next()?,
                exploring: exploring.next()?,
                share: share.next()?,
                k: k.next()?,
                exclude: exclude.next()?,
                exclude_seen: exclude_seen.next()?,
                filter: filter.next()?,
                allow: allow.next()?,
                deny: deny.next()?,
                filters: filters.next()?,
                slate: slate.next()?,
                scores: scores.next()?,
                shards_answered: shards_answered.next()?,
                shards: shards.next()?,
                fallback: fallback.next()?,
            })
        };
        Ok(std::iter::from_fn(&mut row).collect())
    }

    fn check(&self) -> Result<()> {
        self.check()
    }
}

impl Row for Feedback {
    const COLUMNS: &'static [&'static str] = &["request", "position", "value", "event", "time"];

    fn table(rows: &[Self]) -> PolarsResult<DataFrame> {
        let build = Build(rows);
        DataFrame::new_infer_height(vec![
            build.values("request", |row| row.request.clone()),
            build.values("position", |row| row.position),
            build.values("value", |row| row.value),
            build.values("event", |row| row.event.clone()),
            build.values("time", |row| row.time),
        ])
    }

    fn rows(columns: &Columns<'_>) -> Result<Vec<Self>> {
        let mut request = columns.text("request")?;
        let mut position = columns.number::<UInt32Type>("position")?;
        let mut value = columns.number::<Float64Type>("value")?;
        let mut event = columns.text("event")?;
        let mut time = columns.number::<Int64Type>("time")?;
        let mut row = || {
            Some(Self {
                request: request.next()?,
                position: position.next()?,
                value: value.next()?,
                event: event.next()?,
                time: time.next()?,
            })
        };
        Ok(std::iter::from_fn(&mut row).collect())
    }

    fn check(&self) -> Result<()> {
        self.check()
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{exposure, feedback};
    use super::*;

    fn put<R: Row + Clone>(path: &Path, rows: &[R]) {
        write(path, rows.iter().cloned().map(Ok)).unwrap();
    }

    fn all<R: Row>(path: &Path) -> Result<Vec<R>> {
        read::<R>(path)?
            .collect::<Result<Vec<_>>>()
            .map(|parts| parts.into_iter().flatten().collect())
    }

    #[test]
    fn rows_come_back_from_their_table_and_make_the_same_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let (path, again) = (folder.path().join("a.parquet"), folder.path().join("b.parquet"));
        for count in [0, 1, 50] {
            let exposures: Vec<Exposure> = (0..count).map(exposure).collect();
            put(&path, &exposures);
            assert_eq!(all::<Exposure>(&path).unwrap(), exposures);
            put(&again, &exposures);
            assert!(fs::read(&path).unwrap() == fs::read(&again).unwrap());
            let events: Vec<Feedback> = (0..count).map(feedback).collect();
            put(&path, &events);
            assert_eq!(all::<Feedback>(&path).unwrap(), events);
        }
        let long: Vec<Feedback> = (0..40_000).map(feedback).collect();
        put(&path, &long);
        assert_eq!(all::<Feedback>(&path).unwrap(), long);
        let columns = crate::dataset::parquet::column_names(&again).unwrap();
        assert_eq!(columns, Exposure::COLUMNS);
        let columns = crate::dataset::parquet::column_names(&path).unwrap();
        assert_eq!(columns, Feedback::COLUMNS);
    }

    #[test]
    fn a_table_that_was_changed_is_refused_where_it_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        let rows: Vec<Feedback> = (0..5).map(feedback).collect();
        let refused = |column: Column, format: &str| {
            let mut table = Feedback::table(&rows).unwrap();
            table.with_column(column).unwrap();
            let format = vec![(FORMAT_KEY.to_owned(), format.to_owned())];
            ParquetWriter::new(fs::File::create(&path).unwrap())
                .with_key_value_metadata(Some(KeyValueMetadata::from_static(format)))
                .finish(&mut table)
                .unwrap();
            all::<Feedback>(&path).unwrap_err().to_string()
        };
        let column = |values: [Option<f64>; 5]| Column::new("value".into(), values);
        let one = Some(1.0);
        let error = refused(column([one; 5]), "2");
        assert!(error.contains("a.parquet: is of format 2, which a newer"), "{error}");
        let error = refused(Column::new("value".into(), [1_i64; 5]), "1");
        assert!(error.contains("column `value`: expected f64, found i64"), "{error}");
        let error = refused(column([one, one, None, one, one]), "1");
        assert!(error.contains("row 3: column `value`: expected a value, found `null`"), "{error}");
        let error = refused(column([one, one, one, Some(f64::NAN), one]), "1");
        assert!(error.contains("row 4: log row `event-3`: expected a finite `value`"), "{error}");
    }
}
