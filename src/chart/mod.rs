//! Numbers go in; charts come out: lines with bands, and bars, as SVG and in the terminal.
//!
//! Numbers without a place on an axis are left out: NaN, infinity, and on a logarithmic axis 0 and
//! less. A picture is a panel as wide as a phone; a page sets several beside each other.

mod bars;
mod lines;
mod scale;
mod svg;
mod terminal;
mod theme;

/// Lines over a common axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// Its title.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The lines, in the order of the legend.
    pub lines: Vec<Line>,
}

/// An axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Its quantity and unit.
    pub name: String,
    /// True if equal distances are equal ratios.
    pub logarithmic: bool,
}

/// A line of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Its name in the legend.
    pub name: String,
    /// Its colour's place in the palette; the same for the same row in all charts of a report.
    pub colour: usize,
    /// Its points, by x.
    pub points: Vec<Point>,
}

/// A point of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Its place on the horizontal axis.
    pub x: f64,
    /// Its place on the vertical axis.
    pub y: f64,
    /// Half the height of the band around the line; 0 for no band.
    pub error: f64,
}

/// Bars beside each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    /// Their title.
    pub title: String,
    /// Their quantity and unit.
    pub y: String,
    /// The bars.
    pub bars: Vec<Bar>,
}

/// A bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// Its name.
    pub name: String,
    /// Its colour's place in the palette.
    pub colour: usize,
    /// Its length, and half the length of its whisker; none for "N/A".
    pub value: Option<(f64, f64)>,
}
