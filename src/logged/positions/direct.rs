//! The rows of a log of positions → the direct model q(item, position): the mean outcome of an item at
//! a position, shrunk towards the mean of the position. Rows are divided into folds, and the model of a
//! row was fitted without the rows of its fold, so q never saw the outcome that it corrects.

use super::PositionLog;
use crate::device::available_memory;
use crate::error::{Error, Result};
use crate::seed::{Purpose, Seed};

/// How q is fitted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DirectOptions {
    /// The number of folds, at least 2.
    pub folds: u32,
    /// The position's mean counts as so many rows of each item; at least 0.
    pub prior_rows: f64,
    /// The seed of the folds.
    pub seed: Seed,
}

impl Default for DirectOptions {
    fn default() -> Self {
        Self { folds: 5, prior_rows: 100.0, seed: Seed(0) }
    }
}

impl DirectOptions {
    fn check(self) -> Result<()> {
        if self.folds < 2 {
            let problem = format!("is {}, expected at least 2", self.folds);
            return Err(Error::setting("folds", problem));
        }
        if !(self.prior_rows >= 0.0 && self.prior_rows.is_finite()) {
            let problem = format!("is {}, expected at least 0", self.prior_rows);
            return Err(Error::setting("prior_rows", problem));
        }
        Ok(())
    }
}

/// Rows and the sum of their outcomes.
#[derive(Clone, Copy, Default)]
struct Sum {
    rows: f64,
    total: f64,
}

impl Sum {
    fn add(&mut self, other: Self) {
        self.rows += other.rows;
        self.total += other.total;
    }

    fn without(self, other: Self) -> Self {
        Self { rows: self.rows - other.rows, total: self.total - other.total }
    }

    /// The mean with `prior` rows of `mean` more; `mean` without any row.
    fn shrunk(self, prior: f64, mean: f64) -> f64 {
        let rows = self.rows + prior;
        if rows > 0.0 { (self.total + prior * mean) / rows } else { mean }
    }
}

/// The models of all folds.
pub(super) struct Direct {
    /// The fold of each row, `[n]`.
    pub(super) fold_of: Vec<u32>,
    num_items: usize,
    /// q of each fold, `[positions, items]`.
    tables: Vec<Vec<f64>>,
    /// The mean of each position that q shrinks to, by fold.
    means: Vec<Vec<f64>>,
}

impl Direct {
    /// Fits a model for each fold.
    ///
    /// # Errors
    /// [`Error::Setting`] for fewer than two folds, or a weight of the prior below 0; [`Error::File`] for
    /// more items and positions than there is memory for.
    pub(super) fn fit(log: &PositionLog, options: DirectOptions) -> Result<Self> {
        options.check()?;
        // A sum of each fold and of all, and the tables that are made of them.
        let sums =
            (log.items.len() * log.positions.len()) as f64 * (f64::from(options.folds) + 2.0);
        let bytes = sums * size_of::<Sum>() as f64;
        if let Some(available) = available_memory().filter(|available| *available < bytes) {
            let problem = format!(
                "has {} items at {} positions, which need {:.1} GB of memory in {} folds; {:.1} GB are left",
                log.items.len(),
                log.positions.len(),
                bytes / 1e9,
                options.folds,
                available / 1e9,
            );
            return Err(Error::file(&log.path, problem));
        }
        let mut stream = options.seed.stream(Purpose::Folds, 0, 0);
        let fold_of = (0..log.len()).map(|_| stream.below(options.folds)).collect();
        Ok(Self::of(log, fold_of, options))
    }

    fn of(log: &PositionLog, fold_of: Vec<u32>, options: DirectOptions) -> Self {
        let (num_items, num_positions) = (log.items.len(), log.positions.len());
        let none = vec![Sum::default(); num_items * num_positions];
        let mut sums = vec![none.clone(); options.folds as usize];
        let mut all = none;
        for (row, fold) in fold_of.iter().enumerate() {
            let at = log.position[row] as usize * num_items + log.item[row] as usize;
            let sum = Sum { rows: 1.0, total: log.outcomes[row] };
            sums[*fold as usize][at].add(sum);
            all[at].add(sum);
        }
        let (mut tables, mut means) = (Vec::new(), Vec::new());
        for sums in sums {
            let cells: Vec<Sum> = all.iter().zip(sums).map(|(all, own)| all.without(own)).collect();
            let merged = |cells: &[Sum]| {
                let mut merged = Sum::default();
                for cell in cells {
                    merged.add(*cell);
                }
                merged
            };
            let mean = merged(&cells).shrunk(0.0, 0.0);
            let (mut table, mut at_position) = (Vec::with_capacity(cells.len()), Vec::new());
            for cells in cells.chunks_exact(num_items) {
                let mean = merged(cells).shrunk(0.0, mean);
                table.extend(cells.iter().map(|cell| cell.shrunk(options.prior_rows, mean)));
                at_position.push(mean);
            }
            tables.push(table);
            means.push(at_position);
        }
        Self { fold_of, num_items, tables, means }
    }

    /// q of all items at a position, for the rows of a fold.
    pub(super) fn at(&self, fold: usize, position: usize) -> &[f64] {
        &self.tables[fold][position * self.num_items..(position + 1) * self.num_items]
    }

    /// The mean outcome at a position, for the rows of a fold.
    pub(super) fn mean(&self, fold: usize, position: usize) -> f64 {
        self.means[fold][position]
    }

    /// q of the item and position of a row.
    pub(super) fn of_row(&self, log: &PositionLog, row: usize) -> f64 {
        self.at(self.fold_of[row] as usize, log.position[row] as usize)[log.item[row] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::log;
    use super::*;

    #[test]
    fn q_by_hand_is_that_of_the_other_folds() {
        let log = log(
            3,
            &[
                (0, 0, 1.0, 0.5),
                (0, 0, 0.0, 0.5),
                (1, 0, 1.0, 0.5),
                (1, 0, 1.0, 0.5),
                (0, 1, 4.0, 0.5),
            ],
        );
        let options = DirectOptions { folds: 2, prior_rows: 1.0, ..DirectOptions::default() };
        let direct = Direct::of(&log, vec![0, 1, 1, 1, 0], options);
        // Fold 0 is judged by rows 1 to 3: the mean of position 0 is 2/3, and position 1 has no row.
        assert_eq!(direct.at(0, 0), [(2.0 / 3.0) / 2.0, (2.0 + 2.0 / 3.0) / 3.0, 2.0 / 3.0]);
        assert_eq!(direct.at(0, 1), [2.0 / 3.0; 3]);
        // Fold 1 is judged by rows 0 and 4.
        assert_eq!(direct.at(1, 0), [1.0, 1.0, 1.0]);
        assert_eq!(direct.at(1, 1), [4.0; 3]);
        assert_eq!((direct.mean(0, 1), direct.mean(1, 1)), (2.0 / 3.0, 4.0));
        assert_eq!(direct.of_row(&log, 2), 1.0);
    }

    #[test]
    fn the_own_outcome_of_a_row_does_not_move_its_q() {
        let rows: Vec<_> =
            (0..60).map(|row| (row % 4, row % 2, f64::from(row % 3), 0.25)).collect();
        let mut log = log(4, &rows);
        let options = DirectOptions::default();
        let before = Direct::fit(&log, options).unwrap();
        for row in 0..log.len() {
            let outcome = std::mem::replace(&mut log.outcomes[row], 1000.0);
            let after = Direct::fit(&log, options).unwrap();
            assert_eq!(after.of_row(&log, row), before.of_row(&log, row));
            log.outcomes[row] = outcome;
        }
        let error = Direct::fit(&log, DirectOptions { folds: 1, ..options }).err().unwrap();
        assert!(error.to_string().contains("`folds`: is 1"), "{error}");
    }
}
