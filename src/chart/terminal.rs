//! Lines over a common axis go in; text for a terminal comes out: dots in braille, and a letter at the
//! end of each line.

use textplots::{Chart as Dots, Plot as _, Shape};

use super::scale::{Scale, measured};
use super::svg::shortened;
use super::{Chart, Line, Point, theme};

/// Rows of the plot.
const ROWS: usize = 16;

/// The least and the most characters of a plot's width; the library needs the least.
const LEAST: usize = 17;
const MOST: usize = 400;

/// The pattern without a dot; the others follow it, with a bit for each dot.
const BLANK: u32 = 0x2800;

/// A character of the plot, and its colour's place in the palette.
#[derive(Clone, Copy)]
struct Cell {
    shown: char,
    colour: Option<usize>,
}

impl Chart {
    /// Draws text of this many columns; with `colours`, each line has its own.
    #[must_use]
    pub fn terminal(&self, columns: usize, colours: bool) -> String {
        let mut text = format!("{}\n", shortened(&self.title, columns));
        let Some((x, y)) = self.scales() else { return text + "no data\n" };
        text += &format!("{}\n", shortened(&self.y.name, columns));
        let labels = y.ticks.iter().map(|(_, label)| label.chars().count()).max().unwrap_or(0);
        // Letters stand to the right of the ends of their lines, in the worst case side by side.
        let letters = self.lines.len().min(8) + 1;
        let wide = columns.saturating_sub(labels + 2 + letters).clamp(LEAST, MOST);
        let cells = self.cells(&x, &y, wide, letters);
        for (row, cells) in cells.iter().enumerate() {
            let tick = y.ticks.iter().find(|(place, _)| y.row(*place) == row);
            let (label, axis) = tick.map_or(("", '│'), |(_, label)| (label.as_str(), '┤'));
            text += &format!("{label:>labels$} {axis}");
            text += painted(cells, colours).trim_end();
            text.push('\n');
        }
        text += &x.below(wide, labels + 1);
        let name = shortened(&self.x.name, wide);
        let before = labels + 2 + (wide - name.chars().count()) / 2;
        text += &format!("{:before$}{name}\n\n", "");
        text + &self.key(columns, colours)
    }

    /// The plot, row by row from the top.
    fn cells(&self, x: &Scale, y: &Scale, wide: usize, letters: usize) -> Vec<Vec<Cell>> {
        let blank = Cell { shown: ' ', colour: None };
        let mut cells = vec![vec![blank; wide + letters]; ROWS];
        let mut ends = Vec::new();
        for (at, line) in self.lines.iter().enumerate() {
            let points = self.shares(line, x, y);
            let Some(&(right, up)) = points.last() else { continue };
            ends.push((at, line.colour, right, up));
            for (row, drawn) in cells.iter_mut().zip(dots(&points, wide).lines()) {
                for (cell, dots) in row.iter_mut().zip(drawn.chars()) {
                    let bits = |shown: char| (shown as u32).saturating_sub(BLANK);
                    if bits(dots) > 0 {
                        let both = BLANK + (bits(cell.shown) | bits(dots));
                        let shown = char::from_u32(both).unwrap_or(dots);
                        *cell = Cell { shown, colour: Some(line.colour) };
                    }
                }
            }
        }
        for (at, colour, right, up) in ends {
            let row = &mut cells[row(f64::from(up))];
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to wide")]
            let after = (f64::from(right) * (wide - 1) as f64) as usize + 1;
            // The letter may replace another line's dots, but not its letter.
            let taken = |cell: &Cell| cell.shown.is_alphabetic();
            if let Some(cell) = row.iter_mut().skip(after).find(|cell| !taken(cell)) {
                *cell = Cell { shown: letter(at), colour: Some(colour) };
            }
        }
        cells
    }

    /// The points of a line as shares of both axes.
    fn shares(&self, line: &Line, x: &Scale, y: &Scale) -> Vec<(f32, f32)> {
        #[allow(clippy::cast_possible_truncation, reason = "shares, for some hundred dots")]
        let share = |scale: &Scale, value| Some(scale.share(scale.place(value)?) as f32);
        let shares = |point: &Point| Some((share(x, point.x)?, share(y, point.y)?));
        self.shown(line).filter_map(shares).collect()
    }

    /// The legend: a letter, a name and the last value of each line.
    fn key(&self, columns: usize, colours: bool) -> String {
        let names: Vec<_> = self.lines.iter().map(|line| self.name(line)).collect();
        let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        let room = longest.min(columns.saturating_sub(24).max(8));
        let entry = |(at, (line, name)): (usize, (&Line, &String))| {
            let last = self.shown(line).last();
            let last = last.map(|point| measured(point.y, point.error)).unwrap_or_default();
            let name = format!("{} {:room$}", letter(at), shortened(name, room));
            let name = if colours { colourful(&name, line.colour) } else { name };
            format!("{name}  {last}").trim_end().to_owned() + "\n"
        };
        self.lines.iter().zip(&names).enumerate().map(entry).collect()
    }
}

impl Scale {
    /// The row of the plot that contains a place.
    fn row(&self, place: f64) -> usize {
        row(self.share(place))
    }

    /// The horizontal axis of this many cells, and the labels of its ticks.
    fn below(&self, wide: usize, indent: usize) -> String {
        let mut axis = vec!['─'; wide];
        let mut labels = String::new();
        for (place, label) in &self.ticks {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to wide")]
            let at = (self.share(*place) * (wide - 1) as f64).round() as usize;
            let (length, so_far) = (label.chars().count(), labels.chars().count());
            let start = at.saturating_sub(length / 2);
            // A tick is left out if its label would run into the one before.
            if so_far == 0 || start > so_far {
                axis[at.min(wide - 1)] = '┬';
                labels += &format!("{:1$}{label}", "", start.saturating_sub(so_far));
            }
        }
        let axis: String = axis.into_iter().collect();
        format!("{:indent$}└{axis}\n{:indent$} {labels}\n", "", "")
    }
}

/// The row of the plot at a share of its height.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to ROWS")]
fn row(share: f64) -> usize {
    (((1.0 - share) * (ROWS as f64 - 0.25)) as usize).min(ROWS - 1)
}

/// A line on its own plot, so that each cell knows the lines that cross it.
fn dots(points: &[(f32, f32)], wide: usize) -> String {
    // A character is 2 dots wide and 4 high; the library counts them from 0 to these.
    #[allow(clippy::cast_possible_truncation, reason = "of at most MOST characters")]
    let (right, top) = (2 * wide as u32 - 1, 4 * ROWS as u32 - 1);
    let mut plot = Dots::new_with_y_range(right, top, 0.0, 1.0, 0.0, 1.0);
    let (line, dots) = (Shape::Lines(points), Shape::Points(points));
    let plot = plot.lineplot(&line).lineplot(&dots);
    plot.figures();
    plot.frame()
}

/// The letter of a line.
fn letter(at: usize) -> char {
    ('a'..='z').chain('A'..='Z').nth(at).unwrap_or('·')
}

fn painted(cells: &[Cell], colours: bool) -> String {
    let paint = |cells: &[Cell]| {
        let text: String = cells.iter().map(|cell| cell.shown).collect();
        match cells.first().and_then(|cell| cell.colour) {
            Some(colour) if colours => colourful(&text, colour),
            _ => text,
        }
    };
    cells.chunk_by(|one, next| one.colour == next.colour).map(paint).collect()
}

fn colourful(text: &str, colour: usize) -> String {
    format!("{}{text}{}", theme::escape(colour), theme::PLAIN)
}
