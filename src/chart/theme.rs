//! Colours of pictures, on light pages and on dark ones.
//!
//! Shapes are drawn in the colours for a light page. A style sheet in the picture replaces each by its
//! colour for a dark page if the reader prefers that. The style sheet affects nothing but pictures, so
//! a page may hold many. Programs without style sheets show the light colours.

use plotters::style::RGBColor;

/// The class of a picture.
pub(super) const CLASS: &str = "slate-chart";

/// The colour on a light page, and on a dark one.
type Pair = (u32, u32);

/// Titles and whiskers; labels; axes; lines of the grid.
const FIXED: [Pair; 4] = [
    (0x24_292F, 0xE6_EDF3),
    (0x57_606A, 0x9D_A7B3),
    (0x8C_959F, 0x6E_7681),
    (0xDF_E3E8, 0x30_363D),
];
pub(super) const INK: RGBColor = rgb(FIXED[0].0);
pub(super) const MUTED: RGBColor = rgb(FIXED[1].0);
pub(super) const AXIS: RGBColor = rgb(FIXED[2].0);
pub(super) const GRID: RGBColor = rgb(FIXED[3].0);

/// Lines and bars: the colours of Okabe and Ito, which most colour-blind readers tell apart, with
/// yellow and black changed so that all of them show on both pages.
const PALETTE: [Pair; 8] = [
    (0x00_72B2, 0x4A_A3E8),
    (0xD5_5E00, 0xF2_7D3A),
    (0x00_8F6B, 0x1F_C598),
    (0xB8_4F92, 0xE0_8BC0),
    (0xD9_9100, 0xFF_BE3D),
    (0x4A_A8E0, 0xA6_DFFF),
    (0x7D_7400, 0xB5_AC3E),
    (0x4B_4B4B, 0xCF_CFCF),
];

/// The colour at a place of the palette. Beyond its end the colours repeat, dashed; a dashed colour
/// differs by one from the plain one, so that the style sheet can tell them apart.
pub(super) const fn colour(at: usize) -> RGBColor {
    let colour = PALETTE[at % PALETTE.len()].0;
    rgb(if at < PALETTE.len() { colour } else { dashed(colour) })
}

const fn dashed(colour: u32) -> u32 {
    colour ^ 1
}

#[allow(clippy::cast_possible_truncation, reason = "bytes of a colour")]
const fn rgb(colour: u32) -> RGBColor {
    RGBColor((colour >> 16) as u8, (colour >> 8) as u8, colour as u8)
}

/// The style sheet of a picture; `dash` is the length of a dash in its units.
pub(super) fn style_sheet(dash: u32) -> String {
    let mut style = format!(".{CLASS} text{{font-family:system-ui,sans-serif}}");
    let mut dark = String::new();
    let mut add = |light: u32, colour: u32| {
        for property in ["fill", "stroke"] {
            dark += &format!(".{CLASS} [{property}=\"#{light:06X}\"]{{{property}:#{colour:06X}}}");
        }
    };
    for (light, colour) in FIXED {
        add(light, colour);
    }
    for (light, colour) in PALETTE {
        add(light, colour);
        add(dashed(light), colour);
        let dashes = format!("stroke-dasharray:{dash} {}", dash * 2 / 3);
        style += &format!(".{CLASS} [stroke=\"#{:06X}\"]{{{dashes}}}", dashed(light));
    }
    style + "@media(prefers-color-scheme:dark){" + &dark + "}"
}

/// The escape sequence that begins the terminal's colour for a place of the palette; [`PLAIN`] ends it.
pub(super) const fn escape(at: usize) -> &'static str {
    ["\x1b[34m", "\x1b[31m", "\x1b[32m", "\x1b[35m", "\x1b[33m", "\x1b[36m", "\x1b[93m", "\x1b[90m"]
        [at % 8]
}

/// Ends a colour.
pub(super) const PLAIN: &str = "\x1b[0m";
