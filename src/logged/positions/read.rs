//! A CSV, TSV or Parquet file → a log of positions in numbers. Every bad row is named, and refused or
//! counted.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fs_err as fs;
use polars::prelude::*;
use serde::Serialize;

use super::super::Unused;
use crate::dataset::parquet::{column_names, read_columns};
use crate::error::{Error, Result};

/// The names of the columns. The defaults are those of the Open Bandit data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    /// The id of the item: text or whole numbers.
    pub item: String,
    /// The position: a whole number.
    pub position: String,
    /// What happened: a finite number.
    pub outcome: String,
    /// The propensity, above 0 and at most 1. None reads [`Columns::PROPENSITY`] where there is such a
    /// column.
    pub propensity: Option<String>,
}

impl Columns {
    /// The default column of items.
    pub const ITEM: &str = "item_id";
    /// The default column of positions.
    pub const POSITION: &str = "position";
    /// The default column of outcomes.
    pub const OUTCOME: &str = "click";
    /// The default column of propensities.
    pub const PROPENSITY: &str = "propensity_score";

    /// True for a CSV or TSV file, and for a Parquet file with columns of items, positions and
    /// outcomes.
    #[must_use]
    pub fn are_in(&self, path: &Path) -> bool {
        match Format::of(path) {
            Ok(Format::Text(_)) => path.is_file(),
            Ok(Format::Parquet) => column_names(path).is_ok_and(|names| {
                [&self.item, &self.position, &self.outcome].iter().all(|name| names.contains(name))
            }),
            Err(_) => false,
        }
    }

    /// The columns to read of those that there are.
    fn find(&self, path: &Path, available: &[String]) -> Result<Vec<&str>> {
        let default = available.iter().any(|name| name == Self::PROPENSITY);
        let propensity = self.propensity.as_deref().or(default.then_some(Self::PROPENSITY));
        let columns = [&self.item, &self.position, &self.outcome].map(String::as_str);
        let columns: Vec<&str> = columns.into_iter().chain(propensity).collect();
        match columns.iter().find(|name| !available.iter().any(|column| column == *name)) {
            None => Ok(columns),
            Some(missing) => Err(Error::MissingColumn {
                path: path.to_owned(),
                column: (*missing).to_owned(),
                available: available.to_vec(),
            }),
        }
    }
}

impl Default for Columns {
    fn default() -> Self {
        Self {
            item: Self::ITEM.into(),
            position: Self::POSITION.into(),
            outcome: Self::OUTCOME.into(),
            propensity: None,
        }
    }
}

/// The rows that were skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BadRows {
    /// The number of all.
    pub skipped: u64,
    /// How many, by reason.
    pub reasons: Unused,
    /// The first one, in words.
    pub first: Option<String>,
}

impl BadRows {
    /// Skips a row with this `problem`.
    ///
    /// # Errors
    /// `problem`, if `allowed` rows were skipped before.
    fn skip(&mut self, reason: &str, problem: Error, allowed: u64) -> Result<()> {
        if self.skipped == allowed {
            return Err(match allowed {
                0 => problem,
                allowed => Error::TooManyBadRows { allowed, problem: Box::new(problem) },
            });
        }
        self.skipped += 1;
        self.reasons.add(reason);
        self.first.get_or_insert_with(|| problem.to_string());
        Ok(())
    }
}

/// The n rows of a log of positions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PositionLog {
    /// The file.
    pub path: PathBuf,
    /// The ids of the items that were shown, ascending: as numbers if all are, otherwise as text.
    pub items: Vec<String>,
    /// The positions as the file names them, ascending.
    pub positions: Vec<i64>,
    /// The number of each row's item, `[n]`.
    pub item: Vec<u32>,
    /// The number of each row's position, from 0, `[n]`.
    pub position: Vec<u32>,
    /// y, `[n]`.
    pub outcomes: Vec<f64>,
    /// p, `[n]`; none where the file has no such column.
    pub propensities: Option<Vec<f64>>,
    /// The columns that were not read.
    pub other_columns: Vec<String>,
    /// The rows that were skipped.
    pub bad: BadRows,
}

impl PositionLog {
    /// Reads the `columns` of a file, and skips up to `skip_bad_rows` rows that cannot be read.
    ///
    /// # Errors
    /// [`Error::MissingColumn`]; [`Error::Cell`] for the first bad row, or [`Error::TooManyBadRows`];
    /// [`Error::File`] for another kind of file, or one without a row that can be read.
    pub fn read(path: &Path, columns: &Columns, skip_bad_rows: u64) -> Result<Self> {
        let format = Format::of(path)?;
        let available = format.column_names(path)?;
        let names = columns.find(path, &available)?;
        let table = format.read(path, &names)?;
        if table.height() == 0 {
            return Err(Error::file(path, "holds no rows"));
        }
        let cells = Cells::new(path, &names, &table)?;
        let mut log = Self {
            path: path.to_owned(),
            propensities: (names.len() > 3).then(Vec::new),
            other_columns: available
                .iter()
                .filter(|name| !name.is_empty() && !names.contains(&name.as_str()))
                .cloned()
                .collect(),
            ..Self::default()
        };
        let (mut items, mut positions) = (Vec::new(), Vec::new());
        for at in 0..table.height() {
            match cells.row(at) {
                Ok(row) => {
                    items.push(row.item);
                    positions.push(row.position);
                    log.outcomes.push(row.outcome);
                    if let Some(propensities) = &mut log.propensities {
                        propensities.push(row.propensity);
                    }
                }
                Err(rule) => {
                    log.bad.skip(rule.reason, cells.problem(rule, at), skip_bad_rows)?;
                }
            }
        }
        if items.is_empty() {
            return Err(Error::file(path, "holds no row that can be read"));
        }
        (log.items, log.item) = numbered(&items, |ids| {
            let number = |id: &str| id.parse::<i64>().ok();
            if ids.iter().all(|id| number(id).is_some()) {
                ids.sort_by_key(|id| (number(id), *id));
            } else {
                ids.sort_unstable();
            }
        });
        (log.positions, log.position) = numbered(&positions, |ids| ids.sort_unstable());
        Ok(log)
    }

    /// n.
    #[must_use]
    pub fn len(&self) -> usize {
        self.outcomes.len()
    }

    /// True without rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.outcomes.is_empty()
    }

    /// The numbers of the rows at a position, or of all.
    #[must_use]
    pub fn rows_at(&self, position: Option<usize>) -> Vec<usize> {
        let at = |row: &usize| position.is_none_or(|at| self.position[*row] as usize == at);
        (0..self.len()).filter(at).collect()
    }

    /// The rows among `rows` whose outcome is above 0.
    #[must_use]
    pub fn above_zero(&self, rows: &[usize]) -> usize {
        rows.iter().filter(|row| self.outcomes[**row] > 0.0).count()
    }
}

/// The different values, in the order that `sort` gives them, and the number of each.
fn numbered<T: Copy + Eq + std::hash::Hash, O: From<T>>(
    values: &[T],
    sort: impl FnOnce(&mut Vec<T>),
) -> (Vec<O>, Vec<u32>) {
    let mut numbers: HashMap<T, u32> = values.iter().map(|value| (*value, 0)).collect();
    let mut ids: Vec<T> = numbers.keys().copied().collect();
    sort(&mut ids);
    for (number, id) in (0..).zip(&ids) {
        numbers.insert(*id, number);
    }
    let numbers = values.iter().map(|value| numbers[value]).collect();
    (ids.into_iter().map(O::from).collect(), numbers)
}

/// What a cell has to be.
#[derive(Clone, Copy)]
struct Rule {
    /// The place of the column.
    column: usize,
    expected: &'static str,
    reason: &'static str,
}

const ITEM: Rule = Rule { column: 0, expected: "an id", reason: "no item" };
const POSITION: Rule =
    Rule { column: 1, expected: "a whole number", reason: "a position that is no whole number" };
const OUTCOME: Rule =
    Rule { column: 2, expected: "a finite number", reason: "an outcome that is not finite" };
const PROPENSITY: Rule = Rule {
    column: 3,
    expected: "a probability above 0 and at most 1",
    reason: "a propensity that is not above 0 and at most 1",
};

/// A row that can be used.
struct Row<'a> {
    item: &'a str,
    position: i64,
    outcome: f64,
    propensity: f64,
}

/// The columns of a table: text, and numbers where a cell is one.
struct Cells<'a> {
    path: &'a Path,
    names: &'a [&'a str],
    table: &'a DataFrame,
    items: StringChunked,
    numbers: Vec<Vec<Option<f64>>>,
}

impl<'a> Cells<'a> {
    fn new(path: &'a Path, names: &'a [&'a str], table: &'a DataFrame) -> Result<Self> {
        let wrap = |error| Error::reading(path, error);
        let column = |name: &str, dtype: DataType| {
            let column = table.column(name)?.as_materialized_series().cast(&dtype)?;
            Ok(column.rechunk())
        };
        let mut numbers = Vec::new();
        for name in &names[1..] {
            let cells = column(name, DataType::Float64).map_err(wrap)?;
            numbers.push(cells.f64().map_err(wrap)?.iter().collect());
        }
        let items = column(names[0], DataType::String).map_err(wrap)?;
        Ok(Self { path, names, table, items: items.str().map_err(wrap)?.clone(), numbers })
    }

    /// The row at `at`, or the first rule that it breaks.
    fn row(&self, at: usize) -> Result<Row<'_>, Rule> {
        let number = |rule: Rule| {
            let cells = self.numbers.get(rule.column - 1);
            cells.and_then(|cells| cells[at]).filter(|number| number.is_finite()).ok_or(rule)
        };
        let position = number(POSITION)?;
        // Beyond 2^53 an f64 skips whole numbers.
        if position.fract() != 0.0 || position.abs() > 9_007_199_254_740_992.0 {
            return Err(POSITION);
        }
        let propensity = if self.numbers.len() > 2 { number(PROPENSITY)? } else { 1.0 };
        if propensity <= 0.0 || propensity > 1.0 {
            return Err(PROPENSITY);
        }
        #[allow(clippy::cast_possible_truncation, reason = "a whole number that fits")]
        let position = position as i64;
        let item = self.items.get(at).filter(|id| !id.is_empty()).ok_or(ITEM)?;
        Ok(Row { item, position, outcome: number(OUTCOME)?, propensity })
    }

    /// Names the cell that breaks a rule.
    fn problem(&self, rule: Rule, at: usize) -> Error {
        let name = self.names[rule.column];
        let cell = self.table.column(name).and_then(|column| column.get(at)).ok();
        let found = cell.filter(|cell| !cell.is_null());
        Error::Cell {
            path: self.path.to_owned(),
            row: at as u64 + 1,
            column: name.to_owned(),
            expected: rule.expected,
            found: found.map_or_else(String::new, |cell| cell.str_value().to_string()),
        }
    }
}

/// How a file holds a table.
#[derive(Clone, Copy)]
enum Format {
    Parquet,
    /// With this separator.
    Text(u8),
}

impl Format {
    /// The format that the file's name tells.
    fn of(path: &Path) -> Result<Self> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("csv") => Ok(Self::Text(b',')),
            Some("tsv") => Ok(Self::Text(b'\t')),
            Some("parquet") => Ok(Self::Parquet),
            _ => {
                let problem = "expected a .csv, .tsv or .parquet file with a row for each position \
                               that was shown; unpack other files first";
                Err(Error::file(path, problem))
            }
        }
    }

    fn column_names(self, path: &Path) -> Result<Vec<String>> {
        let Self::Text(separator) = self else { return column_names(path) };
        let table = text(path, separator, None, Some(0))?;
        Ok(table.get_column_names().iter().map(ToString::to_string).collect())
    }

    /// The columns of these names, in that order; those of a text as text.
    fn read(self, path: &Path, names: &[&str]) -> Result<DataFrame> {
        match self {
            Self::Parquet => read_columns(path, names),
            Self::Text(separator) => text(path, separator, Some(names), None),
        }
    }
}

/// The columns of a delimited text with a header, every cell as text, up to `rows` rows.
fn text(
    path: &Path,
    separator: u8,
    names: Option<&[&str]>,
    rows: Option<usize>,
) -> Result<DataFrame> {
    if fs::metadata(path)?.len() == 0 {
        return Err(Error::file(path, "is empty"));
    }
    let columns: Option<Arc<[PlSmallStr]>> =
        names.map(|names| names.iter().map(|name| (*name).into()).collect());
    CsvReadOptions::default()
        .with_infer_schema_length(Some(0))
        .with_columns(columns)
        .with_n_rows(rows)
        .map_parse_options(|options| options.with_separator(separator))
        .into_reader_with_file_handle(fs::File::open(path)?.into_parts().0)
        .finish()
        .map_err(|error| match uneven(path, separator) {
            Ok(Some(row)) => row,
            _ => Error::reading(path, error),
        })
}

/// The first row with another number of fields than the header: polars refuses the file for it, and
/// does not name it.
fn uneven(path: &Path, separator: u8) -> Result<Option<Error>> {
    let mut expected = 0;
    for (row, line) in (0..).zip(BufReader::new(fs::File::open(path)?).split(b'\n')) {
        let (line, mut quoted) = (line?, false);
        let separators = line.iter().filter(|byte| {
            quoted ^= **byte == b'"';
            !quoted && **byte == separator
        });
        let found = separators.count() + 1;
        if row == 0 {
            expected = found;
        } else if found != expected {
            let problem = format!("expected {expected} fields, found {found}");
            return Ok(Some(Error::Row { path: path.to_owned(), row, problem }));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, columns: &Columns, skip: u64) -> Result<PositionLog> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.csv");
        fs::write(&path, text).unwrap();
        PositionLog::read(&path, columns, skip)
    }

    #[test]
    fn ids_and_positions_are_numbered_in_their_order() {
        let text = "x,position,item_id,click,propensity_score\n\
                    a,3,10,0,0.5\nb,1,9,1,0.25\nc,3.0,9,0,1\n";
        let log = read(text, &Columns::default(), 0).unwrap();
        assert_eq!((log.items, log.positions), (vec!["9".into(), "10".into()], vec![1, 3]));
        assert_eq!((log.item, log.position), (vec![1, 0, 0], vec![1, 0, 1]));
        assert_eq!(log.outcomes, [0.0, 1.0, 0.0]);
        assert_eq!(log.propensities.unwrap(), [0.5, 0.25, 1.0]);
        assert_eq!(log.other_columns, ["x"]);

        let columns = Columns { outcome: "value".into(), ..Columns::default() };
        let text = "item_id,position,value\nb,0,-1.5\nB,0,2e3\n9,0,1\n";
        let log = read(text, &columns, 0).unwrap();
        assert_eq!(log.items, ["9", "B", "b"]);
        assert_eq!((log.item, log.propensities), (vec![2, 1, 0], None));
        assert_eq!(log.outcomes, [-1.5, 2000.0, 1.0]);
    }

    #[test]
    fn a_table_of_parquet_is_read_as_a_text_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.parquet");
        let columns = vec![
            Column::new("item_id".into(), [7_i64, 3, 7]),
            Column::new("position".into(), [2_i32, 1, 1]),
            Column::new("click".into(), [true, false, true]),
            Column::new("propensity_score".into(), [0.5_f32, 0.25, 0.0]),
        ];
        let mut table = DataFrame::new_infer_height(columns).unwrap();
        crate::dataset::parquet::write_table(&mut table, &path).unwrap();
        assert!(Columns::default().are_in(&path));
        let error = PositionLog::read(&path, &Columns::default(), 0).unwrap_err().to_string();
        assert!(error.contains("row 3: column `propensity_score`"), "{error}");
        let log = PositionLog::read(&path, &Columns::default(), 1).unwrap();
        assert_eq!((log.items, log.item), (vec!["3".into(), "7".into()], vec![1, 0]));
        assert_eq!((log.outcomes, log.position), (vec![1.0, 0.0], vec![1, 0]));
    }

    #[test]
    fn a_bad_row_is_named_or_counted_by_its_reason() {
        const HEADER: &str = "item_id,position,click,propensity_score\na,1,0,0.5\n";
        let rows = [
            ("a,1,0,0", "propensity_score", "above 0 and at most 1, found `0`"),
            ("a,1,0,1.5", "propensity_score", "at most 1, found `1.5`"),
            ("a,1,0,NaN", "propensity_score", "at most 1, found `NaN`"),
            ("a,1,0,", "propensity_score", "at most 1, found ``"),
            ("a,1,0,half", "propensity_score", "at most 1, found `half`"),
            ("a,1,inf,0.5", "click", "a finite number, found `inf`"),
            ("a,1,,0.5", "click", "a finite number, found ``"),
            ("a,top,0,0.5", "position", "a whole number, found `top`"),
            ("a,1.5,0,0.5", "position", "a whole number, found `1.5`"),
            (",1,0,0.5", "item_id", "an id, found ``"),
        ];
        for (row, column, says) in rows {
            let text = format!("{HEADER}{row}\n");
            let error = read(&text, &Columns::default(), 0).unwrap_err().to_string();
            assert!(error.contains(&format!("log.csv: row 2: column `{column}`")), "{error}");
            assert!(error.ends_with(says), "{error}");
            let log = read(&text, &Columns::default(), 1).unwrap();
            assert_eq!((log.len(), log.bad.skipped), (1, 1));
        }
        let text = format!("{HEADER}{}\n", rows.map(|row| row.0).join("\n"));
        let log = read(&text, &Columns::default(), 10).unwrap();
        let counts: Vec<u64> = log.bad.reasons.0.values().copied().collect();
        assert_eq!((log.bad.skipped, counts), (10, vec![2, 5, 2, 1]));
        assert!(log.bad.first.unwrap().contains("row 2"));
        let error = read(&text, &Columns::default(), 9).unwrap_err().to_string();
        assert!(error.contains("row 11") && error.contains("9 rows before it"), "{error}");
    }

    #[test]
    fn a_file_without_the_columns_or_rows_is_refused() {
        let error = |text: &str| read(text, &Columns::default(), 9).unwrap_err().to_string();
        let missing = error("item,position,click\na,1,0\n");
        assert!(
            missing.contains("no column `item_id`; the columns are item, position"),
            "{missing}"
        );
        assert!(error("").ends_with("is empty"));
        assert!(error("item_id,position,click\n").ends_with("holds no rows"));
        assert!(error("item_id,position,click\n,1,0\n").ends_with("no row that can be read"));
        let long = error("item_id,position,click\na,1,0\nb,1,0,7\n");
        assert!(long.contains("row 2: expected 3 fields, found 4"), "{long}");
        let named = Columns { propensity: Some("p".into()), ..Columns::default() };
        let missing = read("item_id,position,click\na,1,0\n", &named, 0).unwrap_err().to_string();
        assert!(missing.contains("no column `p`"), "{missing}");
        let error = PositionLog::read(Path::new("log.txt"), &named, 0).unwrap_err().to_string();
        assert!(error.contains("log.txt: expected a .csv"), "{error}");
    }
}
