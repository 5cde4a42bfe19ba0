//! The results of cells go in; means over seeds with standard errors, and curves of them, come out.

use crate::chart::Point;
use crate::estimate;
use crate::experiment::grid::Row;
use crate::experiment::results::{CellOutcome, CellResult, Measurement, Results};

/// The cells that differ in their seed alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// The data set's name.
    pub data: &'a str,
    /// The row's name.
    pub row: &'a str,
    /// S.
    pub samples: usize,
    /// K.
    pub slate_size: usize,
}

/// Results by place.
#[derive(Debug)]
pub struct Summary<'a> {
    pub(super) results: &'a Results,
    pub(super) rows: Vec<Row>,
}

/// A mean over seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OverSeeds {
    /// The mean.
    pub mean: f64,
    /// Its standard error; none for a single seed.
    pub error: Option<f64>,
}

/// The horizontal axis of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Across {
    /// Seconds of training.
    Seconds,
    /// Steps.
    Steps,
}

/// The vertical axis of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Up {
    /// The reward on the grid's split.
    Reward,
    /// log₁₀ of the gradient's variance.
    Variance,
}

impl OverSeeds {
    fn of(values: &[f64]) -> Option<Self> {
        let estimate::Estimate { mean, standard_error } =
            estimate::Estimate::of(values.iter().copied());
        let error = (values.len() > 1).then_some(standard_error);
        (!values.is_empty()).then_some(Self { mean, error })
    }

    /// True if the 95 % interval includes 0 (Student's t over seeds); false for a single seed, which
    /// has no interval.
    fn may_be_zero(self, seeds: usize) -> bool {
        let Some(error) = self.error else { return false };
        self.mean.abs() <= estimate::student_t(seeds - 1) * error
    }
}

impl<'a> Summary<'a> {
    /// A summary of `results`.
    #[must_use]
    pub fn new(results: &'a Results) -> Self {
        Self { results, rows: results.grid.rows() }
    }

    /// The cells at `place` that have ended.
    pub(super) fn cells(&self, place: Place) -> impl Iterator<Item = &'a CellResult> {
        self.results.cells.iter().filter(move |CellResult { cell, .. }| {
            let (data, row) = (cell.data.as_str(), cell.row.as_str());
            place == Place { data, row, samples: cell.samples, slate_size: cell.slate_size }
        })
    }

    fn trained(&self, place: Place) -> impl Iterator<Item = &'a CellResult> {
        self.cells(place).filter(|cell| matches!(cell.outcome, CellOutcome::Trained { .. }))
    }

    /// The mean over seeds of a number that trained cells have.
    pub(super) fn mean(
        &self,
        place: Place,
        of: impl Fn(&CellResult) -> Option<f64>,
    ) -> Option<OverSeeds> {
        OverSeeds::of(&self.trained(place).filter_map(of).collect::<Vec<_>>())
    }

    /// The reward after the last step, on the grid's split.
    #[must_use]
    pub fn reward(&self, place: Place) -> Option<OverSeeds> {
        self.mean(place, |cell| cell.last_reward(self.results.grid.split))
    }

    /// True if the seeds that both places have do not tell their rewards apart: the 95 % interval of
    /// the paired difference includes 0.
    pub(super) fn ties(&self, one: Place, other: Place) -> bool {
        let split = self.results.grid.split;
        let difference = |cell: &CellResult| {
            let twin = self.trained(other).find(|twin| twin.cell.seed == cell.cell.seed)?;
            Some(cell.last_reward(split)? - twin.last_reward(split)?)
        };
        let differences: Vec<f64> = self.trained(one).filter_map(difference).collect();
        OverSeeds::of(&differences).is_some_and(|mean| mean.may_be_zero(differences.len()))
    }

    /// Why a cell at `place` is "N/A".
    pub(super) fn reason(&self, place: Place) -> Option<&'a str> {
        self.cells(place).find_map(|cell| match &cell.outcome {
            CellOutcome::NotAvailable { reason, .. } => Some(reason.as_str()),
            CellOutcome::Trained { .. } => None,
        })
    }

    /// The fewest and the most seeds of a place with a trained cell.
    #[must_use]
    pub fn seeds(&self) -> (usize, usize) {
        let counts = self.places().into_iter().map(|place| self.trained(place).count());
        let counts: Vec<usize> = counts.filter(|count| *count > 0).collect();
        (counts.iter().copied().min().unwrap_or(0), counts.iter().copied().max().unwrap_or(0))
    }

    /// Every place of the grid: by data set, K, row, S.
    pub(super) fn places(&self) -> Vec<Place<'_>> {
        let grid = &self.results.grid;
        let mut places = Vec::new();
        for data in &grid.data {
            for &slate_size in &grid.slate_sizes {
                for row in &self.rows {
                    let (data, row) = (data.name.as_str(), row.name.as_str());
                    let place = |&samples| Place { data, row, samples, slate_size };
                    places.extend(grid.samples.iter().map(place));
                }
            }
        }
        places
    }

    /// The evaluations averaged over seeds, where all seeds have one that can be drawn. The band is the standard
    /// error over seeds, or over users if there is one seed.
    #[must_use]
    pub fn curve(&self, place: Place, across: Across, up: Up) -> Vec<Point> {
        let of_cell = |cell: &CellResult| {
            cell.measurements.iter().map(|at| self.point(at, across, up)).collect::<Vec<_>>()
        };
        let has_points = |curve: &Vec<Option<Point>>| curve.iter().any(Option::is_some);
        let curves: Vec<Vec<Option<Point>>> =
            self.trained(place).map(of_cell).filter(has_points).collect();
        let shortest = curves.iter().map(Vec::len).min().unwrap_or(0);
        let average = |at: usize| {
            let points: Vec<Point> = curves.iter().map(|curve| curve[at]).collect::<Option<_>>()?;
            let of = |axis: fn(&Point) -> f64| {
                OverSeeds::of(&points.iter().map(axis).collect::<Vec<_>>())
            };
            let (x, y) = (of(|point| point.x)?, of(|point| point.y)?);
            Some(Point { x: x.mean, y: y.mean, error: y.error.unwrap_or(points[0].error) })
        };
        (0..shortest).filter_map(average).collect()
    }

    /// A point of one cell, with the error over users.
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

    /// The reward at the end for a bar: with the error over seeds, or over users if there is one seed.
    #[must_use]
    pub fn bar(&self, place: Place) -> Option<(f64, f64)> {
        let OverSeeds { mean, error } = self.reward(place)?;
        let of_users = || {
            let last = self.trained(place).next()?.measurements.last()?;
            Some(last.reward(self.results.grid.split)?.reward_se)
        };
        Some((mean, error.or_else(of_users).unwrap_or(0.0)))
    }
}

/// Seconds per step, over the whole training.
pub(super) fn step_seconds(cell: &CellResult) -> Option<f64> {
    match cell.outcome {
        CellOutcome::Trained { steps, seconds, .. } if steps > 0 => Some(seconds / steps as f64),
        _ => None,
    }
}

/// Bytes that training took beyond what was loaded before it.
pub(super) fn training_bytes(cell: &CellResult) -> Option<u64> {
    match cell.outcome {
        CellOutcome::Trained { training_memory, .. } => Some(training_memory?.0),
        CellOutcome::NotAvailable { .. } => None,
    }
}
