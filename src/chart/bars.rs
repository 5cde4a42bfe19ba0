//! Bars go in; a picture comes out. Bars grow from left to right, so that long names fit beside them.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::scale::{Scale, alike};
use super::svg::{self, Area, SIDE, TEXT, WIDTH, failed, px};
use super::{Axis, Bar, Bars, theme};
use crate::error::Result;

/// Pixels above the first row, of a row, and of a bar, from top to bottom.
const TOP: u32 = 52;
const ROW: u32 = 26;
const THICK: u32 = 16;

/// The most pixels of names beside the bars. If one is longer, all names stand above their bars.
const NAMES: u32 = 130;
const NAME: u32 = 16;

/// Positions in pixels.
struct Columns {
    /// From the left to the bars.
    left: u32,
    /// The width of the longest bar.
    bars: u32,
    /// The upper part of a row, for the name.
    above: u32,
    /// From the top to the axis.
    foot: u32,
}

impl Bars {
    /// Draws an SVG document that adapts to light and dark pages.
    ///
    /// # Errors
    /// Fails if the drawing library fails.
    pub fn svg(&self) -> Result<String> {
        let rows = u32::try_from(self.bars.len().max(1)).unwrap_or(u32::MAX / (ROW + NAME));
        let widest = |texts: &mut dyn Iterator<Item = u32>| texts.max().unwrap_or(0);
        let names = widest(&mut self.bars.iter().map(|bar| svg::width(&bar.name, TEXT)));
        let written = self.written();
        let values = widest(&mut written.iter().map(|text| svg::width(text, TEXT)));
        let (left, above) = if names > NAMES { (SIDE, NAME) } else { (SIDE + names + 8, 0) };
        let bars = (WIDTH - SIDE - 8).saturating_sub(left + values);
        let row = ROW + above;
        let foot = TOP.saturating_add(rows * row);
        let columns = Columns { left, bars, above, foot };
        svg::document(&self.title, foot.saturating_add(30), |area| {
            svg::head(area, &self.title, &self.y)?;
            let scale = self.scale();
            if let Some(scale) = &scale {
                columns.axis(area, scale)?;
            }
            if self.bars.is_empty() {
                let middle = (px(WIDTH / 2), px(TOP + ROW / 2));
                let centred = svg::text(TEXT, theme::MUTED, HPos::Center);
                area.draw_text("no data", &centred, middle).map_err(failed)?;
            }
            for ((at, bar), text) in (0..rows).zip(&self.bars).zip(&written) {
                let middle = TOP + at * row + above + ROW / 2;
                columns.bar(area, scale.as_ref(), bar, text, px(middle))?;
            }
            Ok(())
        })
    }

    /// The text at each bar, all with the same number of digits.
    fn written(&self) -> Vec<String> {
        let finite = |bar: &Bar| bar.value.filter(|(value, _)| value.is_finite());
        let values = || self.bars.iter().filter_map(finite);
        let largest = values().map(|(value, _)| value.abs()).fold(0.0, f64::max);
        let value = |bar: &Bar| match finite(bar) {
            None => "N/A".to_owned(),
            Some((value, error)) => alike(value, error, largest),
        };
        self.bars.iter().map(value).collect()
    }

    /// The axis: from 0, so that lengths compare; none if no bar has a length.
    fn scale(&self) -> Option<Scale> {
        let axis = Axis { name: String::new(), logarithmic: false };
        let values: Vec<_> = self.bars.iter().filter_map(|bar| bar.value).collect();
        let placed = values.iter().any(|(value, _)| axis.place(*value).is_some());
        let ends = values.iter().flat_map(|(value, error)| [*value, value - error, value + error]);
        if placed { Scale::new(&axis, ends.chain([0.0])) } else { None }
    }
}

impl Columns {
    /// The horizontal position of a place on the axis.
    fn across(&self, scale: &Scale, place: f64) -> i32 {
        px(self.left) + svg::part(scale.share(place), self.bars)
    }

    fn axis(&self, area: &Area<'_>, scale: &Scale) -> Result<()> {
        let style = svg::text(TEXT, theme::MUTED, HPos::Center);
        let thin = px(1).unsigned_abs();
        let half = |label: &String| px(svg::width(label, TEXT)) / 2;
        let widest = scale.ticks.iter().map(|(_, label)| 2 * half(label) + px(4)).max();
        let apart = match &scale.ticks[..] {
            [(a, _), (b, _), ..] => (self.across(scale, *b) - self.across(scale, *a)).max(1),
            _ => i32::MAX,
        };
        // If the bars have little room, only every second tick or so has a label.
        let every = usize::try_from(widest.unwrap_or(0) / apart + 1).unwrap_or(1);
        for (at, (place, label)) in scale.ticks.iter().enumerate() {
            let x = self.across(scale, *place);
            let colour = if *place == 0.0 { theme::AXIS } else { theme::GRID };
            let line = vec![(x, px(TOP)), (x, px(self.foot))];
            area.draw(&PathElement::new(line, colour.stroke_width(thin))).map_err(failed)?;
            if at.is_multiple_of(every) {
                area.draw_text(label, &style, (x, px(self.foot + 14))).map_err(failed)?;
            }
        }
        Ok(())
    }

    fn bar(
        &self,
        area: &Area<'_>,
        scale: Option<&Scale>,
        bar: &Bar,
        written: &str,
        y: i32,
    ) -> Result<()> {
        let style = |at| svg::text(TEXT, theme::INK, at);
        let (at, x, up) = match self.above {
            0 => (HPos::Right, self.left - 8, 0),
            _ => (HPos::Left, self.left, THICK),
        };
        let name = svg::fitting(&bar.name, WIDTH - 2 * SIDE, TEXT);
        area.draw_text(&name, &style(at), (px(x), y - px(up))).map_err(failed)?;
        area.draw_text(written, &style(HPos::Right), (px(WIDTH - SIDE), y)).map_err(failed)?;
        let (Some(scale), Some((value, error))) = (scale, bar.value) else { return Ok(()) };
        let Some(place) = scale.place(value) else { return Ok(()) };
        let at = |value| self.across(scale, scale.nearest(value));
        let (from, to) = (at(0.0), at(place));
        let half = px(THICK) / 2;
        let colour = theme::colour(bar.colour % 8).filled();
        let ends = [(from.min(to), y - half), (from.max(to), y + half)];
        area.draw(&Rectangle::new(ends, colour)).map_err(failed)?;
        if error.is_finite() && error > 0.0 {
            let (low, high, cap) = (at(value - error), at(value + error), px(4));
            let stroke = theme::INK.stroke_width(px(3).unsigned_abs() / 2);
            for (from, to) in [
                ((low, y), (high, y)),
                ((low, y - cap), (low, y + cap)),
                ((high, y - cap), (high, y + cap)),
            ] {
                area.draw(&PathElement::new(vec![from, to], stroke)).map_err(failed)?;
            }
        }
        Ok(())
    }
}
