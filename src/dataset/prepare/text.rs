//! Delimited text → batches of rows. polars reads blocks of whole records, every cell as text: what
//! a cell means is decided over the whole column, and never guessed from the first rows.
//!
//! A second pass over the records of a block names the bad row when polars refuses the block or
//! finds too few fields, and leaves bad rows out when they may be skipped.

use std::borrow::Cow;
use std::io::{Cursor, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::thread;

use memchr::{memchr, memmem};
use polars::prelude::*;

use super::bytes::Packed;
use super::records::{blocks, misquoted, records, trimmed, unquoted};
use super::rows::{BadRows, Batch, Wanted};
use crate::dataset::registry;
use crate::error::{Error, Result};

const QUOTE: u8 = b'"';
const COLON: u8 = b':';

/// What a file begins with that gzip compressed.
const GZIP: &[u8] = b"\x1f\x8b";

/// Bytes of a block, and the most that a record may have. Blocks are short in tests, so that even
/// short files have several.
const BLOCK: usize = if cfg!(test) { 256 } else { 32 << 20 };

/// Hands `each` the rows of `file`, and counts those that cannot be read in `bad`. `find` chooses the
/// columns among those of the header.
///
/// # Errors
/// An unknown file format, a row that cannot be read and must not be skipped, or an error of `find` or
/// `each`.
pub(crate) fn read<C: Wanted>(
    file: &Packed,
    bad: &mut BadRows,
    find: impl Fn(&Path, &[String]) -> Result<C>,
    mut each: impl FnMut(&Path, &C, &Batch, &mut BadRows) -> Result<()>,
) -> Result<C> {
    let (path, dialect) = (file.shown(), Dialect::of(file)?);
    let Dialect { separator, quote, .. } = dialect;
    file.read(|reader| {
        thread::scope(|scope| {
            let (send, receive) = sync_channel(1);
            scope.spawn(move || {
                for block in blocks(reader, separator, quote, BLOCK) {
                    if send.send(block).is_err() {
                        return;
                    }
                }
            });
            let mut opened: Option<(Text, C)> = None;
            for block in receive {
                let rows = opened.as_ref().map_or(0, |(text, _)| text.rows);
                let mut block = block.map_err(|error| match error.kind() {
                    ErrorKind::FileTooLarge => {
                        let mib = BLOCK >> 20;
                        let problem =
                            format!("expected a line break (\\n) within {mib} MiB, found none");
                        Error::Row { path: path.clone(), row: rows + 1, problem }
                    }
                    _ => Error::file(&path, format!("cannot be read beyond row {rows}: {error}")),
                })?;
                let (text, columns) = if let Some(opened) = &mut opened {
                    opened
                } else {
                    let text = Text::open(path.clone(), dialect, &mut block)?;
                    let columns = find(&path, &text.names)?;
                    text.require_once(&columns)?;
                    opened.insert((text, columns))
                };
                let batch = text.batch(block, columns, bad)?;
                each(&path, columns, &batch, bad)?;
            }
            let (_, columns) = opened.ok_or_else(|| Error::file(&path, "is empty"))?;
            Ok(columns)
        })
    })
}

/// Reads a whole file with a header, every column as text; for small tables.
///
/// # Errors
/// An unknown file format, or the first row that cannot be read.
pub(super) fn read_table(file: &Packed) -> Result<DataFrame> {
    let mut bytes = file.bytes()?;
    let text = Text::open(file.shown(), Dialect::of(file)?, &mut bytes)?;
    let (bytes, _) = text.sift(&bytes, &mut BadRows::default())?;
    parse(&text.path, text.dialect, Some(&text.names), None, &bytes)
}

/// The separator and the quote of a file, and its columns if it has no header.
#[derive(Clone, Copy, Debug)]
struct Dialect {
    separator: u8,
    /// What stands around fields that hold separators or line breaks, where these may.
    quote: Option<u8>,
    /// True if the header says of which type each column is: `user_id:token`.
    typed: bool,
    /// Names of the columns of a file without a header.
    names: Option<&'static [&'static str]>,
}

impl Dialect {
    /// The dialect that the file's name tells.
    fn of(file: &Packed) -> Result<Self> {
        let name = file.name();
        let extension = name.rsplit_once('.').map(|(_, last)| last);
        let (separator, quote) = match extension {
            Some("csv") => (b',', Some(QUOTE)),
            // Databases write a quote as it is, so none of it opens anything: `bare` takes off those that
            // stand around a whole field.
            Some("tsv" | "inter") => (b'\t', None),
            // `user::item::rating::time`: every second field is the empty one between two colons.
            Some("dat") => (COLON, None),
            _ => {
                let problem = "expected a .csv, .tsv or .inter file (.gz or not), a .parquet file, a \
                               folder of .parquet files, or a file, folder or archive of a known data set \
                               (`slate datasets` lists them)";
                return Err(Error::file(file.shown(), problem));
            }
        };
        // As `RecBole` writes it.
        let typed = extension == Some("inter");
        Ok(Self { separator, quote, typed, names: registry::columns_of_file(&name) })
    }
}

/// A file of delimited text, as far as it was read.
struct Text {
    path: PathBuf,
    dialect: Dialect,
    names: Vec<String>,
    /// Records before the next block, without the header.
    rows: u64,
}

impl Text {
    /// Takes the header, where there should be one, off the first block.
    fn open(path: PathBuf, dialect: Dialect, first: &mut Vec<u8>) -> Result<Self> {
        if first.starts_with(b"\xef\xbb\xbf") {
            first.drain(..3);
        }
        if first.starts_with(GZIP) {
            let problem = format!("is compressed by gzip: name it {}.gz", path.display());
            return Err(Error::file(&path, problem));
        }
        let names = if let Some(names) = dialect.names {
            if dialect.separator == COLON && memmem::find(first, b"::").is_none() {
                let problem = "holds no ::, which stands between fields in a .dat file, as MovieLens \
                               has it: name it .csv if a comma does here, .tsv if a tab does";
                return Err(Error::file(&path, problem));
            }
            names.iter().map(ToString::to_string).collect()
        } else {
            let header = records(first, dialect.separator, dialect.quote).next();
            let header = header.ok_or_else(|| Error::file(&path, "is empty"))?;
            if unquoted(trimmed(&first[header.clone()]), b'\r', Some(QUOTE)).next().is_some() {
                let problem = "its lines end in a carriage return alone, as old Macs wrote them: let them \
                               end in a line feed, for example with tr '\\r' '\\n'";
                return Err(Error::file(&path, problem));
            }
            let quoted = Dialect { quote: Some(QUOTE), ..dialect };
            let row = &first[header.clone()];
            let row = if dialect.typed { &untyped(row, dialect.separator) } else { row };
            let names = names_of(&parse(&path, quoted, None, None, row)?);
            first.drain(..header.end);
            names
        };
        Ok(Self { path, dialect, names, rows: 0 })
    }

    /// The rows of the next block.
    fn batch(
        &mut self,
        mut bytes: Vec<u8>,
        columns: &impl Wanted,
        bad: &mut BadRows,
    ) -> Result<Batch> {
        let (first_row, Dialect { separator, quote, .. }) = (self.rows + 1, self.dialect);
        // polars reads on within a quote that stands where none may, past the ends of rows.
        let problem = quote.and_then(|quote| misquoted(&bytes, separator, quote));
        let mut numbers = Vec::new();
        let sifted = bad.may_skip() || problem.is_some() || has_empty_lines(&bytes);
        if sifted {
            let skipped = bad.skipped;
            (bytes, numbers) = self.sift(&bytes, bad)?;
            self.rows += bad.skipped - skipped;
        }
        let last = self.names.last().map(String::as_str);
        let mut wanted: Vec<usize> = (columns.names().chain(last))
            .filter_map(|name| self.names.iter().position(|column| column == name))
            .collect();
        wanted.sort_unstable();
        wanted.dedup();
        let table = parse(&self.path, self.dialect, Some(&self.names), Some(wanted), &bytes);
        // polars fills up rows with too few fields, and leaves out what is beyond the last column that it
        // was asked for.
        let is_uneven = |table: &DataFrame| {
            let last = last.and_then(|last| table.column(last).ok());
            let separators = unquoted(&bytes, separator, quote).count();
            last.is_some_and(|last| last.null_count() > 0)
                || separators != table.height() * (self.names.len() - 1)
        };
        if !sifted && table.as_ref().map_or(true, is_uneven) {
            self.sift(&bytes, bad)?;
        }
        let table = table?;
        self.rows += table.height() as u64;
        let column = |name: &str| {
            let column = table.column(name).map_err(|error| failed(&self.path, &error))?;
            Ok(column.as_materialized_series().clone())
        };
        let columns = columns.names().map(column).collect::<Result<Vec<_>>>()?;
        Ok(Batch { first_row, numbers, columns })
    }

    /// The records of a block that can be read, and the number of each.
    ///
    /// # Errors
    /// The first bad row that must not be skipped.
    fn sift(&self, bytes: &[u8], bad: &mut BadRows) -> Result<(Vec<u8>, Vec<u64>)> {
        let Dialect { separator, quote, .. } = self.dialect;
        let (mut kept, mut numbers) = (Vec::with_capacity(bytes.len()), Vec::new());
        for (row, record) in (self.rows + 1..).zip(records(bytes, separator, quote)) {
            let record = &bytes[record];
            match self.problem(trimmed(record)) {
                None => {
                    kept.extend_from_slice(record);
                    numbers.push(row);
                }
                Some(problem) => bad.skip(self.row_error(row, problem))?,
            }
        }
        Ok((kept, numbers))
    }

    /// Fails if a column that matters is there twice.
    fn require_once(&self, columns: &impl Wanted) -> Result<()> {
        // polars gives the second another name.
        let twice = |name: &&str| self.names.contains(&format!("{name}_duplicated_0"));
        match columns.names().find(twice) {
            None => Ok(()),
            Some(name) => {
                let problem = format!("column `{name}` is there twice; rename one");
                Err(Error::file(&self.path, problem))
            }
        }
    }

    /// Says what is wrong with a record, if anything is.
    fn problem(&self, record: &[u8]) -> Option<String> {
        let (Dialect { separator, quote, .. }, expected) = (self.dialect, self.names.len());
        let found = unquoted(record, separator, quote).count() + 1;
        if let Some(problem) = quote.and_then(|quote| misquoted(record, separator, quote)) {
            Some(problem.into())
        } else if found != expected {
            let more = match quote {
                None if separator == b'\t' && memchr(QUOTE, record).is_some() => {
                    "; in a .tsv file a tab or a line break ends a field within quotes too"
                }
                _ if found < expected => "; an empty field needs its separator too",
                Some(_) => "; put a field that holds a separator in quotes",
                None => "",
            };
            Some(format!("expected {expected} fields, found {found}{more}"))
        } else if std::str::from_utf8(record).is_err() {
            Some("is not UTF-8".into())
        } else {
            None
        }
    }

    fn row_error(&self, row: u64, problem: impl Into<String>) -> Error {
        Error::Row { path: self.path.clone(), row, problem: problem.into() }
    }
}

/// The `wanted` columns, or all, of records whose fields are `names`, as text. Without `names` the
/// first record holds them.
fn parse(
    path: &Path,
    dialect: Dialect,
    names: Option<&[String]>,
    wanted: Option<Vec<usize>>,
    records: &[u8],
) -> Result<DataFrame> {
    let field = |name: &String| Field::new(name.into(), DataType::String);
    let schema = names.map(|names| Arc::new(names.iter().map(field).collect::<Schema>()));
    let Dialect { separator, quote, .. } = dialect;
    let table = CsvReadOptions::default()
        .with_has_header(names.is_none())
        .with_schema(schema)
        .with_infer_schema_length(Some(0))
        .with_projection(wanted.map(Arc::new))
        .with_raise_if_empty(false)
        .map_parse_options(|options| options.with_separator(separator).with_quote_char(quote))
        .into_reader_with_file_handle(Cursor::new(records))
        .finish();
    let is_bare = separator != b'\t' || memchr(QUOTE, records).is_none();
    let bared = |table: DataFrame| {
        let cells = table.columns().iter().map(|column| {
            let cells = column.as_materialized_series().str()?.apply_values(bare);
            Ok(cells.into_series().into_column())
        });
        DataFrame::new(table.height(), cells.collect::<PolarsResult<_>>()?)
    };
    let table = if is_bare { table } else { table.and_then(bared) };
    table.map_err(|error| failed(path, &error))
}

/// A cell of a .tsv file without the quotes around it: some programs write texts in quotes there.
/// Quotes that are not around all of it, with each one within doubled, are text.
fn bare(cell: &str) -> Cow<'_, str> {
    let within = cell.strip_prefix('"').and_then(|cell| cell.strip_suffix('"'));
    match within {
        Some(within) if !within.contains('"') => within.into(),
        Some(within) if !within.replace("\"\"", "").contains('"') => {
            within.replace("\"\"", "\"").into()
        }
        _ => cell.into(),
    }
}

/// A header without the types behind the names: `user_id:token`.
fn untyped(header: &[u8], separator: u8) -> Vec<u8> {
    let typed = header.split(|byte| *byte == separator);
    let names = typed.filter_map(|field| field.split(|byte| *byte == COLON).next());
    names.collect::<Vec<_>>().join(&separator)
}

/// The names of a table's columns; polars has made them unique.
pub(super) fn names_of(table: &DataFrame) -> Vec<String> {
    table.get_column_names().iter().map(ToString::to_string).collect()
}

/// polars' message without the hints for programmers, which come behind an empty line.
fn failed(path: &Path, error: &PolarsError) -> Error {
    let message = error.to_string();
    let message = message.split("\n\n").next().unwrap_or_default();
    Error::reading(path, message)
}

/// True if there may be empty lines, which polars takes for rows.
fn has_empty_lines(bytes: &[u8]) -> bool {
    let within = |breaks: &[u8]| memmem::find(bytes, breaks).is_some();
    bytes.starts_with(b"\n") || bytes.starts_with(b"\r\n") || within(b"\n\n") || within(b"\n\r\n")
}
