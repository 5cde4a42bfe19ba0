//! Tables of slates that another system showed → their rows: whose slate it was, what stood on it, what
//! each position earned and, where it is known, how likely each item was to stand there.
//!
//! A table is a Parquet file with a row for each slate:
//!
//! | column | content |
//! |---|---|
//! | `user`, `items` or `context` | one of them: an id, a list of the ids of known items, or a list of numbers |
//! | `slate` | a list of item ids, the first on top |
//! | `outcomes` | what happened at each position, such as 1 for a click |
//! | `propensities` | may be absent: the probability, above 0, that the item stands at its position |

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use polars::prelude::*;
use serde::Serialize;

use super::columns::Columns;
use crate::bundle::Who;
use crate::dataset::parquet::{column_names, num_rows, pieces};
use crate::error::{Error, Result};
use crate::files::digest_file;

const USER: &str = "user";
const ITEMS: &str = "items";
const CONTEXT: &str = "context";
const SLATE: &str = "slate";
const OUTCOMES: &str = "outcomes";
const PROPENSITIES: &str = "propensities";

/// Rows that are read at once.
const PIECE: usize = 1 << 14;

/// A slate that another system showed.
#[derive(Clone, Debug, PartialEq)]
pub struct Impression {
    /// Whose slate it was.
    pub who: Who,
    /// The ids of the items, the first on top.
    pub slate: Vec<String>,
    /// What happened at each position.
    pub outcomes: Vec<f32>,
    /// How likely each item was to stand at its position.
    pub propensities: Option<Vec<f32>>,
}

/// The rows of tables of slates, in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Impressions {
    /// The rows, in the order of the files.
    pub rows: Vec<Impression>,
    /// Digest of the files.
    pub digest: String,
}

/// What tables of slates hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Held {
    /// Rows.
    pub slates: u64,
    /// Users, or known items, or contexts, that differ.
    pub people: u64,
    /// Slates of each length.
    pub lengths: BTreeMap<usize, u64>,
    /// Slates on which some outcome is above 0.
    pub above_zero: u64,
    /// Slates with propensities.
    pub propensities: u64,
    /// What is missing, a sentence each.
    pub missing: Vec<String>,
    /// What can be learned, a sentence each.
    pub learnable: Vec<String>,
}

impl Impressions {
    /// Reads the tables at `paths`; none if these are logs of another kind.
    ///
    /// # Errors
    /// [`Error::File`] for a table beside a log of another kind, or with another choice of columns; an
    /// error naming the file, and the row or column that is not what it should be.
    pub fn read<P: AsRef<Path>>(paths: &[P]) -> Result<Option<Self>> {
        let paths: Vec<&Path> = paths.iter().map(AsRef::as_ref).collect();
        let tables = paths.iter().map(|path| is_table(path)).collect::<Result<Vec<bool>>>()?;
        if !tables.contains(&true) {
            return Ok(None);
        }
        if let Some(at) = tables.iter().position(|is| !is) {
            let problem = "stands beside a table of slates, and is none: give logs of one kind";
            return Err(Error::file(paths[at], problem));
        }
        let (mut rows, mut digests) = (Vec::new(), blake3::Hasher::new());
        for path in paths {
            digests.update(digest_file(path)?.as_bytes());
            read(path, &mut rows)?;
        }
        Ok(Some(Self { rows, digest: digests.finalize().to_hex().to_string() }))
    }

    /// What these tables hold.
    #[must_use]
    pub fn held(&self) -> Held {
        let mut held = Held { slates: self.rows.len() as u64, ..Held::default() };
        let mut people = HashSet::new();
        for row in &self.rows {
            people.insert(format!("{:?}", row.who));
            *held.lengths.entry(row.slate.len()).or_default() += 1;
            held.above_zero += u64::from(row.outcomes.iter().any(|outcome| *outcome > 0.0));
            held.propensities += u64::from(row.propensities.is_some());
        }
        held.people = people.len() as u64;
        let (some, all) = (held.above_zero > 0, held.propensities == held.slates);
        let said = |rules: &[(bool, &str)]| {
            let kept = rules.iter().filter(|(holds, _)| *holds);
            kept.map(|(_, text)| (*text).to_owned()).collect()
        };
        held.missing = said(&[
            (held.slates == 0, "slates: nothing was shown"),
            (!some && held.slates > 0, "outcomes above 0: nobody knows what the slates were worth"),
            (!all, "the propensity of each position: `ips` and `doubly-robust` need it"),
            (true, "z and σ: only slates of `slate serve` that explore have weights"),
        ]);
        held.learnable = said(&[
            (some, "rewards by `--estimate` direct, position-based or cascade-clicks"),
            (some && all, "rewards by `--estimate` ips or doubly-robust"),
        ]);
        held
    }
}

/// True for a Parquet file whose rows are slates with their outcomes.
fn is_table(path: &Path) -> Result<bool> {
    if path.is_dir() || path.extension().is_none_or(|extension| extension != "parquet") {
        return Ok(false);
    }
    let names = column_names(path)?;
    Ok([SLATE, OUTCOMES].iter().all(|column| names.iter().any(|name| name == column)))
}

/// Appends the rows of the file at `path`.
fn read(path: &Path, rows: &mut Vec<Impression>) -> Result<()> {
    let names = column_names(path)?;
    let has = |column: &&str| names.iter().any(|name| name == column);
    let who: Vec<&str> = [USER, ITEMS, CONTEXT].into_iter().filter(has).collect();
    let [who] = who[..] else {
        let problem = format!(
            "expected one of the columns `{USER}`, `{ITEMS}` and `{CONTEXT}`, found {}",
            if who.is_empty() { "none".to_owned() } else { who.join(" and ") }
        );
        return Err(Error::file(path, problem));
    };
    let list = |of| DataType::List(Box::new(of));
    let mut columns = vec![
        (who, if who == USER { DataType::String } else { list(id_or_number(who)) }),
        (SLATE, list(DataType::String)),
        (OUTCOMES, list(DataType::Float32)),
    ];
    if has(&PROPENSITIES) {
        columns.push((PROPENSITIES, list(DataType::Float32)));
    }
    let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    let mut above = 0;
    for piece in pieces(path, &names, 0..num_rows(path)?, PIECE)? {
        let mut table = piece?;
        for (name, dtype) in &columns {
            let column = table.column(name).map_err(|error| Error::library(*name, error))?;
            // A cast would make a list of each single value.
            let fits = column.dtype().is_list() == dtype.is_list();
            let cast = fits.then(|| column.cast(dtype).ok()).flatten().ok_or_else(|| {
                let problem =
                    format!("column `{name}`: expected {dtype}, found {}", column.dtype());
                Error::file(path, problem)
            })?;
            table.with_column(cast).map_err(|error| Error::library(*name, error))?;
        }
        let columns = Columns::new(&table, path, above);
        let (mut slate, mut outcomes) = (columns.texts(SLATE)?, columns.numbers(OUTCOMES)?);
        let known = names.contains(&PROPENSITIES);
        let mut propensities = known.then(|| columns.numbers(PROPENSITIES)).transpose()?;
        let people: Vec<Who> = match who {
            USER => {
                let user = |id| Who::User { id, newer: Vec::new() };
                columns.text(USER)?.map(user).collect()
            }
            ITEMS => columns.texts(ITEMS)?.map(Who::Items).collect(),
            _ => columns.numbers(CONTEXT)?.map(Who::Context).collect(),
        };
        for (at, who) in people.into_iter().enumerate() {
            let row = Impression {
                who,
                slate: slate.next().unwrap_or_default(),
                outcomes: outcomes.next().unwrap_or_default(),
                propensities: propensities.as_mut().and_then(Iterator::next),
            };
            row.check().map_err(|problem| columns.refused(at, problem))?;
            rows.push(row);
        }
        above += table.height();
    }
    Ok(())
}

fn id_or_number(who: &str) -> DataType {
    if who == CONTEXT { DataType::Float32 } else { DataType::String }
}

impl Impression {
    /// Refuses a row that nobody could learn from, with what is wrong.
    fn check(&self) -> Result<(), String> {
        let lengths = [
            (OUTCOMES, Some(self.outcomes.len())),
            (PROPENSITIES, self.propensities.as_ref().map(Vec::len)),
        ];
        let size = self.slate.len();
        if size == 0 {
            return Err("expected at least one item on the slate, found none".into());
        }
        for (name, length) in lengths {
            if let Some(length) = length.filter(|length| *length != size) {
                return Err(format!(
                    "column `{name}`: expected {size} numbers, one for each item of the slate, found \
                     {length}"
                ));
            }
        }
        if let Some(at) = self.outcomes.iter().position(|outcome| !outcome.is_finite()) {
            let found = self.outcomes[at];
            return Err(format!("the outcome at position {at} is {found}, expected a number"));
        }
        let propensities = self.propensities.as_deref().unwrap_or_default();
        let probability = |found: &f32| *found > 0.0 && *found <= 1.0;
        match propensities.iter().position(|found| !probability(found)) {
            None => Ok(()),
            Some(at) => Err(format!(
                "the propensity at position {at} is {}, expected a probability above 0 and at most 1",
                propensities[at]
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use fs_err as fs;

    use super::*;

    /// Two slates for users with numbers as ids; `spoil` changes the table.
    fn written(path: &Path, spoil: impl Fn(DataFrame) -> DataFrame) {
        let list = |name: &str, values: [Series; 2]| Column::new(name.into(), values);
        let table = DataFrame::new_infer_height(vec![
            Column::new(USER.into(), [7_i64, 8]),
            list(SLATE, [Series::from_iter([1_i64, 2]), Series::from_iter([3_i64, 1])]),
            list(OUTCOMES, [Series::from_iter([1_i64, 0]), Series::from_iter([0_i64, 0])]),
            list(PROPENSITIES, [Series::from_iter([0.5, 0.25]), Series::from_iter([0.125, 1.0])]),
        ]);
        let mut table = spoil(table.unwrap());
        ParquetWriter::new(fs::File::create(path).unwrap()).finish(&mut table).unwrap();
    }

    #[test]
    fn rows_are_read_whatever_the_types_of_ids_and_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("slates.parquet");
        written(&path, |table| table);
        let found = Impressions::read(&[&path, &path]).unwrap().unwrap();
        let row = Impression {
            who: Who::User { id: "7".into(), newer: Vec::new() },
            slate: vec!["1".into(), "2".into()],
            outcomes: vec![1.0, 0.0],
            propensities: Some(vec![0.5, 0.25]),
        };
        assert_eq!((found.rows.len(), &found.rows[2]), (4, &row));
        let held = found.held();
        assert_eq!((held.people, held.above_zero, held.lengths[&2]), (2, 2, 4));
        assert_eq!(held.learnable.len(), 2);

        written(&path, |table| table.drop(PROPENSITIES).unwrap());
        let found = Impressions::read(&[&path]).unwrap().unwrap();
        assert_eq!(found.rows[0], Impression { propensities: None, ..row });
        assert_eq!(found.held().learnable.len(), 1);
        written(&path, |table| table.drop(OUTCOMES).unwrap());
        assert!(Impressions::read(&[&path]).unwrap().is_none());
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_row_or_column() {
        type Spoil = fn(DataFrame) -> DataFrame;
        let spoils: [(Spoil, &str); 5] = [
            (|table| table.drop(USER).unwrap(), "expected one of the columns `user`"),
            (
                |mut table| {
                    let lists = [Series::from_iter([0.5, 0.0]), Series::from_iter([0.5, 0.5])];
                    table.with_column(Column::new(PROPENSITIES.into(), lists)).unwrap().clone()
                },
                "row 1: the propensity at position 1 is 0",
            ),
            (
                |mut table| {
                    let lists = [Series::from_iter([0.5, 0.1]), Series::from_iter([0.5])];
                    table.with_column(Column::new(PROPENSITIES.into(), lists)).unwrap().clone()
                },
                "row 2: column `propensities`: expected 2 numbers",
            ),
            (
                |mut table| {
                    let lists = [Series::from_iter([0.5, f64::NAN]), Series::from_iter([0.0, 0.0])];
                    table.with_column(Column::new(OUTCOMES.into(), lists)).unwrap().clone()
                },
                "row 1: the outcome at position 1 is NaN",
            ),
            (
                |mut table| {
                    table.with_column(Column::new(SLATE.into(), [1.0, 2.0])).unwrap().clone()
                },
                "column `slate`: expected list[str], found f64",
            ),
        ];
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("slates.parquet");
        for (spoil, says) in spoils {
            written(&path, spoil);
            let error = Impressions::read(&[&path]).unwrap_err().to_string();
            assert!(error.contains(says) && error.contains("slates.parquet"), "{error}");
        }
        written(&path, |table| table);
        let error = Impressions::read(&[&path, &folder.path().to_owned()]).unwrap_err().to_string();
        assert!(error.contains("give logs of one kind"), "{error}");
    }
}
