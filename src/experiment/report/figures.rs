//! The pictures of a report: small panels with the same colours for the same rows.

use super::document::{Figure, Panel};
use super::growth::{self, Quantity};
use super::summary::{Across, Place, Summary, Up};
use super::words::{budget, errors, lines, name, users};
use crate::chart::{Axis, Bar, Bars, Chart, Line, Point};
use crate::error::Result;
use crate::experiment::{FigureKind, Row, file_name};

/// A clock that runs for longer is read in minutes.
const MANY_SECONDS: f64 = 300.0;

/// What a panel shows of the grid.
struct Frame<'a> {
    name: String,
    title: String,
    /// A name and a colour for each, and where its points come from.
    lines: Vec<(String, usize, Place<'a>)>,
}

/// The figure of a kind. A panel for which nothing has come is left out.
///
/// # Errors
/// Those of the drawing library.
pub(super) fn figure(summary: &Summary, kind: FigureKind) -> Result<Figure> {
    match kind {
        FigureKind::RewardOverTime => {
            curves(summary, kind, &by_row(summary), Across::Seconds, Up::Reward)
        }
        FigureKind::RewardOverSteps => {
            curves(summary, kind, &by_row(summary), Across::Steps, Up::Reward)
        }
        FigureKind::RewardOverStepsByRow => {
            curves(summary, kind, &by_slate_size(summary), Across::Steps, Up::Reward)
        }
        FigureKind::Variance => {
            curves(summary, kind, &by_row(summary), Across::Steps, Up::Variance)
        }
        FigureKind::VarianceByRow => {
            curves(summary, kind, &by_slate_size(summary), Across::Steps, Up::Variance)
        }
        FigureKind::FinalReward => final_rewards(summary, kind),
        FigureKind::StepTime => growth::figure(summary, kind, Quantity::Time),
        FigureKind::Memory => growth::figure(summary, kind, Quantity::Memory),
    }
}

/// A panel for each data set, K and S; a line for each row.
fn by_row<'a>(summary: &'a Summary) -> Vec<Frame<'a>> {
    let grid = &summary.results.grid;
    let mut frames = Vec::new();
    for data in &grid.data {
        for &slate_size in &grid.slate_sizes {
            for &samples in &grid.samples {
                let line = |(colour, row): (usize, &'a Row)| {
                    let (data, row) = (data.name.as_str(), row.name.as_str());
                    (row.to_owned(), colour, Place { data, row, samples, slate_size })
                };
                frames.push(Frame {
                    name: format!("{}-s{samples}-k{slate_size}", file_name(&data.name)),
                    title: format!("{}, S = {samples}, K = {slate_size}", data.name),
                    lines: summary.rows.iter().enumerate().map(line).collect(),
                });
            }
        }
    }
    frames
}

/// A panel for each data set, row and S; a line for each K.
fn by_slate_size<'a>(summary: &'a Summary) -> Vec<Frame<'a>> {
    let grid = &summary.results.grid;
    let mut frames = Vec::new();
    for data in &grid.data {
        for row in &summary.rows {
            for &samples in &grid.samples {
                let line = |(colour, &slate_size): (usize, &usize)| {
                    let (data, row) = (data.name.as_str(), row.name.as_str());
                    let place = Place { data, row, samples, slate_size };
                    (format!("K = {slate_size}"), colour, place)
                };
                let (on, of) = (file_name(&data.name), file_name(&row.name));
                frames.push(Frame {
                    name: format!("{on}-{of}-s{samples}"),
                    title: format!("{}, {}, S = {samples}", data.name, row.name),
                    lines: grid.slate_sizes.iter().enumerate().map(line).collect(),
                });
            }
        }
    }
    frames
}

fn curves(
    summary: &Summary,
    kind: FigureKind,
    frames: &[Frame],
    across: Across,
    up: Up,
) -> Result<Figure> {
    let grid = &summary.results.grid;
    let longest = summary.results.cells.iter().filter_map(|cell| cell.measurements.last());
    let longest = longest.map(|last| last.seconds).fold(0.0, f64::max);
    let (unit, x) = match across {
        Across::Seconds if longest > MANY_SECONDS => (60.0, "training time (min)"),
        Across::Seconds => (1.0, "training time (s)"),
        Across::Steps => (1.0, "steps"),
    };
    let (y, what) = match up {
        Up::Reward => (
            format!("mean reward, {}", users(grid.split)),
            "Mean reward of the decision".to_owned(),
        ),
        Up::Variance => {
            let what = "The variance of a batch's gradient, E‖G − E G‖², as its log₁₀,".to_owned();
            ("log₁₀ variance of the gradient".to_owned(), what)
        }
    };
    let mut panels = Vec::new();
    for frame in frames {
        let lines = frame.lines.iter().map(|(name, colour, place)| Line {
            name: name.clone(),
            colour: *colour,
            points: summary
                .curve(*place, across, up)
                .into_iter()
                .map(|point| Point { x: point.x / unit, ..point })
                .collect(),
        });
        let chart = Chart {
            title: frame.title.clone(),
            x: Axis { name: x.into(), logarithmic: false },
            y: Axis { name: y.clone(), logarithmic: false },
            lines: lines.filter(|line| !line.points.is_empty()).collect(),
        };
        if !chart.lines.is_empty() {
            panels.push(Panel {
                name: format!("{}-{}", name(kind), frame.name),
                title: frame.title.clone(),
                svg: chart.svg()?,
                note: not_available(summary, frame),
            });
        }
    }
    let on = match up {
        Up::Reward => format!(" on {}", users(grid.split)),
        Up::Variance => String::new(),
    };
    let over = match across {
        Across::Seconds => "over the training clock, which stops during evaluations",
        Across::Steps => "over the optimiser's steps",
    };
    let bands = match up {
        Up::Reward => errors(summary, "Bands"),
        Up::Variance => lines(summary),
    };
    let caption = format!("{what}{on} {over}; {}. {bands}.", budget(grid));
    Ok(Figure { caption, panels })
}

/// A panel for each data set and K; a bar for each row and S.
fn final_rewards(summary: &Summary, kind: FigureKind) -> Result<Figure> {
    let grid = &summary.results.grid;
    let several = grid.samples.len() > 1;
    let mut panels = Vec::new();
    for data in &grid.data {
        for &slate_size in &grid.slate_sizes {
            let mut bars = Vec::new();
            for (colour, row) in summary.rows.iter().enumerate() {
                for &samples in &grid.samples {
                    let (data, row) = (data.name.as_str(), row.name.as_str());
                    let place = Place { data, row, samples, slate_size };
                    if summary.cells(place).next().is_some() {
                        let name =
                            if several { format!("{row}, S = {samples}") } else { row.to_owned() };
                        bars.push(Bar { name, colour, value: summary.bar(place) });
                    }
                }
            }
            if bars.is_empty() {
                continue;
            }
            let title = format!("{}, K = {slate_size}", data.name);
            let y = format!("mean reward, {}", users(grid.split));
            let bars = Bars { title: title.clone(), y, bars };
            panels.push(Panel {
                name: format!("{}-{}-k{slate_size}", name(kind), file_name(&data.name)),
                title,
                svg: bars.svg()?,
                note: String::new(),
            });
        }
    }
    let caption = format!(
        "Mean reward of the decision on {} after {}. {}.",
        users(grid.split),
        budget(grid),
        errors(summary, "Whiskers")
    );
    Ok(Figure { caption, panels })
}

fn not_available(summary: &Summary, frame: &Frame) -> String {
    let is_missing = |place| summary.reward(place).is_none() && summary.reason(place).is_some();
    let missing = frame.lines.iter().filter(|(_, _, place)| is_missing(*place));
    let names: Vec<_> = missing.map(|(name, _, _)| name.as_str()).collect();
    if names.is_empty() { String::new() } else { format!("N/A: {}", names.join(", ")) }
}
