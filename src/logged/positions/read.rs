//! A CSV, TSV or Parquet file → a log of positions in numbers. Every bad row is named, and refused or
//! counted.

use std::path::{Path, PathBuf};

use polars::prelude::*;
use serde::Serialize;

use super::super::Unused;
use super::cells::Cells;
use super::columns::{Columns, Format, Found};
use crate::dataset::parquet::{column_names, read_columns};
use crate::dataset::{self, Batch, Numbered, Packed, Wanted as _, read_text};
use crate::error::{Error, Result};

/// The most positions: a policy has a probability for each of them and each item.
const MOST_POSITIONS: usize = 1000;

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
    /// [`Error::MissingColumn`]; [`Error::Row`] or [`Error::Cell`] for the first bad row, or
    /// [`Error::TooManyBadRows`]; [`Error::File`] for another kind of file, or one without a row that can
    /// be read.
    pub fn read(path: &Path, columns: &Columns, skip_bad_rows: u64) -> Result<Self> {
        let mut rows = Rows::default();
        let mut bad = dataset::BadRows::up_to(skip_bad_rows);
        let found = match Format::of(path)? {
            Format::Text => read_text(
                &Packed::file(path),
                &mut bad,
                |path, available| columns.find(path, available),
                |path, found, batch, bad| rows.add(path, found, batch, bad),
            )?,
            Format::Parquet => {
                let found = columns.find(path, &column_names(path)?)?;
                let names: Vec<&str> = found.names().collect();
                let table = read_columns(path, &names)?;
                let cells = table.columns().iter();
                let columns = cells.map(|cells| cells.as_materialized_series().rechunk()).collect();
                let batch = Batch { first_row: 1, numbers: Vec::new(), columns };
                rows.add(path, &found, &batch, &mut bad)?;
                found
            }
        };
        rows.finish(path, found, bad)
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

    /// The numbers of the rows at each position.
    #[must_use]
    pub fn rows_at(&self) -> Vec<Vec<usize>> {
        let mut rows = vec![Vec::new(); self.positions.len()];
        for (row, position) in self.position.iter().enumerate() {
            rows[*position as usize].push(row);
        }
        rows
    }

    /// The rows among `rows` whose outcome is above 0.
    #[must_use]
    pub fn above_zero(&self, rows: &[usize]) -> usize {
        rows.iter().filter(|row| self.outcomes[**row] > 0.0).count()
    }
}

/// The rows of a log while it is read; items and positions are numbered as they come.
#[derive(Default)]
struct Rows {
    items: Numbered,
    positions: Numbered,
    item: Vec<u32>,
    position: Vec<u32>,
    outcomes: Vec<f64>,
    propensities: Vec<f64>,
    reasons: Unused,
}

impl Rows {
    /// Takes the rows of `batch`, but for those that are `bad`.
    fn add(
        &mut self,
        path: &Path,
        found: &Found,
        batch: &Batch,
        bad: &mut dataset::BadRows,
    ) -> Result<()> {
        let cells = Cells::new(path, found, batch)?;
        let (mut keep, mut positions) = (vec![true; cells.items.len()], Vec::new());
        for (at, keep) in keep.iter_mut().enumerate() {
            match cells.row(at) {
                Ok(row) => {
                    positions.push(row.position);
                    self.outcomes.push(row.outcome);
                    self.propensities.push(row.propensity);
                }
                Err(rule) => {
                    *keep = false;
                    bad.skip(cells.problem(rule, at))?;
                    self.reasons.add(rule.reason);
                }
            }
        }
        self.item.extend(self.items.number(&cells.items, &keep)?);
        let (all, positions) = (vec![true; positions.len()], Series::new("".into(), positions));
        self.position.extend(self.positions.number(&positions, &all)?);
        Ok(())
    }

    /// The log of the file at `path`.
    fn finish(mut self, path: &Path, found: Found, bad: dataset::BadRows) -> Result<PositionLog> {
        if self.item.is_empty() {
            let problem = match bad.first {
                None => "holds no rows".into(),
                Some(first) => format!("holds no row that can be read; the first: {first}"),
            };
            return Err(Error::file(path, problem));
        }
        // Records that are no rows of the table were left out before they came here.
        let of_cells: u64 = self.reasons.0.values().sum();
        if bad.skipped > of_cells {
            self.reasons.0.insert(UNEVEN.into(), bad.skipped - of_cells);
        }
        let wrap = |error| Error::reading(path, error);
        let ranked = |ids: Numbered, numbers: &mut [u32]| {
            let all = vec![true; ids.len()];
            let (ids, ranks) = ids.ranked(&all);
            for number in numbers {
                *number = ranks[*number as usize];
            }
            ids
        };
        let items = ranked(self.items, &mut self.item).cast(&DataType::String).map_err(wrap)?;
        let positions = ranked(self.positions, &mut self.position);
        if positions.len() > MOST_POSITIONS {
            let problem = format!(
                "column `{}` has {} different numbers, expected at most {MOST_POSITIONS} positions; \
                 name the column of the place in the slate",
                found.names[1],
                positions.len(),
            );
            return Err(Error::file(path, problem));
        }
        Ok(PositionLog {
            path: path.to_owned(),
            items: items.str().map_err(wrap)?.iter().flatten().map(ToOwned::to_owned).collect(),
            positions: positions.i64().map_err(wrap)?.iter().flatten().collect(),
            item: self.item,
            position: self.position,
            outcomes: self.outcomes,
            propensities: found.has_propensities().then_some(self.propensities),
            other_columns: found.others,
            bad: BadRows { skipped: bad.skipped, reasons: self.reasons, first: bad.first },
        })
    }
}

/// Why a record is no row of the table.
const UNEVEN: &str = "other fields than the header, an open quote, or text that is not UTF-8";

#[cfg(test)]
mod tests {
    use fs_err as fs;

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
            assert!(error.contains(says), "{error}");
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
    fn a_row_of_other_fields_is_named_or_counted() {
        const TEXT: &str = "item_id,position,click\na,1,0\nb,1,0,7\nb,2\nb,2,1\n";
        let error = read(TEXT, &Columns::default(), 0).unwrap_err().to_string();
        assert!(error.contains("log.csv: row 2: expected 3 fields, found 4"), "{error}");
        let log = read(TEXT, &Columns::default(), 2).unwrap();
        assert_eq!((log.item, log.position, log.bad.skipped), (vec![0, 1], vec![0, 1], 2));
        assert_eq!(log.bad.reasons.0.into_values().collect::<Vec<_>>(), [2]);
        assert!(log.bad.first.unwrap().contains("found 4"));
        let error = read(TEXT, &Columns::default(), 1).unwrap_err().to_string();
        assert!(error.contains("row 3: expected 3 fields, found 2"), "{error}");
    }

    #[test]
    fn truths_are_numbers() {
        let text = "item_id,position,click\na,1,True\nb,1,false\nc,1,0.5\n";
        assert_eq!(read(text, &Columns::default(), 0).unwrap().outcomes, [1.0, 0.0, 0.5]);
        let error = read("item_id,position,click\na,1,yes\n", &Columns::default(), 0);
        assert!(error.unwrap_err().to_string().contains("found `yes`"));
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
        let unread = error("item_id,position,click\n,1,0\n");
        assert!(unread.contains("no row that can be read; the first: "), "{unread}");
        assert!(unread.contains("row 1: column `item_id`"), "{unread}");
        let named = Columns { propensity: Some("p".into()), ..Columns::default() };
        let missing = read("item_id,position,click\na,1,0\n", &named, 0).unwrap_err().to_string();
        assert!(missing.contains("no column `p`"), "{missing}");
        let rows: Vec<String> = (0..1001).map(|at| format!("a,{},0", 1_700_000_000 + at)).collect();
        let text = format!("item_id,position,click\n{}\n", rows.join("\n"));
        let times = read(&text, &Columns::default(), 0);
        let times = times.unwrap_err().to_string();
        assert!(times.contains("column `position` has 1001 different numbers"), "{times}");
        let error = PositionLog::read(Path::new("log.txt"), &named, 0).unwrap_err().to_string();
        assert!(error.contains("log.txt: expected a .csv"), "{error}");
    }
}
