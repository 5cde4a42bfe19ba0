//! A summary goes in; the growth of a step's time and memory with P and with S comes out: lines on
//! logarithmic axes, and their slopes beside the orders of growth in the paper's Table 1.

use super::document::{Column, Entry, Figure, Kind, Panel, Table};
use super::summary::{Place, Summary, step_seconds, training_bytes};
use super::words::{lines, name};
use crate::chart::{Axis, Chart, Line, Point};
use crate::error::Result;
use crate::experiment::cell::file_name;
use crate::experiment::grid::{FigureKind, Row};
use crate::experiment::results::CellResult;
use crate::method::MethodKind;

/// The quantity that grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantity {
    /// Seconds per step.
    Time,
    /// MiB that training takes beyond what was loaded before.
    Memory,
}

/// A quantity's growth over P or over S, all else being equal.
struct Sweep<'a> {
    axis: &'static str,
    title: String,
    /// A part of the name of its picture's file.
    name: String,
    /// P or S, and the place it belongs to, of any row.
    places: Vec<(usize, Place<'a>)>,
}

impl Quantity {
    fn of(self, cell: &CellResult) -> Option<f64> {
        let value = match self {
            Self::Time => step_seconds(cell),
            Self::Memory => training_bytes(cell).map(|bytes| bytes as f64 / f64::from(1 << 20)),
        };
        value.filter(|value| *value > 0.0 && value.is_finite())
    }

    fn axis(self) -> &'static str {
        match self {
            Self::Time => "time of a step (s)",
            Self::Memory => "memory beyond loading (MiB)",
        }
    }

    fn caption(self) -> &'static str {
        match self {
            Self::Time => "The mean time of a training step",
            Self::Memory => "The most memory of the process beyond that before the first step,",
        }
    }

    /// The order of growth in the paper's Table 1.
    fn claim(self, method: Option<MethodKind>) -> &'static str {
        match (method, self) {
            (Some(MethodKind::PlPg | MethodKind::PlRank), _)
            | (Some(MethodKind::Lgp), Self::Time) => "O(S P)",
            (Some(MethodKind::LgpMips), Self::Time) => "O(S log P)",
            (Some(MethodKind::Lgp | MethodKind::LgpMips), Self::Memory) => "O(S L)",
            _ => "–",
        }
    }
}

/// All sweeps of the grid: first over P, for every S and K, then over S, for every data set and K.
fn sweeps<'a>(summary: &'a Summary) -> Vec<Sweep<'a>> {
    let (grid, data) = (&summary.results.grid, &summary.results.data);
    let mut sweeps = Vec::new();
    let place = |data, samples, slate_size| Place { data, row: "", samples, slate_size };
    for &slate_size in grid.slate_sizes.iter().filter(|_| grid.data.len() > 1) {
        for &samples in &grid.samples {
            // What a row adds to the preparation leaves P alone.
            let places = grid.data.iter().filter_map(|set| {
                let found = data.iter().find(|data| data.set == set.name)?;
                Some((found.statistics.actions, place(set.name.as_str(), samples, slate_size)))
            });
            sweeps.push(Sweep {
                axis: "actions P",
                title: format!("S = {samples}, K = {slate_size}"),
                name: format!("over-p-s{samples}-k{slate_size}"),
                places: places.collect(),
            });
        }
    }
    for data in grid.data.iter().filter(|_| grid.samples.len() > 1) {
        let name = data.name.as_str();
        for &slate_size in &grid.slate_sizes {
            let places = grid.samples.iter().map(|&s| (s, place(name, s, slate_size)));
            sweeps.push(Sweep {
                axis: "samples S",
                title: format!("{name}, K = {slate_size}"),
                name: format!("over-s-{}-k{slate_size}", file_name(name)),
                places: places.collect(),
            });
        }
    }
    sweeps
}

impl Sweep<'_> {
    /// A row's points, ascending.
    fn points(&self, summary: &Summary, row: &str, quantity: Quantity) -> Vec<Point> {
        let point = |&(x, place): &(usize, Place)| {
            let y = summary.mean(Place { row, ..place }, |cell| quantity.of(cell))?;
            Some(Point { x: x as f64, y: y.mean, error: y.error.unwrap_or(0.0) })
        };
        let mut points: Vec<Point> = self.places.iter().filter_map(point).collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        points
    }
}

/// The figure of a quantity, a panel for each sweep.
///
/// # Errors
/// Fails if the drawing library fails.
pub(super) fn figure(summary: &Summary, kind: FigureKind, quantity: Quantity) -> Result<Figure> {
    let mut panels = Vec::new();
    for sweep in sweeps(summary) {
        let line = |(colour, row): (usize, &Row)| Line {
            name: row.name.clone(),
            colour,
            points: sweep.points(summary, &row.name, quantity),
        };
        let lines = summary.rows.iter().enumerate().map(line);
        let axis = |name: &str| Axis { name: name.into(), logarithmic: true };
        let chart = Chart {
            title: sweep.title.clone(),
            x: axis(sweep.axis),
            y: axis(quantity.axis()),
            lines: lines.filter(|line| !line.points.is_empty()).collect(),
        };
        if !chart.lines.is_empty() {
            panels.push(Panel {
                name: format!("{}-{}", name(kind), sweep.name),
                title: format!("{} over {}: {}", quantity.axis(), sweep.axis, sweep.title),
                svg: chart.svg()?,
                note: String::new(),
            });
        }
    }
    let caption = format!(
        "{} over the number of actions P and over the samples S, all axes logarithmic: a line of \
         slope 1 grows in proportion. {}.",
        quantity.caption(),
        lines(summary)
    );
    Ok(Figure { caption, panels })
}

/// The slopes of the figure's lines, a column for each row of the grid; none if no line has two
/// points.
pub(super) fn slopes(summary: &Summary, quantity: Quantity) -> Option<Table> {
    let of_row = |row: &Row| Column::new(row.name.as_str(), Kind::Number).of("slope");
    let mut columns = vec![Column::new("over", Kind::Group), Column::new("at", Kind::Head)];
    columns.extend(summary.rows.iter().map(of_row));
    let mut rows = Vec::new();
    let mut any = false;
    for sweep in sweeps(summary) {
        let mut entries = vec![Entry::from(sweep.axis), Entry::from(&sweep.title)];
        for row in &summary.rows {
            let slope = slope(&sweep.points(summary, &row.name, quantity));
            any |= slope.is_some();
            entries.push(match slope {
                Some((slope, Some(error))) => format!("{slope:.2} ± {error:.2}").into(),
                Some((slope, None)) => format!("{slope:.2}").into(),
                None => "–".into(),
            });
        }
        rows.push(entries);
    }
    let claims = summary.rows.iter().map(|row| Entry::from(quantity.claim(row.method)));
    rows.push([Entry::from("the paper"), Entry::default()].into_iter().chain(claims).collect());
    let caption = "Slopes of these lines by least squares, ± standard error if there are more than \
                   two points: 1 grows in proportion, 0 does not grow. Below them the orders of \
                   growth in the paper's Table 1.";
    any.then(|| Table { caption: caption.into(), columns, rows, notes: Vec::new() })
}

/// The least-squares slope of a line through the logarithms of `points`, and its standard error if
/// there are more than two of them.
fn slope(points: &[Point]) -> Option<(f64, Option<f64>)> {
    let n = points.len() as f64;
    let mean = |of: fn(&Point) -> f64| points.iter().map(|point| of(point).ln()).sum::<f64>() / n;
    let (mean_x, mean_y) = (mean(|point| point.x), mean(|point| point.y));
    let about = |point: &Point| (point.x.ln() - mean_x, point.y.ln() - mean_y);
    let squares: f64 = points.iter().map(|point| about(point).0.powi(2)).sum();
    if points.len() < 2 || squares <= 0.0 {
        return None;
    }
    let slope = points.iter().map(|point| about(point).0 * about(point).1).sum::<f64>() / squares;
    let residual = |(x, y): (f64, f64)| (y - slope * x).powi(2);
    let residuals: f64 = points.iter().map(|point| residual(about(point))).sum();
    Some((slope, (points.len() > 2).then(|| (residuals / (n - 2.0) / squares).sqrt())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_of_a_power_law_is_its_exponent() {
        let power = |exponent: f64, xs: &[f64]| {
            let point = |&x: &f64| Point { x, y: 0.3 * x.powf(exponent), error: 0.0 };
            slope(&xs.iter().map(point).collect::<Vec<_>>())
        };
        for exponent in [0.0, 0.5, 1.0, -2.0] {
            let (slope, error) = power(exponent, &[10.0, 300.0, 1e6]).unwrap();
            assert!((slope - exponent).abs() < 1e-12, "{slope}");
            assert!(error.unwrap() < 1e-7);
        }
        assert_eq!(power(1.0, &[1.0, std::f64::consts::E]), Some((1.0, None)));
        assert_eq!(power(1.0, &[7.0]), None);
        assert_eq!(power(1.0, &[7.0, 7.0]), None);
        assert_eq!(power(1.0, &[]), None);
    }
}
