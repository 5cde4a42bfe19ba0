//! A summary goes in; the pictures of a report come out: small panels, with the same colours for the
//! same rows.

use super::document::{Figure, Panel};
use super::growth::{self, Quantity};
use super::summary::{Across, Place, Summary, Up};
use super::words::{budget, errors, lines, name, users};
use crate::chart::{Axis, Bar, Bars, Chart, Line, Point};
use crate::error::Result;
use crate::experiment::cell::file_name;
use crate::experiment::grid::FigureKind;

/// A longer training is shown in minutes.
const MANY_SECONDS: f64 = 300.0;

/// The part of the grid that a panel shows.
struct Frame<'a> {
    name: String,
    title: String,
    /// The name, the colour and the place of each line or bar.
    lines: Vec<(String, usize, Place<'a>)>,
}

/// The difference between the lines of a panel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Row,
    SlateSize,
    /// A row and S: bars.
    RowAndSamples,
}

/// The figure of a kind. Panels without data are left out.
///
/// # Errors
/// Fails if the drawing library fails.
pub(super) fn figure(summary: &Summary, kind: FigureKind) -> Result<Figure> {
    let (across, up, by) = match kind {
        FigureKind::RewardOverTime => (Across::Seconds, Up::Reward, By::Row),
        FigureKind::RewardOverSteps => (Across::Steps, Up::Reward, By::Row),
        FigureKind::RewardOverStepsByRow => (Across::Steps, Up::Reward, By::SlateSize),
        FigureKind::Variance => (Across::Steps, Up::Variance, By::Row),
        FigureKind::VarianceByRow => (Across::Steps, Up::Variance, By::SlateSize),
        FigureKind::FinalReward => return final_rewards(summary, kind),
        FigureKind::StepTime => return growth::figure(summary, kind, Quantity::Time),
        FigureKind::Memory => return growth::figure(summary, kind, Quantity::Memory),
    };
    curves(summary, kind, &frames(summary, by), across, up)
}

/// The panels of the grid, each with its lines.
fn frames<'a>(summary: &'a Summary, by: By) -> Vec<Frame<'a>> {
    let grid = &summary.results.grid;
    let mut frames: Vec<Frame> = Vec::new();
    for place in summary.places() {
        let Place { data, row, samples, slate_size } = place;
        let (on, of) = (file_name(data), file_name(row));
        let colour = summary.rows.iter().position(|other| other.name == row).unwrap_or(0);
        let (name, title, line, colour) = match by {
            By::Row => (
                format!("{on}-s{samples}-k{slate_size}"),
                format!("{data}, S = {samples}, K = {slate_size}"),
                row.to_owned(),
                colour,
            ),
            By::SlateSize => (
                format!("{on}-{of}-s{samples}"),
                format!("{data}, {row}, S = {samples}"),
                format!("K = {slate_size}"),
                grid.slate_sizes.iter().position(|other| *other == slate_size).unwrap_or(0),
            ),
            By::RowAndSamples => {
                let several = grid.samples.len() > 1;
                let bar = if several { format!("{row}, S = {samples}") } else { row.to_owned() };
                let title = format!("{data}, K = {slate_size}");
                (format!("{on}-k{slate_size}"), title, bar, colour)
            }
        };
        match frames.iter_mut().find(|frame| frame.name == name) {
            Some(frame) => frame.lines.push((line, colour, place)),
            None => frames.push(Frame { name, title, lines: vec![(line, colour, place)] }),
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
    let over = match across {
        Across::Seconds => "over the time of training, without evaluations",
        Across::Steps => "over the optimiser's steps",
    };
    let users = users(grid.split);
    let (y, what, bands) = match up {
        Up::Reward => (
            format!("mean reward, {users}"),
            format!("Mean reward of the decision on {users}"),
            errors(summary, "Bands"),
        ),
        Up::Variance => (
            "log₁₀ variance of the gradient".to_owned(),
            "The variance of a batch's gradient, E‖G − E G‖², as its log₁₀,".to_owned(),
            lines(summary),
        ),
    };
    let mut panels = Vec::new();
    for frame in frames {
        let line = |(name, colour, place): &(String, usize, Place)| {
            let points = summary.curve(*place, across, up).into_iter();
            let points = points.map(|point| Point { x: point.x / unit, ..point }).collect();
            Line { name: name.clone(), colour: *colour, points }
        };
        let shown = frame.lines.iter().map(line).filter(|line| !line.points.is_empty());
        let chart = Chart {
            title: frame.title.clone(),
            x: Axis { name: x.into(), logarithmic: false },
            y: Axis { name: y.clone(), logarithmic: false },
            lines: shown.collect(),
        };
        if !chart.lines.is_empty() {
            panels.push(panel(kind, frame, chart.svg()?, not_available(summary, frame)));
        }
    }
    Ok(Figure { caption: format!("{what} {over}; {}. {bands}.", budget(grid)), panels })
}

/// A panel for each data set and K; a bar for each row and S.
fn final_rewards(summary: &Summary, kind: FigureKind) -> Result<Figure> {
    let grid = &summary.results.grid;
    let mut panels = Vec::new();
    for frame in &frames(summary, By::RowAndSamples) {
        let begun = frame.lines.iter().filter(|line| summary.cells(line.2).next().is_some());
        let bar = |(name, colour, place): &(String, usize, Place)| {
            let value = summary.bar(*place);
            Bar { name: name.clone(), colour: *colour, value }
        };
        let bars: Vec<Bar> = begun.map(bar).collect();
        if !bars.is_empty() {
            let y = format!("mean reward, {}", users(grid.split));
            let svg = Bars { title: frame.title.clone(), y, bars }.svg()?;
            panels.push(panel(kind, frame, svg, String::new()));
        }
    }
    let (users, bands) = (users(grid.split), errors(summary, "Whiskers"));
    let after = budget(grid);
    let caption = format!("Mean reward of the decision on {users} after {after}. {bands}.");
    Ok(Figure { caption, panels })
}

fn panel(kind: FigureKind, frame: &Frame, svg: String, note: String) -> Panel {
    let name = format!("{}-{}", name(kind), frame.name);
    Panel { name, title: frame.title.clone(), svg, note }
}

fn not_available(summary: &Summary, frame: &Frame) -> String {
    let is_missing = |place| summary.reward(place).is_none() && summary.reason(place).is_some();
    let missing = frame.lines.iter().filter(|(_, _, place)| is_missing(*place));
    let names: Vec<_> = missing.map(|(name, _, _)| name.as_str()).collect();
    if names.is_empty() { String::new() } else { format!("N/A: {}", names.join(", ")) }
}
