//! Parquet files → their columns, whole or one row group after the other.

mod footer;
mod pages;

use std::io::{BufWriter, Cursor, Write};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use fs_err as fs;
use polars::io::mmap::MmapBytesReader;
use polars::io::parquet::write::BatchedWriter;
use polars::prelude::*;
use polars_parquet::read::{FileMetadata, infer_schema};
use polars_parquet::write::schema_to_metadata_key;

use crate::error::{Error, Result};

/// The most rows that are held at once; some writers make one group of all.
const ROWS: usize = 1 << 22;

/// The key of the types of columns in a file's own metadata.
const ARROW_SCHEMA: &str = "ARROW:schema";

/// Reads `columns`, in that order.
///
/// # Errors
/// A file that is missing or damaged, a column that is missing, or one of a type that this build of
/// polars cannot hold.
pub(crate) fn read_columns(path: &Path, columns: &[&str]) -> Result<DataFrame> {
    finish(checked(path, columns)?, path, columns)
}

/// Reads all columns of the file at `path` whose bytes are `bytes`.
///
/// # Errors
/// Bytes that are no Parquet, or a column of a type that this build of polars cannot hold.
pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<DataFrame> {
    let mut reader = reader(path, Cursor::new(bytes))?;
    let schema = guarded(path, || reader.schema())?;
    let names: Vec<String> = schema.iter_names().map(ToString::to_string).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    check_columns(&schema, path, &names)?;
    finish(reader, path, &names)
}

/// Writes a table into one file.
///
/// # Errors
/// An error naming the file, on a full disk for one.
pub(crate) fn write_table(table: &mut DataFrame, path: &Path) -> Result<()> {
    let mut file = BufWriter::new(fs::File::create(path)?);
    ParquetWriter::new(&mut file).finish(table).map_err(|error| Error::writing(path, error))?;
    Ok(file.flush()?)
}

/// A writer of one row group after the other, with `entries` in the file's own metadata. polars would say there
/// that texts are views, of which pandas reads no lists.
///
/// # Errors
/// Fails for columns that Parquet cannot hold.
pub(crate) fn batched<W: Write>(
    file: W,
    schema: &Schema,
    mut entries: Vec<(String, String)>,
) -> PolarsResult<BatchedWriter<W>> {
    let types = schema_to_metadata_key(&schema.to_arrow(CompatLevel::oldest()));
    entries.extend(types.value.map(|value| (types.key, value)));
    let metadata = Some(KeyValueMetadata::from_static(entries));
    ParquetWriter::new(file).with_key_value_metadata(metadata).batched(schema)
}

/// Number of rows.
///
/// # Errors
/// A file that is missing or damaged.
pub(crate) fn num_rows(path: &Path) -> Result<usize> {
    let mut reader = open(path)?;
    guarded(path, || reader.num_rows())
}

/// The value of `key` in the file's own metadata.
///
/// # Errors
/// A file that is missing or damaged.
pub(crate) fn metadata(path: &Path, key: &str) -> Result<Option<String>> {
    let mut reader = open(path)?;
    let metadata = guarded(path, || reader.get_metadata().cloned())?;
    let entries = metadata.key_value_metadata().iter().flatten();
    Ok(entries.filter(|entry| entry.key == key).find_map(|entry| entry.value.clone()))
}

/// Reads `columns` of `rows`, in pieces of `piece` rows.
///
/// # Errors
/// The errors of [`read_columns`]; a damaged page is found when its piece's turn comes.
pub(crate) fn pieces<'a>(
    path: &'a Path,
    columns: &'a [&str],
    rows: Range<usize>,
    piece: usize,
) -> Result<impl Iterator<Item = Result<DataFrame>> + 'a> {
    let slices = rows.clone().step_by(piece).map(move |at| (at, piece.min(rows.end - at)));
    read_slices(path, columns, |_| slices)
}

/// Reads `columns`, in that order, one row group after the other, or [`ROWS`] of a larger group.
///
/// # Errors
/// The errors of [`read_columns`]; a damaged page is found when its row group's turn comes.
pub(super) fn row_groups<'a>(
    path: &'a Path,
    columns: &'a [&str],
) -> Result<impl Iterator<Item = Result<DataFrame>> + 'a> {
    read_slices(path, columns, |groups| {
        groups.into_iter().flat_map(|(start, rows)| {
            let end = start + rows;
            (start..end).step_by(ROWS).map(move |at| (at, ROWS.min(end - at)))
        })
    })
}

/// Reads `columns`, in that order, one whole row group after the other.
///
/// # Errors
/// The errors of [`read_columns`]; a damaged page is found when its row group's turn comes.
pub(crate) fn whole_row_groups<'a>(
    path: &'a Path,
    columns: &'a [&str],
) -> Result<impl Iterator<Item = Result<DataFrame>> + 'a> {
    read_slices(path, columns, Vec::into_iter)
}

/// Reads first row and number of rows of what `slices` makes of the row groups.
fn read_slices<'a, S: Iterator<Item = (usize, usize)> + 'a>(
    path: &'a Path,
    columns: &'a [&str],
    slices: impl FnOnce(Vec<(usize, usize)>) -> S,
) -> Result<impl Iterator<Item = Result<DataFrame>> + 'a> {
    let mut reader = checked(path, columns)?;
    let metadata = guarded(path, || reader.get_metadata().cloned())?;
    let mut groups = Vec::with_capacity(metadata.row_groups.len());
    let mut end = 0_usize;
    for group in &metadata.row_groups {
        let start = end;
        end = start.checked_add(group.num_rows()).ok_or_else(|| damaged(path))?;
        groups.push((start, group.num_rows()));
    }
    Ok(slices(groups).map(move |slice| {
        let mut reader = ParquetReader::new(mappable(fs::File::open(path)?));
        reader.set_metadata(metadata.clone());
        finish(reader.with_slice(Some(slice)), path, columns)
    }))
}

/// Opens a file that has `columns`, of types that can be read.
fn checked(path: &Path, columns: &[&str]) -> Result<ParquetReader<std::fs::File>> {
    let mut reader = open(path)?;
    let schema = guarded(path, || reader.schema())?;
    check_columns(&schema, path, columns)?;
    let metadata = guarded(path, || reader.get_metadata().cloned())?;
    let file = mappable(fs::File::open(path)?);
    if !guarded(path, || Ok(pages::are_sound(file, &metadata, columns)?))? {
        return Err(damaged(path));
    }
    Ok(reader)
}

fn check_columns(schema: &ArrowSchema, path: &Path, columns: &[&str]) -> Result<()> {
    for &column in columns {
        match schema.get(column) {
            None => {
                let names: Vec<String> = schema.iter_names().map(ToString::to_string).collect();
                return Err(missing_column(path, column, &names));
            }
            Some(field) if !is_readable(field.dtype()) => {
                let cast = match field.dtype() {
                    ArrowDataType::Decimal(_, 0) => "; cast it to integers",
                    ArrowDataType::Decimal(..) => {
                        "; cast it to floats, or to text where it holds ids"
                    }
                    _ => "",
                };
                let problem = format!(
                    "column `{column}`: expected integers or text for ids, and numbers, text, booleans, \
                     dates or times for all else, found {:?}{cast}",
                    field.dtype()
                );
                return Err(Error::file(path, problem));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

fn finish<R: MmapBytesReader>(
    reader: ParquetReader<R>,
    path: &Path,
    columns: &[&str],
) -> Result<DataFrame> {
    let names = columns.iter().map(ToString::to_string).collect();
    let reader = reader.with_columns(Some(names));
    let table = guarded(path, || reader.finish())?;
    let cells = columns.iter().map(|name| {
        let column = table.column(name)?;
        match column.dtype() {
            // An instant is the same in all zones, and this build of polars knows none.
            DataType::Datetime(unit, Some(_)) => {
                column.to_physical_repr().cast(&DataType::Datetime(*unit, None))
            }
            _ => Ok(column.clone()),
        }
    });
    let cells = cells.collect::<PolarsResult<Vec<_>>>();
    let table = cells.and_then(|cells| DataFrame::new(table.height(), cells));
    table.map_err(|error| wrap(path, &error))
}

/// What polars reads; on some damaged files it panics where it should return an error.
fn guarded<T>(path: &Path, read: impl FnOnce() -> PolarsResult<T>) -> Result<T> {
    let read = catch_unwind(AssertUnwindSafe(read)).map_err(|_| damaged(path))?;
    read.map_err(|error| wrap(path, &error))
}

fn damaged(path: &Path) -> Error {
    Error::file(path, "is damaged; write or copy it again")
}

/// What polars finds when the columns and their types are as expected.
fn wrap(path: &Path, error: &PolarsError) -> Error {
    let problem = format!("is damaged, or no Parquet file; write or copy it again ({error})");
    Error::file(path, problem)
}

/// Reads the names of all columns.
///
/// # Errors
/// A file that is missing or damaged.
pub(crate) fn column_names(path: &Path) -> Result<Vec<String>> {
    Ok(schema(path)?.iter_names().map(ToString::to_string).collect())
}

/// Reads the columns' names and types.
///
/// # Errors
/// A file that is missing or damaged.
pub(super) fn schema(path: &Path) -> Result<Arc<ArrowSchema>> {
    let mut reader = open(path)?;
    guarded(path, || reader.schema())
}

/// [`Error::MissingColumn`].
pub(super) fn missing_column(path: &Path, column: &str, available: &[String]) -> Error {
    Error::MissingColumn {
        path: path.to_owned(),
        column: column.to_owned(),
        available: available.to_vec(),
    }
}

/// Opens a file whose footer polars may read.
fn open(path: &Path) -> Result<ParquetReader<std::fs::File>> {
    reader(path, mappable(fs::File::open(path)?))
}

/// A reader of what has a footer that polars may read. Categories are text to it: this build of polars
/// holds none, and no file stores them otherwise; only the schema of Arrow that some programs add says
/// that they are.
fn reader<R: MmapBytesReader>(path: &Path, mut file: R) -> Result<ParquetReader<R>> {
    if !footer::is_sound(&mut file).map_err(|error| Error::reading(path, error))? {
        return Err(damaged(path));
    }
    let mut reader = ParquetReader::new(file);
    let metadata = guarded(path, || reader.get_metadata().cloned())?;
    let schema = guarded(path, || infer_schema(&metadata))?;
    if schema.iter_values().any(|field| matches!(field.dtype(), ArrowDataType::Dictionary(..))) {
        let mut plain = FileMetadata::clone(&metadata);
        plain.key_value_metadata.iter_mut().for_each(|of| of.retain(|of| of.key != ARROW_SCHEMA));
        reader.set_metadata(Arc::new(plain));
    }
    Ok(reader)
}

/// polars maps the file, which it can do with the standard library's handle only.
fn mappable(file: fs::File) -> std::fs::File {
    file.into_parts().0
}

/// True for types that this build of polars can hold; it panics on others.
pub(super) fn is_readable(dtype: &ArrowDataType) -> bool {
    use ArrowDataType as A;
    matches!(
        dtype,
        A::Boolean
            | A::Int8
            | A::Int16
            | A::Int32
            | A::Int64
            | A::UInt8
            | A::UInt16
            | A::UInt32
            | A::UInt64
            | A::Float32
            | A::Float64
            | A::Utf8
            | A::LargeUtf8
            | A::Utf8View
            | A::Date32
            | A::Timestamp(..)
    ) || matches!(dtype, A::List(item) | A::LargeList(item) if of_scalars(item.dtype()))
}

/// True for the numbers and texts of which this build of polars can hold lists.
fn of_scalars(dtype: &ArrowDataType) -> bool {
    use ArrowDataType as A;
    let texts_or_integers = matches!(
        dtype,
        A::Utf8 | A::LargeUtf8 | A::Utf8View | A::Int32 | A::Int64 | A::UInt32 | A::UInt64
    );
    texts_or_integers || of_floats(dtype)
}

/// True for single and double precision.
pub(super) fn of_floats(dtype: &ArrowDataType) -> bool {
    matches!(dtype, ArrowDataType::Float32 | ArrowDataType::Float64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_texts_is_of_a_kind_that_pandas_reads() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        let ids = Series::new("ids".into(), [Some("a"), None, Some("c")]);
        let table = df!("ids" => [ids.clone(), ids.slice(1, 2)], "user" => ["u", "v"]).unwrap();
        let entries = vec![("own".to_owned(), "kept".to_owned())];
        let file = fs::File::create(&path).unwrap();
        let mut writer = batched(file, table.schema(), entries).unwrap();
        writer.write_batch(&table).unwrap();
        writer.finish().unwrap();
        // polars reads texts of any kind as views, so this goes by what is written.
        let of = |name: &str, dtype| ArrowField::new(name.into(), dtype, true);
        let texts = ArrowDataType::LargeUtf8;
        let lists = ArrowDataType::LargeList(Box::new(of("item", texts.clone())));
        let expected = ArrowSchema::from_iter([of("ids", lists), of("user", texts)]);
        let found = metadata(&path, ARROW_SCHEMA).unwrap();
        assert_eq!(found, schema_to_metadata_key(&expected).value);
        assert_eq!(metadata(&path, "own").unwrap().as_deref(), Some("kept"));
        assert!(read_columns(&path, &["ids", "user"]).unwrap().equals_missing(&table));
    }
}
