//! A table of users → features: numbers are standardised, text and booleans one-hot, both by the
//! values of the training users.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use polars::prelude::*;
use serde::{Deserialize, Serialize};

use super::bytes::Packed;
use super::table::{Table, ids};
use crate::dataset::{FeatureColumn, FeatureTable, Split, UserFeatures};
use crate::error::{Error, Result, listed};
use crate::matrix::Matrix;

/// The most categories of one column that have a feature each.
const CATEGORIES: usize = 100;

/// How pandas names the columns of an index without a name.
const INDEX: &str = "__index_level_";

/// What is expected where most cells of a column of text are numbers.
const MOSTLY_NUMBERS: &str = "a number, as most rows have (leave the cell empty where there is none; of \
                              categories, write a column of text in Parquet)";

/// A table of users, one row each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FeatureSource {
    /// A .parquet, .csv or .tsv file (gzipped or not); it is held in memory as a whole.
    pub path: PathBuf,
    /// The column of user ids, as the log has them.
    pub id_column: String,
    /// The columns of features; empty: all other columns, without an index of pandas that has no name.
    pub columns: Vec<String>,
}

/// The cells of a table of users.
#[derive(Clone, Debug)]
pub struct UserTable {
    path: PathBuf,
    id_column: String,
    /// Row of each id.
    rows: HashMap<String, usize>,
    columns: Vec<(String, Cells)>,
}

/// The cells of a column; `None` where a cell is empty.
#[derive(Clone, Debug)]
enum Cells {
    Numbers(Vec<Option<f64>>),
    Categories(Vec<Option<String>>),
}

impl UserTable {
    /// Reads the columns that `source` names.
    ///
    /// # Errors
    /// A file that is missing or damaged, a column that is missing or of another type, a row without
    /// an id or with one that came before, or a number that is infinite: each names the file.
    pub fn read(source: &FeatureSource) -> Result<Self> {
        let FeatureSource { path, id_column, columns } = source;
        let table = Table::open(&Packed::file(path))?;
        let is_feature = |name: &&String| *name != id_column && !name.starts_with(INDEX);
        let columns: Vec<String> = match columns.as_slice() {
            [] => table.names.iter().filter(is_feature).cloned().collect(),
            given => given.to_vec(),
        };
        if columns.is_empty() || columns.contains(id_column) {
            let found = listed(&table.names);
            let problem = format!(
                "expected features beside the ids in `{id_column}`; the columns are {found}"
            );
            return Err(Error::file(path, problem));
        }
        let rows = rows(path, &table.column(id_column)?)?;
        let cells = |name: String| {
            let cells = cells(path, &table.column(&name)?, table.is_typed())?;
            Ok((name, cells))
        };
        let columns = columns.into_iter().map(cells).collect::<Result<_>>()?;
        Ok(Self { path: path.clone(), id_column: id_column.clone(), rows, columns })
    }

    /// The features of the users with `ids`, one for each context; those of a user stand together.
    /// Mean, deviation and categories are computed from the contexts whose `split` is training.
    ///
    /// # Errors
    /// [`Error::File`] if no user has a row, no training user has a value, or one is too large.
    pub fn features(&self, ids: &[String], split: &[Split]) -> Result<UserFeatures> {
        let rows: Vec<Option<usize>> = ids.iter().map(|id| self.rows.get(id).copied()).collect();
        if rows.iter().all(Option::is_none) {
            let example =
                |id: Option<&String>| id.map_or_else(String::new, |id| format!(" (`{id}`)"));
            let problem = format!(
                "column `{}`: none of its {} ids{} is a user of the log{}",
                self.id_column,
                self.rows.len(),
                example(self.rows.keys().min()),
                example(ids.first()),
            );
            return Err(Error::file(&self.path, problem));
        }
        let trained_on = rows.iter().zip(split).filter(|(_, split)| **split == Split::Train);
        let trained_on: Vec<usize> = trained_on.filter_map(|(row, _)| *row).collect();
        let columns: Vec<FeatureColumn> = self
            .columns
            .iter()
            .map(|(name, cells)| cells.column(name.clone(), &trained_on))
            .collect();
        let too_large = |name: &str| {
            let problem = format!("column `{name}` has numbers that are too large to be scaled");
            Error::file(&self.path, problem)
        };
        for column in &columns {
            if let FeatureColumn::Number { name, deviation, .. } = column
                && !deviation.is_finite()
            {
                return Err(too_large(name));
            }
        }
        let width = columns.iter().map(FeatureColumn::width).sum();
        if width == 0 {
            let problem = "no training user has a value in any of its columns of features";
            return Err(Error::file(&self.path, problem));
        }
        let mut values = Matrix::zeros(ids.len(), width);
        let mut first = 0;
        for ((name, cells), column) in self.columns.iter().zip(&columns) {
            let range = first..first + column.width();
            for (context, row) in rows.iter().enumerate() {
                let to = &mut values.row_mut(context)[range.clone()];
                if let Some(row) = row {
                    cells.write(*row, column, to);
                }
                if !to.iter().all(|value| value.is_finite()) {
                    return Err(too_large(name));
                }
            }
            first = range.end;
        }
        let users = ids.chunk_by(PartialEq::eq);
        let users_without_row = users.filter(|of| !self.rows.contains_key(&of[0])).count();
        Ok(UserFeatures { values, table: FeatureTable { width, users_without_row, columns } })
    }
}

impl Cells {
    /// The statistics of the column over the rows in `trained_on`.
    fn column(&self, name: String, trained_on: &[usize]) -> FeatureColumn {
        match self {
            Self::Numbers(numbers) => {
                let known: Vec<f64> = trained_on.iter().filter_map(|&row| numbers[row]).collect();
                let count = known.len().max(1) as f64;
                let mean = known.iter().sum::<f64>() / count;
                let squares = known.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
                // Rounding would give equal numbers a deviation.
                let constant = known.iter().all(|value| value.total_cmp(&known[0]).is_eq());
                let deviation = if constant { 0.0 } else { (squares / count).sqrt() };
                FeatureColumn::Number { name, mean, deviation }
            }
            Self::Categories(cells) => {
                let mut counts = HashMap::<&String, usize>::new();
                for category in trained_on.iter().filter_map(|&row| cells[row].as_ref()) {
                    *counts.entry(category).or_default() += 1;
                }
                let mut counts: Vec<_> = counts.into_iter().collect();
                counts.sort_unstable_by_key(|(category, count)| (Reverse(*count), *category));
                let categories = counts.into_iter().take(CATEGORIES);
                let categories = categories.map(|(category, _)| category.clone()).collect();
                FeatureColumn::Category { name, categories }
            }
        }
    }

    /// Writes the features of a row into `to`, which are zeros.
    #[allow(clippy::cast_possible_truncation, reason = "features are f32")]
    fn write(&self, row: usize, column: &FeatureColumn, to: &mut [f32]) {
        match (self, column) {
            (Self::Numbers(numbers), FeatureColumn::Number { mean, deviation, .. }) => {
                if let Some(value) = numbers[row].filter(|_| *deviation > 0.0) {
                    to[0] = ((value - mean) / deviation) as f32;
                }
            }
            (Self::Categories(cells), FeatureColumn::Category { categories, .. }) => {
                let category = cells[row].as_ref();
                if let Some(at) = categories.iter().position(|it| Some(it) == category) {
                    to[at] = 1.0;
                }
            }
            _ => {}
        }
    }
}

/// The row of each id.
fn rows(path: &Path, column: &Series) -> Result<HashMap<String, usize>> {
    let mut rows = HashMap::with_capacity(column.len());
    for (at, (id, row)) in ids(path, column)?.into_iter().enumerate() {
        if let Some(earlier) = rows.insert(id.clone(), at) {
            let problem = format!("user `{id}` is in row {} already", earlier + 1);
            return Err(Error::Row { path: path.to_owned(), row, problem });
        }
    }
    Ok(rows)
}

/// Reads a column as numbers if its cells are, otherwise as categories. In a `typed` table, Parquet,
/// text is never numbers.
fn cells(path: &Path, column: &Series, typed: bool) -> Result<Cells> {
    let wrap = |error| wrap(path, error);
    let dtype = column.dtype();
    let numbers = match dtype {
        DataType::String if typed => None,
        DataType::String => {
            let numbers = column.cast(&DataType::Float64).map_err(wrap)?;
            let texts = column.str().map_err(wrap)?.iter();
            let is_text = |text: Option<&str>| text.is_some_and(|text| !text.is_empty());
            let read = numbers.f64().map_err(wrap)?.iter().zip(texts).enumerate();
            let others = read.filter(|(_, (number, text))| number.is_none() && is_text(*text));
            let others: Vec<usize> = others.map(|(at, _)| at).collect();
            match others.first() {
                None => Some(numbers),
                // One `NA` would make each number a category.
                Some(&at) if numbers.len() - numbers.null_count() > others.len() => {
                    return Err(cell_error(path, column, at, MOSTLY_NUMBERS));
                }
                Some(_) => None,
            }
        }
        dtype if dtype.is_primitive_numeric() => {
            Some(column.cast(&DataType::Float64).map_err(wrap)?)
        }
        DataType::Boolean => None,
        found => {
            let problem = format!(
                "column `{}`: expected numbers, text or booleans, found {found}",
                column.name()
            );
            return Err(Error::file(path, problem));
        }
    };
    let Some(numbers) = numbers else {
        let texts = column.cast(&DataType::String).map_err(wrap)?;
        let texts = texts.str().map_err(wrap)?.iter();
        let texts = texts.map(|text| text.filter(|text| !text.is_empty()).map(ToOwned::to_owned));
        return Ok(Cells::Categories(texts.collect()));
    };
    let numbers = numbers.f64().map_err(wrap)?.iter();
    let numbers: Vec<_> = numbers.map(|number| number.filter(|number| !number.is_nan())).collect();
    if let Some(at) = numbers.iter().position(|number| number.is_some_and(f64::is_infinite)) {
        return Err(cell_error(path, column, at, "a finite number"));
    }
    Ok(Cells::Numbers(numbers))
}

/// [`Error::Cell`] for the cell at `at`.
fn cell_error(path: &Path, column: &Series, at: usize, expected: &'static str) -> Error {
    Error::Cell {
        path: path.to_owned(),
        row: at as u64 + 1,
        column: column.name().to_string(),
        expected,
        found: column.get(at).map_or_else(|_| String::new(), |it| it.str_value().to_string()),
    }
}

fn wrap(path: &Path, error: PolarsError) -> Error {
    Error::reading(path, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &str = "user,age,country,pro\n\
                         a,20,se,true\nb,40,no,false\n\nc,,se,\nd,90,dk,true\nz,1000,fi,true\n";

    fn source(text: &str, columns: &[&str]) -> (tempfile::TempDir, FeatureSource) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users.csv");
        fs_err::write(&path, text).unwrap();
        let columns = columns.iter().map(ToString::to_string).collect();
        (folder, FeatureSource { path, id_column: "user".into(), columns })
    }

    fn features(source: &FeatureSource, ids: &[&str]) -> Result<UserFeatures> {
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        // The last one is not trained on.
        let mut split = vec![Split::Train; ids.len()];
        split[ids.len() - 1] = Split::Test;
        UserTable::read(source)?.features(&ids, &split)
    }

    fn problem(text: &str) -> String {
        let (_folder, source) = source(text, &[]);
        features(&source, &["a", "b"]).unwrap_err().to_string()
    }

    #[test]
    fn training_users_alone_say_what_a_number_and_a_category_are() {
        let (_folder, source) = source(USERS, &[]);
        let found = features(&source, &["a", "absent", "b", "c", "d"]).unwrap();
        let columns = [
            FeatureColumn::Number { name: "age".into(), mean: 30.0, deviation: 10.0 },
            FeatureColumn::Category {
                name: "country".into(),
                categories: vec!["se".into(), "no".into()],
            },
            FeatureColumn::Category {
                name: "pro".into(),
                categories: vec!["false".into(), "true".into()],
            },
        ];
        let table = FeatureTable { width: 5, users_without_row: 1, columns: columns.to_vec() };
        assert_eq!(found.table, table);
        let rows: Vec<_> = found.values.iter_rows().collect();
        assert_eq!(
            rows,
            [
                [-1.0, 1.0, 0.0, 0.0, 1.0],
                [0.0; 5],
                [1.0, 0.0, 1.0, 1.0, 0.0],
                [0.0, 1.0, 0.0, 0.0, 0.0],
                // dk is nobody's who is trained on.
                [6.0, 0.0, 0.0, 0.0, 1.0],
            ]
        );
    }

    #[test]
    fn parquet_says_the_same_in_types() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users.parquet");
        let mut table = DataFrame::new_infer_height(vec![
            Column::new("age".into(), [Some(20_i32), Some(40), None, Some(90)]),
            Column::new("user".into(), [7_u32, 8, 9, 10]),
            Column::new("height".into(), [1.5_f32, f32::NAN, 1.7, 2.0]),
            Column::new("pro".into(), [Some(true), Some(false), None, Some(true)]),
            // Text stays text here.
            Column::new("postcode".into(), ["010", "010", "020", "010"]),
        ]);
        let file = fs_err::File::create(&path).unwrap();
        ParquetWriter::new(file).finish(table.as_mut().unwrap()).unwrap();
        let source = FeatureSource { path, id_column: "user".into(), columns: vec![] };
        let found = features(&source, &["7", "8", "9", "10"]).unwrap();
        let widths: Vec<_> = found.table.columns.iter().map(FeatureColumn::width).collect();
        assert_eq!(widths, [1, 1, 2, 2]);
        // 1.6 ± 0.1 of the heights that are known.
        let height: Vec<_> = found.values.iter_rows().map(|row| (row[1] * 8.0).round()).collect();
        assert_eq!(height, [-8.0, 0.0, 8.0, 32.0]);
        assert_eq!(found.values.row(3), [6.0, found.values.row(3)[1], 0.0, 1.0, 1.0, 0.0]);

        let dates = Column::new("user".into(), [1_i32; 4]).cast(&DataType::Date).unwrap();
        let mut table = table.unwrap();
        table.with_column(dates.with_name("since".into())).unwrap();
        ParquetWriter::new(fs_err::File::create(&source.path).unwrap()).finish(&mut table).unwrap();
        let message = UserTable::read(&source).unwrap_err().to_string();
        assert!(
            message.contains("column `since`: expected numbers, text or booleans"),
            "{message}"
        );
    }

    #[test]
    fn columns_are_chosen_in_their_order_and_equal_numbers_say_nothing() {
        let text = "x,user,y,z\n0.1,a,5,u\n0.1,b,6,v\n0.1,c,9,u\n7,d,1,u\n";
        let (_folder, source) = source(text, &["z", "x"]);
        let found = features(&source, &["a", "b", "c", "d"]).unwrap();
        let rows: Vec<_> = found.values.iter_rows().collect();
        assert_eq!(rows, [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]);
    }

    #[test]
    fn an_index_of_pandas_is_a_feature_only_if_it_is_named() {
        let text = "user,age,__index_level_0__\na,1,7\nb,2,8\nc,3,9\n";
        for (columns, names) in
            [(&[][..], vec!["age"]), (&["__index_level_0__"], vec!["__index_level_0__"])]
        {
            let (_folder, source) = source(text, columns);
            let table = UserTable::read(&source).unwrap();
            assert_eq!(table.columns.iter().map(|(name, _)| name).collect::<Vec<_>>(), names);
        }
    }

    #[test]
    fn rare_categories_are_not_told_apart() {
        let users = (0..150).map(|at| format!("u{at},c{}\n", at.min(120)));
        let text = "user,country\n".to_owned() + &users.collect::<String>();
        let (_folder, source) = source(&text, &[]);
        let ids: Vec<_> = (0..150).map(|at| format!("u{at}")).collect();
        let found = features(&source, &ids.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
        assert_eq!(found.values.cols(), 100);
        assert_eq!(found.values.row(149)[0], 1.0); // the most frequent
        let told: f32 = found.values.as_slice().iter().sum();
        assert_eq!(told, 30.0 + 99.0);
    }

    #[test]
    fn what_is_wrong_with_a_table_of_users_is_named() {
        for (text, said) in [
            ("user,age\na,1\nb,2\na,3\n", "users.csv: row 3: user `a` is in row 1 already"),
            ("user,age\na,1\n,2\n", "row 2: column `user`: expected an id"),
            ("user,age\na,1\nb\n", "row 2: expected 2 fields, found 1"),
            (
                "user,age\na,1\nb,inf\n",
                "row 2: column `age`: expected a finite number, found `inf`",
            ),
            ("id,age\na,1\n", "no column `user`; the columns are id, age"),
            ("user\na\n", "expected features beside the ids in `user`"),
            (
                "user,age\nx,1\ny,2\n",
                "column `user`: none of its 2 ids (`x`) is a user of the log (`a`)",
            ),
            (
                "user,age\na,1\nb,\nc,NA\nd,2\n",
                "row 3: column `age`: expected a number, as most rows have (leave the cell empty",
            ),
            ("user,town\na,\nb,x\n", "no training user has a value"),
            ("", "users.csv: is empty"),
        ] {
            let message = problem(text);
            assert!(message.contains("users.csv") && message.contains(said), "{message}");
        }
        for rows in ["a,1e308\nb,-1e308\nc,2\n", "a,1\nb,2\nc,1e300\n"] {
            let (_folder, source) = source(&format!("user,age\n{rows}"), &[]);
            let message = features(&source, &["a", "b", "c"]).unwrap_err().to_string();
            assert!(message.contains("column `age` has numbers that are too large"), "{message}");
        }
        let (_folder, source) = source(USERS, &["age", "town"]);
        let message = UserTable::read(&source).unwrap_err().to_string();
        assert!(message.contains("no column `town`; the columns are user, age"), "{message}");
    }
}
