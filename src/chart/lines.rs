//! Lines over a common axis go in; a picture comes out.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::scale::Scale;
use super::svg::{self, Area, SIDE, TEXT, WIDTH, failed, px};
use super::{Chart, Line, Point, theme};
use crate::error::Result;

/// Pixels above the plot, of the plot, of the labels below it, and of the axis' name.
const TOP: u32 = 50;
const PLOT: u32 = 180;
const X_LABELS: u32 = 24;
const X_NAME: u32 = 18;

/// Pixels from one row of the legend to the next.
const ROW: u32 = 19;

/// Pixels of a stroke in the legend and the space after it.
const STROKE: u32 = 24;

/// A line of at most this many points shows each of them.
const FEW: usize = 24;

/// A point's place on both axes, and the ends of its band.
struct Placed {
    x: f64,
    y: f64,
    band: (f64, f64),
}

impl Chart {
    /// Draws an SVG document that adapts to light and dark pages.
    ///
    /// # Errors
    /// Fails if the drawing library fails.
    pub fn svg(&self) -> Result<String> {
        let columns = self.legend_columns();
        let below = TOP + PLOT + X_LABELS + X_NAME + 10;
        let rows = u32::try_from(self.lines.len().div_ceil(columns)).unwrap_or(u32::MAX / ROW);
        svg::document(&self.title, below.saturating_add(rows * ROW + 4), |area| {
            svg::head(area, &self.title, &self.y.name)?;
            let middle = (px(WIDTH / 2), px(TOP + PLOT + X_LABELS + X_NAME / 2));
            let name = svg::fitting(&self.x.name, WIDTH - 2 * SIDE, TEXT);
            let centred = svg::text(TEXT, theme::MUTED, HPos::Center);
            area.draw_text(&name, &centred, middle).map_err(failed)?;
            if let Some((x, y)) = self.scales() {
                self.draw(area, &x, &y)?;
            } else {
                let middle = (px(WIDTH / 2), px(TOP + PLOT / 2));
                area.draw_text("no data", &centred, middle).map_err(failed)?;
            }
            self.legend(area, below, columns)
        })
    }

    /// Both axes; none if no point has a place on them.
    pub(super) fn scales(&self) -> Option<(Scale, Scale)> {
        let points = || self.lines.iter().flat_map(|line| self.shown(line));
        let ends =
            points().flat_map(|point| [point.y, point.y - point.error, point.y + point.error]);
        let x = Scale::new(&self.x, points().map(|point| point.x))?;
        Some((x, Scale::new(&self.y, ends)?))
    }

    /// The points of a line that have a place on both axes.
    pub(super) fn shown<'a>(&'a self, line: &'a Line) -> impl Iterator<Item = &'a Point> {
        let placed = |point: &&Point| self.x.place(point.x).and(self.y.place(point.y)).is_some();
        line.points.iter().filter(placed)
    }

    /// A line's name in the legend, with "N/A" if no point is shown.
    pub(super) fn name(&self, line: &Line) -> String {
        let some = self.shown(line).next().is_some();
        if some { line.name.clone() } else { format!("{} (N/A)", line.name) }
    }

    fn draw(&self, area: &Area<'_>, x: &Scale, y: &Scale) -> Result<()> {
        let labels = y.ticks.iter().map(|(_, label)| svg::width(label, TEXT)).max().unwrap_or(0);
        let bottom = px(TOP + PLOT + X_LABELS);
        let (_, area) = area.split_vertically(px(TOP));
        let (area, _) = area.split_vertically(bottom - px(TOP));
        let mut builder = ChartBuilder::on(&area);
        builder.margin_right(px(SIDE + 4)).margin_left(px(SIDE - 6));
        builder.x_label_area_size(px(X_LABELS)).y_label_area_size(px(labels + 10));
        let mut plot = builder.build_cartesian_2d(x.clone(), y.clone()).map_err(failed)?;
        let style = svg::text(TEXT, theme::MUTED, HPos::Left);
        plot.configure_mesh()
            .bold_line_style(theme::GRID.stroke_width(px(1).unsigned_abs()))
            .light_line_style(TRANSPARENT)
            .axis_style(theme::AXIS.stroke_width(px(1).unsigned_abs()))
            .set_all_tick_mark_size(px(4))
            .x_label_style(style.clone())
            .y_label_style(style)
            .draw()
            .map_err(failed)?;
        let lines: Vec<_> = self.lines.iter().map(|line| (line, placed(line, x, y))).collect();
        for (line, points) in &lines {
            let band = theme::colour(line.colour % 8).mix(0.16);
            let upper = points.iter().map(|point| (point.x, point.band.1));
            let lower = points.iter().rev().map(|point| (point.x, point.band.0));
            if points.iter().any(|point| point.band.0 < point.band.1) {
                let edge: Vec<_> = upper.chain(lower).collect();
                if let [_, _] = edge[..] {
                    let wide = band.stroke_width(px(6).unsigned_abs());
                    plot.draw_series([PathElement::new(edge, wide)]).map_err(failed)?;
                } else {
                    plot.draw_series([Polygon::new(edge, band)]).map_err(failed)?;
                }
            }
        }
        for (line, points) in &lines {
            let colour = theme::colour(line.colour);
            let path = points.iter().map(|point| (point.x, point.y));
            if points.len() > 1 {
                let series =
                    LineSeries::new(path.clone(), colour.stroke_width(px(2).unsigned_abs()));
                plot.draw_series(series).map_err(failed)?;
            }
            if points.len() <= FEW {
                let dot = |at| Circle::new(at, px(5) / 2, colour.filled());
                plot.draw_series(path.map(dot)).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Two columns if all names are short enough.
    fn legend_columns(&self) -> usize {
        let room = WIDTH / 2 - SIDE - STROKE;
        let narrow = |line: &Line| svg::width(&self.name(line), TEXT) <= room;
        if self.lines.iter().all(narrow) { 2 } else { 1 }
    }

    fn legend(&self, area: &Area<'_>, top: u32, columns: usize) -> Result<()> {
        let room = px(WIDTH - 2 * SIDE) / i32::try_from(columns).unwrap_or(1);
        let style = svg::text(TEXT, theme::INK, HPos::Left);
        let characters = room.unsigned_abs() / px(1).unsigned_abs() - STROKE;
        for (row, lines) in self.lines.chunks(columns).enumerate() {
            let y = px(top + u32::try_from(row).unwrap_or(0) * ROW + ROW / 2);
            let mut x = px(SIDE);
            for line in lines {
                let colour = theme::colour(line.colour);
                let stroke = colour.stroke_width(px(2).unsigned_abs());
                let path = vec![(x, y), (x + px(STROKE - 6), y)];
                area.draw(&PathElement::new(path, stroke)).map_err(failed)?;
                let dot = Circle::new((x + px(STROKE - 6) / 2, y), px(5) / 2, colour.filled());
                area.draw(&dot).map_err(failed)?;
                let name = svg::fitting(&self.name(line), characters, TEXT);
                area.draw_text(&name, &style, (x + px(STROKE), y)).map_err(failed)?;
                x += room;
            }
        }
        Ok(())
    }
}

/// The points of a line that have a place on both axes.
fn placed(line: &Line, x: &Scale, y: &Scale) -> Vec<Placed> {
    let place = |point: &Point| {
        let error = if point.error.is_finite() { point.error.abs() } else { 0.0 };
        Some(Placed {
            x: x.place(point.x)?,
            y: y.place(point.y)?,
            band: (y.nearest(point.y - error), y.nearest(point.y + error)),
        })
    };
    line.points.iter().filter_map(place).collect()
}

impl Ranged for Scale {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, place: &f64, (from, to): (i32, i32)) -> i32 {
        #[allow(clippy::cast_possible_truncation, reason = "between the two")]
        let along = (self.share(*place) * f64::from(to - from)).round() as i32;
        from + along
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.ticks.iter().map(|(place, _)| *place).collect()
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Scale {
    fn format(place: &f64) -> String {
        place.to_string()
    }

    fn format_ext(&self, place: &f64) -> String {
        self.label(*place)
    }
}
