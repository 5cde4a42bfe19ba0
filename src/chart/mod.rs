//! Charts: lines with bands and bars, as SVG and in the terminal.
//!
//! What has no place on an axis, NaN, the infinite and what is not above 0 on a logarithmic one, is
//! left out. A picture is a panel as wide as a phone; a page sets several beside each other.

mod bars;
mod lines;
mod scale;
mod svg;
mod terminal;
mod theme;

/// Lines over a common axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// What stands above it.
    pub title: String,
    /// Across.
    pub x: Axis,
    /// Up.
    pub y: Axis,
    /// The lines; their order is that of the legend.
    pub lines: Vec<Line>,
}

/// An axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// What it shows, with its unit.
    pub name: String,
    /// Whether equal distances are equal ratios.
    pub logarithmic: bool,
}

/// A line of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Its name in the legend.
    pub name: String,
    /// Its colour's place in the palette; the same in all charts of a report for what is the same.
    pub colour: usize,
    /// Its points, by x.
    pub points: Vec<Point>,
}

/// A point of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Across.
    pub x: f64,
    /// Up.
    pub y: f64,
    /// The band around the line goes so far to both sides; 0: none.
    pub error: f64,
}

/// Bars beside each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    /// What stands above them.
    pub title: String,
    /// What they show, with its unit.
    pub y: String,
    /// The bars.
    pub bars: Vec<Bar>,
}

/// A bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// What stands at it.
    pub name: String,
    /// Its colour's place in the palette.
    pub colour: usize,
    /// How high it is, with a whisker so far to both sides; nothing: "N/A".
    pub value: Option<(f64, f64)>,
}
