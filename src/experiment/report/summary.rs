//! What the cells come to over their seeds: means with standard errors, and curves of them.

use crate::chart::Point;
use crate::experiment::{CellOutcome, CellResult, Measurement, Results, Row};

/// The cells that differ in their seed alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place<'a> {
    pub(super) data: &'a str,
    pub(super) row: &'a str,
    pub(super) samples: usize,
    pub(super) slate_size: usize,
}

/// Results, asked by place.
#[derive(Debug)]
pub(super) struct Summary<'a> {
    pub(super) results: &'a Results,
    pub(super) rows: Vec<Row>,
}

/// A mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimate {
    pub(super) mean: f64,
    /// Its standard error, if it is of more than one number.
    pub(super) error: Option<f64>,
}

/// What is across a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Across {
    Seconds,
    Steps,
}

/// What is up a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Up {
    /// The reward on the grid's split.
    Reward,
    /// log₁₀ of the gradient's variance.
    Variance,
}

impl Estimate {
    /// The mean of `values`, and `√(Σ(v − mean)² / (n − 1) / n)`.
    pub(super) fn of(values: &[f64]) -> Option<Self> {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let error = (values.len() > 1).then(|| (squares / (count - 1.0) / count).sqrt());
        (!values.is_empty()).then_some(Self { mean, error })
    }

    /// What the mean may well be.
    fn interval(self) -> (f64, f64) {
        let error = self.error.unwrap_or(0.0);
        (self.mean - error, self.mean + error)
    }

    /// Whether the two may well be the same.
    pub(super) fn overlaps(self, other: Self) -> bool {
        let (a, b) = (self.interval(), other.interval());
        a.0 <= b.1 && b.0 <= a.1
    }
}

impl<'a> Summary<'a> {
    pub(super) fn new(results: &'a Results) -> Self {
        Self { results, rows: results.grid.rows() }
    }

    /// The cells at `place` that have ended.
    pub(super) fn cells(&self, place: Place) -> impl Iterator<Item = &'a CellResult> {
        self.results.cells.iter().filter(move |CellResult { cell, .. }| {
            place
                == Place {
                    data: &cell.data,
                    row: &cell.row,
                    samples: cell.samples,
                    slate_size: cell.slate_size,
                }
        })
    }

    fn trained(&self, place: Place) -> impl Iterator<Item = &'a CellResult> {
        self.cells(place).filter(|cell| matches!(cell.outcome, CellOutcome::Trained { .. }))
    }

    /// The mean over seeds of what trained cells have.
    pub(super) fn mean(
        &self,
        place: Place,
        of: impl Fn(&CellResult) -> Option<f64>,
    ) -> Option<Estimate> {
        Estimate::of(&self.trained(place).filter_map(of).collect::<Vec<_>>())
    }

    /// The reward after the last step, on the grid's split.
    pub(super) fn reward(&self, place: Place) -> Option<Estimate> {
        self.mean(place, |cell| cell.last_reward(self.results.grid.split))
    }

    /// Why a cell at `place` is "N/A".
    pub(super) fn reason(&self, place: Place) -> Option<&'a str> {
        self.cells(place).find_map(|cell| match &cell.outcome {
            CellOutcome::NotAvailable { reason } => Some(reason.as_str()),
            CellOutcome::Trained { .. } => None,
        })
    }

    /// The fewest and the most seeds that any place with a trained cell has.
    pub(super) fn seeds(&self) -> (usize, usize) {
        let counts = || {
            self.places()
                .into_iter()
                .map(|place| self.trained(place).count())
                .filter(|count| *count > 0)
        };
        (counts().min().unwrap_or(0), counts().max().unwrap_or(0))
    }

    /// Every place of the grid: by data set, row, S, K.
    pub(super) fn places(&self) -> Vec<Place<'_>> {
        let grid = &self.results.grid;
        let mut places = Vec::new();
        for data in &grid.data {
            for row in &self.rows {
                for &samples in &grid.samples {
                    for &slate_size in &grid.slate_sizes {
                        let (data, row) = (data.name.as_str(), row.name.as_str());
                        places.push(Place { data, row, samples, slate_size });
                    }
                }
            }
        }
        places
    }

    /// The i-th evaluation averaged over seeds, as far as all of them have come. The band is the
    /// standard error over seeds, or that over users where there is one seed.
    pub(super) fn curve(&self, place: Place, across: Across, up: Up) -> Vec<Point> {
        let of_cell = |cell: &CellResult| {
            let points = cell.measurements.iter().filter_map(|at| self.point(at, across, up));
            points.collect::<Vec<_>>()
        };
        let curves: Vec<Vec<Point>> =
            self.trained(place).map(of_cell).filter(|curve| !curve.is_empty()).collect();
        let shortest = curves.iter().map(Vec::len).min().unwrap_or(0);
        let average = |at: usize| {
            let x = Estimate::of(&curves.iter().map(|curve| curve[at].x).collect::<Vec<_>>())?;
            let y = Estimate::of(&curves.iter().map(|curve| curve[at].y).collect::<Vec<_>>())?;
            Some(Point { x: x.mean, y: y.mean, error: y.error.unwrap_or(curves[0][at].error) })
        };
        (0..shortest).filter_map(average).collect()
    }

    /// Of one cell, with the error over users.
    fn point(&self, at: &Measurement, across: Across, up: Up) -> Option<Point> {
        let x = match across {
            Across::Seconds => at.seconds,
            Across::Steps => at.step as f64,
        };
        let (y, error) = match up {
            Up::Reward => at.reward(self.results.grid.split).map(|on| (on.reward, on.reward_se))?,
            Up::Variance => (at.gradient?.variance.log10(), 0.0),
        };
        y.is_finite().then_some(Point { x, y, error })
    }

    /// The reward at the end as a bar has it: the error over seeds, or over users where there is
    /// one seed.
    pub(super) fn bar(&self, place: Place) -> Option<(f64, f64)> {
        let Estimate { mean, error } = self.reward(place)?;
        let of_users = || {
            let last = self.trained(place).next()?.measurements.last()?;
            Some(last.reward(self.results.grid.split)?.reward_se)
        };
        Some((mean, error.or_else(of_users).unwrap_or(0.0)))
    }
}

/// Seconds of a step, over the whole training.
pub(super) fn step_seconds(cell: &CellResult) -> Option<f64> {
    match cell.outcome {
        CellOutcome::Trained { steps, seconds, .. } if steps > 0 => Some(seconds / steps as f64),
        _ => None,
    }
}

/// Bytes that training took beside what was loaded before it.
pub(super) fn training_bytes(cell: &CellResult) -> Option<u64> {
    match cell.outcome {
        CellOutcome::Trained { training_memory, .. } => Some(training_memory?.0),
        CellOutcome::NotAvailable { .. } => None,
    }
}
