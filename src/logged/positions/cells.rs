//! The columns of some rows of a log of positions → each row's numbers, or the rule that it breaks.

use std::path::Path;

use polars::prelude::*;

use super::columns::Found;
use crate::dataset::{Batch, as_ids};
use crate::error::{Error, Result};

/// What a cell has to be.
#[derive(Clone, Copy)]
pub(super) struct Rule {
    /// The place of the column.
    column: usize,
    expected: &'static str,
    pub(super) reason: &'static str,
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

/// The numbers of a row that can be used.
pub(super) struct Row {
    pub(super) position: i64,
    pub(super) outcome: f64,
    pub(super) propensity: f64,
}

/// The numbers that texts are; `True` and `False`, as pandas writes them, are 1 and 0.
fn truths(texts: &StringChunked) -> Float64Chunked {
    let number = |text: &str| match text {
        "True" | "true" | "TRUE" => Some(1.0),
        "False" | "false" | "FALSE" => Some(0.0),
        number => number.trim().parse().ok(),
    };
    texts.iter().map(|text| text.and_then(number)).collect()
}

/// The columns of a batch: ids, and numbers where a cell is one.
pub(super) struct Cells<'a> {
    path: &'a Path,
    found: &'a Found,
    batch: &'a Batch,
    /// Integers or text.
    pub(super) items: Series,
    numbers: Vec<Vec<Option<f64>>>,
}

impl<'a> Cells<'a> {
    pub(super) fn new(path: &'a Path, found: &'a Found, batch: &'a Batch) -> Result<Self> {
        for (cells, name) in batch.columns[2..].iter().zip(&found.names[2..]) {
            if cells.dtype().is_temporal() {
                let problem = format!(
                    "column `{name}`: expected numbers, found times; make 1 of a time and 0 of an empty cell"
                );
                return Err(Error::file(path, problem));
            }
        }
        let numbers = batch.columns[1..].iter().map(|cells| {
            let cells = match cells.str() {
                Ok(texts) => truths(texts).into_series(),
                Err(_) => cells.cast(&DataType::Float64)?,
            };
            Ok(cells.f64()?.iter().collect())
        });
        let numbers: PolarsResult<Vec<_>> = numbers.collect();
        let numbers = numbers.map_err(|error| Error::reading(path, error))?;
        Ok(Self { path, found, batch, items: as_ids(path, &batch.columns[0])?, numbers })
    }

    /// The row at `at`, or the first rule that it breaks.
    pub(super) fn row(&self, at: usize) -> Result<Row, Rule> {
        let number = |rule: Rule| {
            let cells = self.numbers.get(rule.column - 1);
            cells.and_then(|cells| cells[at]).filter(|number| number.is_finite()).ok_or(rule)
        };
        let position = number(POSITION)?;
        // Beyond 2^53 an f64 skips whole numbers.
        if position.fract() != 0.0 || position.abs() > 9_007_199_254_740_992.0 {
            return Err(POSITION);
        }
        let propensity = if self.found.has_propensities() { number(PROPENSITY)? } else { 1.0 };
        if propensity <= 0.0 || propensity > 1.0 {
            return Err(PROPENSITY);
        }
        #[allow(clippy::cast_possible_truncation, reason = "a whole number that fits")]
        let position = position as i64;
        if !self.has_item(at) {
            return Err(ITEM);
        }
        Ok(Row { position, outcome: number(OUTCOME)?, propensity })
    }

    fn has_item(&self, at: usize) -> bool {
        match self.items.try_str() {
            Some(ids) => ids.get(at).is_some_and(|id| !id.is_empty()),
            None => self.items.try_i64().is_some_and(|ids| ids.get(at).is_some()),
        }
    }

    /// Names the cell that breaks a rule.
    pub(super) fn problem(&self, rule: Rule, at: usize) -> Error {
        let cell = self.batch.columns[rule.column].get(at).ok().filter(|cell| !cell.is_null());
        Error::Cell {
            path: self.path.to_owned(),
            row: self.batch.row(at),
            column: self.found.names[rule.column].clone(),
            expected: rule.expected,
            found: cell.map_or_else(String::new, |cell| cell.str_value().to_string()),
        }
    }
}
