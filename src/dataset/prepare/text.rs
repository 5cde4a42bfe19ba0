//! Delimited text → batches of rows. Text is read as text: what a cell means is decided over the
//! whole column, and never by type inference over the first rows.

use std::io::Cursor;
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::thread;

use memchr::{memchr, memchr2_iter, memmem};
use polars::prelude::*;

use super::blocks::{Block, Blocks};
use super::bytes::Packed;
use super::filter::Filters;
use super::pairs::Pairs;
use super::rows::{BadRows, Batch, Columns};
use super::source::Source;
use crate::dataset::registry;
use crate::error::{Error, Result};

/// Bytes of a block, and the most that a record may have; few in tests, so that theirs have several.
const BLOCK: usize = if cfg!(test) { 256 } else { 32 << 20 };

/// How a file separates its fields, and what they are where it does not say.
#[derive(Clone, Copy, Debug)]
struct Dialect {
    separator: u8,
    quote: Option<u8>,
    /// Names of the columns of a file without a header.
    names: Option<&'static [&'static str]>,
}

impl Dialect {
    /// By the file's name.
    fn of(name: &str) -> Option<Self> {
        let (_, extension) = name.rsplit_once('.')?;
        let names = registry::columns_of_file(name);
        match extension {
            "csv" => Some(Self { separator: b',', quote: Some(b'"'), names }),
            "tsv" => Some(Self { separator: b'\t', quote: Some(b'"'), names }),
            // `user::item::rating::time`: every second field is the nothing between two colons.
            "dat" => Some(Self { separator: b':', quote: None, names }),
            _ => None,
        }
    }
}

/// Adds the rows of `file` to `pairs`.
///
/// # Errors
/// A name that says no known format, a column that is missing or was not named, a row that cannot
/// be read and must not be skipped.
pub(super) fn read(
    file: &Packed,
    source: &Source,
    filters: &Filters,
    pairs: &mut Pairs,
) -> Result<Columns> {
    let path = file.shown();
    let dialect = Dialect::of(&file.name()).ok_or_else(|| {
        let problem = "expected a .csv, .tsv, .csv.gz, .tsv.gz or .parquet file, a folder of these, \
                       or a file, folder or archive of a known data set (`slate datasets` lists them)";
        Error::file(&path, problem)
    })?;
    // Where rows may be skipped, a line is a row: a quote left open then spoils one and not all.
    let quote = dialect.quote.filter(|_| !pairs.bad.may_skip());
    file.read(|reader| {
        thread::scope(|scope| {
            let (send, receive) = sync_channel(1);
            scope.spawn(move || {
                for block in Blocks::new(reader, quote, BLOCK) {
                    if send.send(block).is_err() {
                        return;
                    }
                }
            });
            let mut table: Option<Table> = None;
            for block in receive {
                let rows = table.as_ref().map_or(0, |table| table.rows);
                let mut block = block.map_err(|error| {
                    let problem = format!("cannot be read beyond row {rows}: {error}");
                    Error::file(&path, problem)
                })?;
                let table = match &mut table {
                    Some(table) => table,
                    None => table.insert(Table::open(&path, dialect, source, filters, &mut block)?),
                };
                let batch = table.batch(block, &mut pairs.bad)?;
                pairs.add(&path, &table.columns, &batch)?;
            }
            let table = table.ok_or_else(|| Error::file(&path, "is empty"))?;
            Ok(table.columns)
        })
    })
}

/// A file of delimited text, as far as it was read.
struct Table<'a> {
    path: &'a Path,
    dialect: Dialect,
    names: Vec<String>,
    columns: Columns,
    /// Records before the next block, without the header.
    rows: u64,
}

impl<'a> Table<'a> {
    /// Takes the header, where there should be one, off the first block.
    fn open(
        path: &'a Path,
        dialect: Dialect,
        source: &Source,
        filters: &Filters,
        first: &mut Block,
    ) -> Result<Self> {
        if first.bytes.starts_with(b"\xef\xbb\xbf") {
            first.bytes.drain(..3);
        }
        let names = if let Some(names) = dialect.names {
            names.iter().map(ToString::to_string).collect()
        } else {
            let header = records(&first.bytes, dialect.quote).next();
            let header = header.ok_or_else(|| Error::file(path, "is empty"))?;
            let names = field_names(path, dialect, header.bytes)?;
            let end = header.end;
            first.bytes.drain(..end);
            names
        };
        let columns = Columns::find(source, filters, path, &names)?;
        Ok(Self { path, dialect, names, columns, rows: 0 })
    }

    /// The rows of the next block.
    fn batch(&mut self, mut block: Block, bad: &mut BadRows) -> Result<Batch> {
        let (first_row, quote) = (self.rows + 1, self.dialect.quote);
        let mut left_out = Vec::new();
        if bad.may_skip() {
            (block.bytes, left_out) = self.readable(&block.bytes, bad)?;
        } else if block.is_open {
            return Err(self.diagnosis(&block.bytes).unwrap_or_else(|| {
                Error::file(self.path, format!("a quote is left open after row {}", self.rows))
            }));
        }
        if has_empty_lines(&block.bytes) {
            let rows =
                records(&block.bytes, quote).flat_map(|row| &block.bytes[row.start..row.end]);
            block.bytes = rows.copied().collect();
        }
        let table = match self.parse(&block.bytes) {
            Ok(table) => table,
            Err(error) => return Err(self.diagnosis(&block.bytes).unwrap_or(error)),
        };
        self.rows += (table.height() + left_out.len()) as u64;
        let column = |name: &str| {
            let column = table.column(name);
            let column =
                column.map_err(|error| Error::library(self.path.display().to_string(), error));
            Ok(column?.as_materialized_series().clone())
        };
        let columns = self.columns.names().map(column).collect::<Result<Vec<_>>>()?;
        let mut short = Vec::new();
        if !bad.may_skip() {
            // A field that is not there reads like an empty one.
            let last = self.names.last().map(|last| column(last)).transpose()?;
            if last.is_some_and(|last| last.null_count() > 0) {
                let problems = records(&block.bytes, quote).enumerate();
                short.extend(problems.filter_map(|(at, row)| Some((at, self.problem(row.bytes)?))));
            }
            // A quote left open is closed by the next one, rows later.
            if quote.is_some_and(|quote| memchr(quote, &block.bytes).is_some()) {
                for ids in &columns[..2] {
                    let ids = ids.str().map_err(|error| Error::library("reading ids", error))?;
                    let broken = ids
                        .iter()
                        .enumerate()
                        .filter(|(_, id)| id.is_some_and(|id| id.contains('\n')));
                    short.extend(broken.map(|(at, _)| (at, "a quote is left open".to_owned())));
                }
            }
        }
        Ok(Batch { first_row, left_out, columns, short })
    }

    /// The needed columns of whole records, and the last one, all as text.
    fn parse(&self, records: &[u8]) -> Result<DataFrame> {
        let schema = self.names.iter().map(|name| Field::new(name.into(), DataType::String));
        let schema: Schema = schema.collect();
        let mut wanted: Vec<usize> =
            (self.columns.names().chain(self.names.last().map(String::as_str)))
                .filter_map(|name| self.names.iter().position(|column| column == name))
                .collect();
        wanted.sort_unstable();
        wanted.dedup();
        let Dialect { separator, quote, .. } = self.dialect;
        CsvReadOptions::default()
            .with_has_header(false)
            .with_schema(Some(Arc::new(schema)))
            .with_infer_schema_length(Some(0))
            .with_projection(Some(Arc::new(wanted)))
            .with_raise_if_empty(false)
            .map_parse_options(|options| options.with_separator(separator).with_quote_char(quote))
            .into_reader_with_file_handle(Cursor::new(records))
            .finish()
            .map_err(|error| {
                let path = self.path.display();
                Error::library(
                    format!("reading {path} after row {}", self.rows),
                    first_line(&error),
                )
            })
    }

    /// The first record that is none, among those after the rows so far.
    fn diagnosis(&self, bytes: &[u8]) -> Option<Error> {
        let mut rows = (self.rows + 1..).zip(records(bytes, self.dialect.quote));
        rows.find_map(|(row, record)| Some(self.row_error(row, self.problem(record.bytes)?)))
    }

    /// The lines that hold a row, and the indices among all of those that do not.
    fn readable(&self, bytes: &[u8], bad: &mut BadRows) -> Result<(Vec<u8>, Vec<u64>)> {
        let (mut kept, mut left_out) = (Vec::with_capacity(bytes.len()), Vec::new());
        for (at, line) in (0..).zip(records(bytes, None)) {
            match self.problem(line.bytes) {
                None => kept.extend_from_slice(&bytes[line.start..line.end]),
                Some(problem) => {
                    bad.skip(self.row_error(self.rows + 1 + at, problem))?;
                    left_out.push(at);
                }
            }
        }
        Ok((kept, left_out))
    }

    fn row_error(&self, row: u64, problem: String) -> Error {
        Error::Row { path: self.path.to_owned(), row, problem }
    }

    /// What is wrong with the fields of one record, if anything is.
    fn problem(&self, record: &[u8]) -> Option<String> {
        self.dialect.problem(self.names.len(), record)
    }
}

impl Dialect {
    /// What is wrong with one record of `expected` fields, if anything is.
    fn problem(self, expected: usize, record: &[u8]) -> Option<String> {
        let (mut fields, mut open) = (1, false);
        let Self { separator, quote, .. } = self;
        for at in memchr2_iter(separator, quote.unwrap_or(separator), record) {
            if quote == Some(record[at]) {
                open = !open;
            } else if !open {
                fields += 1;
            }
        }
        if open {
            Some("a quote is left open".into())
        } else if fields != expected {
            Some(format!("expected {expected} fields, found {fields}"))
        } else if std::str::from_utf8(record).is_err() {
            Some("is not UTF-8".into())
        } else {
            None
        }
    }
}

/// One record: its bytes without the line break, and where it begins and where the next one does.
struct Record<'a> {
    bytes: &'a [u8],
    start: usize,
    end: usize,
}

/// The records of `bytes` but for empty ones; line breaks within pairs of `quote` end none.
fn records(bytes: &[u8], quote: Option<u8>) -> impl Iterator<Item = Record<'_>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        loop {
            if start == bytes.len() {
                return None;
            }
            let mut open = false;
            let breaks = memchr2_iter(b'\n', quote.unwrap_or(b'\n'), &bytes[start..]);
            let mut ends = breaks.filter(|&at| {
                let is_quote = quote == Some(bytes[start + at]);
                open ^= is_quote;
                !is_quote && !open
            });
            let end = ends.next().map_or(bytes.len(), |at| start + at + 1);
            let record = Record { bytes: trimmed(&bytes[start..end]), start, end };
            start = end;
            if !record.bytes.is_empty() {
                return Some(record);
            }
        }
    })
}

/// Whether there may be any; polars would take them for rows.
fn has_empty_lines(bytes: &[u8]) -> bool {
    let within = |breaks: &[u8]| memmem::find(bytes, breaks).is_some();
    bytes.starts_with(b"\n") || bytes.starts_with(b"\r\n") || within(b"\n\n") || within(b"\n\r\n")
}

fn trimmed(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// The names in a header, as polars makes them unique.
fn field_names(path: &Path, dialect: Dialect, header: &[u8]) -> Result<Vec<String>> {
    let table = CsvReadOptions::default()
        .with_infer_schema_length(Some(0))
        .with_raise_if_empty(false)
        .map_parse_options(|options| {
            options.with_separator(dialect.separator).with_quote_char(dialect.quote)
        })
        .into_reader_with_file_handle(Cursor::new(header))
        .finish();
    let table = table.map_err(|error| {
        Error::library(format!("reading {}", path.display()), first_line(&error))
    })?;
    Ok(table.get_column_names_owned().iter().map(ToString::to_string).collect())
}

/// polars' message without the hints for programmers, which come behind an empty line.
fn first_line(error: &PolarsError) -> String {
    error.to_string().split("\n\n").next().unwrap_or_default().to_owned()
}

/// A whole file with a header, every column as text; for tables that are small.
///
/// # Errors
/// A name that says no known format, or the first row that cannot be read.
pub(super) fn read_table(file: &Packed) -> Result<DataFrame> {
    let path = file.shown();
    let dialect = Dialect::of(&file.name()).ok_or_else(|| {
        Error::file(&path, "expected a .csv, .tsv, .csv.gz, .tsv.gz or .parquet file")
    })?;
    let bytes = file.bytes()?;
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    let mut rows = records(bytes, dialect.quote);
    let header = rows.next().ok_or_else(|| Error::file(&path, "is empty"))?;
    let names = field_names(&path, dialect, header.bytes)?;
    let mut whole = bytes[header.start..header.end].to_vec();
    for (record, row) in rows.zip(1..) {
        if let Some(problem) = dialect.problem(names.len(), record.bytes) {
            return Err(Error::Row { path, row, problem });
        }
        whole.extend_from_slice(&bytes[record.start..record.end]);
    }
    let Dialect { separator, quote, .. } = dialect;
    CsvReadOptions::default()
        .with_infer_schema_length(Some(0))
        .map_parse_options(|options| options.with_separator(separator).with_quote_char(quote))
        .into_reader_with_file_handle(Cursor::new(whole))
        .finish()
        .map_err(|error| Error::library(format!("reading {}", path.display()), first_line(&error)))
}

/// The text columns `names` of a whole file with a header; for tables that are small.
///
/// # Errors
/// [`Error::MissingColumn`], or what polars says of the file.
pub(super) fn read_whole<const N: usize>(file: &Packed, names: [&str; N]) -> Result<[Series; N]> {
    let path = file.shown();
    let wrap = |error: PolarsError| {
        Error::library(format!("reading {}", path.display()), first_line(&error))
    };
    let table = CsvReadOptions::default()
        .with_infer_schema_length(Some(0))
        .into_reader_with_file_handle(Cursor::new(file.bytes()?))
        .finish()
        .map_err(wrap)?;
    let available: Vec<String> =
        table.get_column_names_owned().iter().map(ToString::to_string).collect();
    let mut columns = Vec::with_capacity(N);
    for name in names {
        let column = table
            .column(name)
            .map_err(|_| crate::dataset::parquet::missing_column(&path, name, &available))?;
        columns.push(column.as_materialized_series().clone());
    }
    columns.try_into().map_err(|_| Error::file(&path, "holds another number of columns"))
}
