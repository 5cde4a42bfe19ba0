//! Shapes and texts go in; the SVG document of a picture comes out.

use std::fmt::Display;

use maud::{PreEscaped, html};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::theme;
use crate::error::{Error, Result};

/// Pixels across.
pub(super) const WIDTH: u32 = 380;

/// Pixels at the left and right margins.
pub(super) const SIDE: u32 = 14;

/// Units of the library, which are whole numbers, per pixel.
const FINE: u32 = 8;

/// The size of all texts but titles, in pixels.
pub(super) const TEXT: u32 = 12;

/// The size of titles, in pixels.
pub(super) const TITLE: u32 = 14;

/// The surface to draw on.
pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Pixels in the units of an [`Area`].
#[allow(clippy::cast_possible_wrap, reason = "a picture is a few hundred pixels")]
pub(super) const fn px(pixels: u32) -> i32 {
    (pixels * FINE) as i32
}

/// A share of a length in pixels, in the units of an [`Area`].
#[allow(clippy::cast_possible_truncation, reason = "a picture is a few hundred pixels")]
pub(super) fn part(share: f64, pixels: u32) -> i32 {
    (share * f64::from(px(pixels))) as i32
}

/// The error of the drawing library.
pub(super) fn failed(error: impl Display) -> Error {
    Error::library("drawing a chart", error)
}

/// A document of this height in pixels, with the shapes that `draw` draws.
pub(super) fn document(
    title: &str,
    height: u32,
    draw: impl FnOnce(&Area<'_>) -> Result<()>,
) -> Result<String> {
    let (wide, high) = (WIDTH * FINE, height * FINE);
    let mut drawn = String::new();
    let area = SVGBackend::with_string(&mut drawn, (wide, high)).into_drawing_area();
    draw(&area)?;
    area.present().map_err(failed)?;
    drop(area);
    // The library's own root element has no room for a title and a style sheet.
    let shapes = drawn.split_once('\n').map_or("", |(_, shapes)| shapes);
    let shapes = shapes.trim_end().trim_end_matches("</svg>");
    let document = html! {
        svg xmlns="http://www.w3.org/2000/svg" class=(theme::CLASS) role="img" width=(WIDTH)
            height=(height) viewBox=(format!("0 0 {wide} {high}"))
            style="max-width:100%;height:auto"
        {
            title { (printable(title)) }
            style { (PreEscaped(theme::style_sheet(px(6).unsigned_abs()))) }
            (PreEscaped("\n"))
            (PreEscaped(shapes))
        }
    };
    Ok(document.into_string() + "\n")
}

/// The style of texts of a size in pixels, aligned at their place and centred on its height.
pub(super) fn text(size: u32, colour: RGBColor, at: HPos) -> TextStyle<'static> {
    // The backend divides by this.
    let size = f64::from(px(size)) * 1.24;
    ("sans-serif", size).into_font().color(&colour).pos(Pos::new(at, VPos::Center))
}

/// Draws the title of a picture, and below it the quantity of the vertical axis.
pub(super) fn head(area: &Area<'_>, title: &str, below: &str) -> Result<()> {
    let room = WIDTH - 2 * SIDE;
    let bold = text(TITLE, theme::INK, HPos::Left);
    let bold = TextStyle { font: bold.font.style(FontStyle::Bold), ..bold };
    area.draw_text(&fitting(title, room, TITLE), &bold, (px(SIDE), px(16))).map_err(failed)?;
    let plain = text(TEXT, theme::MUTED, HPos::Left);
    area.draw_text(&fitting(below, room, TEXT), &plain, (px(SIDE), px(36))).map_err(failed)
}

/// The width of a text in pixels: a generous guess, because the font of the reader is unknown.
pub(super) fn width(text: &str, size: u32) -> u32 {
    text.chars().map(hundredths).sum::<u32>().saturating_mul(size).div_ceil(100)
}

/// `text`, shortened to `room` pixels.
pub(super) fn fitting(text: &str, room: u32, size: u32) -> String {
    let text: String = text.chars().take(room as usize).collect();
    let characters = text.chars().count();
    let fits = |count: &usize| width(&shortened(&text, *count), size) <= room;
    shortened(&text, (0..=characters).rev().find(fits).unwrap_or(0))
}

/// The width of a character in hundredths of the size of its font.
fn hundredths(c: char) -> u32 {
    match c {
        'f' | 'i' | 'j' | 'l' | 'r' | 't' | 'I' | ' ' | '.' | ',' | ':' | '-' | '(' | ')' => 40,
        'm' | 'w' | 'M' | 'W' | '%' | '±' | '…' | '\u{2E80}'.. => 100,
        c if c.is_uppercase() || c.is_numeric() => 68,
        _ => 62,
    }
}

/// `text` in at most this many characters; ends in … if it was cut.
pub(super) fn shortened(text: &str, characters: usize) -> String {
    let text = printable(text);
    if text.chars().count() <= characters {
        return text;
    }
    text.chars().take(characters.saturating_sub(1)).chain(['…']).collect()
}

/// `text` without control characters, which XML and terminals must not hold.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
