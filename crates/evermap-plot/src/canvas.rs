//! Drawing surface for charts: shapes, fitted texts, colours.
//!
//! Positions and sizes are in pixels of the picture, from its upper left corner. The plotting
//! library uses integer coordinates, so it draws at ten times the size of the picture.
//!
//! ```
//! use evermap_plot::canvas::{Align, TEXT, colour, picture};
//!
//! let svg = picture((200.0, 40.0), |canvas| {
//!     canvas.rectangle((10.0, 10.0), (90.0, 30.0), colour(0))?;
//!     canvas.text("used", (100.0, 20.0), TEXT, Align::Left)
//! })?;
//! assert!(svg.contains("used"));
//! # Ok::<(), evermap_plot::Error>(())
//! ```

use plotters::coord::Shift;
use plotters::prelude::*;
pub use plotters::style::RGBColor;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::error::Error;

const SCALE_FACTOR: f64 = 10.0;
/// Colour of texts and axes.
pub const DARK: RGBColor = RGBColor(0x22, 0x22, 0x22);
/// Colour of grid lines.
pub const PALE: RGBColor = RGBColor(0xe2, 0xe2, 0xe2);
/// Neighbouring colours differ in lightness, so that they are distinct in grey and with colour
/// blindness.
const COLOURS: [RGBColor; 10] = [
    RGBColor(0x1b, 0x2a, 0x52),
    RGBColor(0xe8, 0x8b, 0x3a),
    RGBColor(0x1f, 0x76, 0x7d),
    RGBColor(0xe3, 0xc2, 0x4e),
    RGBColor(0x8a, 0x24, 0x4b),
    RGBColor(0x8b, 0x8c, 0x9a),
    RGBColor(0x4a, 0x6f, 0xd4),
    RGBColor(0xa9, 0xd8, 0x6e),
    RGBColor(0x5c, 0x4a, 0x3a),
    RGBColor(0xe0, 0x8f, 0xc4),
];
/// Width of a sans-serif character relative to its size; slightly above the mean.
const CHARACTER_WIDTH: f64 = 0.57;

/// Size of texts.
pub const TEXT: f64 = 11.0;
/// Size of titles.
pub const TITLE: f64 = 14.0;
const LEGEND_LINE: f64 = 18.0;
const LEGEND_MARK: f64 = 12.0;

/// Splits a text into lines of at most `width`, after spaces and hyphens if possible. Truncates
/// what does not fit.
pub fn wrapped(text: &str, size: f64, width: f64, lines_max: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_inclusive([' ', '-']) {
        let is_last = lines.len() >= lines_max;
        let fits = |line: &str| width_of(&format!("{line}{}", word.trim_end()), size) <= width;
        match lines.last_mut().filter(|line| is_last || fits(line)) {
            Some(line) => line.push_str(word),
            None => lines.push(word.to_string()),
        }
    }
    lines.iter().map(|line| truncate(line.trim_end(), size, width)).collect()
}

/// Returns the colour of the n-th series.
pub fn colour(index: usize) -> RGBColor {
    COLOURS[index % COLOURS.len()]
}

/// Horizontal alignment of a text at its point.
#[derive(Clone, Copy, Debug)]
pub enum Align {
    /// The text begins at the point.
    Left,
    /// The middle of the text is at the point.
    Centre,
    /// The text ends at the point.
    Right,
}

/// Surface of a picture; see [`picture`].
pub struct Canvas<'a> {
    area: DrawingArea<SVGBackend<'a>, Shift>,
}

/// Draws a picture of this size. Returns the SVG document.
///
/// # Errors
///
/// Errors of `draw` and of the plotting library.
pub fn picture(
    (width, height): (f64, f64),
    draw: impl FnOnce(&Canvas<'_>) -> Result<(), Error>,
) -> Result<String, Error> {
    let drawn_at = ((width * SCALE_FACTOR) as u32, (height * SCALE_FACTOR) as u32);
    let mut svg = String::new();
    let canvas = Canvas { area: SVGBackend::with_string(&mut svg, drawn_at).into_drawing_area() };
    canvas.area.fill(&WHITE).map_err(drawing)?;
    draw(&canvas)?;
    canvas.area.present().map_err(drawing)?;
    drop(canvas);
    let as_drawn = format!("width=\"{}\" height=\"{}\"", drawn_at.0, drawn_at.1);
    Ok(svg.replacen(&as_drawn, &format!("width=\"{width}\" height=\"{height}\""), 1))
}

fn drawing(error: impl std::fmt::Display) -> Error {
    Error::Drawing(error.to_string())
}

fn to_canvas((x, y): (f64, f64)) -> (i32, i32) {
    ((x * SCALE_FACTOR).round() as i32, (y * SCALE_FACTOR).round() as i32)
}

impl Canvas<'_> {
    fn draw_text(
        &self,
        text: &str,
        position: (f64, f64),
        size: f64,
        at: Align,
        turn: FontTransform,
    ) -> Result<(), Error> {
        let anchor = match at {
            Align::Left => HPos::Left,
            Align::Centre => HPos::Center,
            Align::Right => HPos::Right,
        };
        // The library uses another unit of size, and divides by this factor.
        let font = ("sans-serif", size * SCALE_FACTOR * 1.24).into_font().transform(turn);
        let style = TextStyle::from(font).color(&DARK).pos(Pos::new(anchor, VPos::Center));
        let text = Text::new(replace_invalid(text), to_canvas(position), style);
        self.area.draw(&text).map_err(drawing)
    }

    /// Draws a text whose vertical middle is at this point.
    ///
    /// # Errors
    ///
    /// Errors of the plotting library only, as for everything that draws on a canvas.
    pub fn text(
        &self,
        text: &str,
        position: (f64, f64),
        size: f64,
        at: Align,
    ) -> Result<(), Error> {
        self.draw_text(text, position, size, at, FontTransform::None)
    }

    /// Draws a text that ends at this point, on a white background.
    pub fn text_on_background(
        &self,
        text: &str,
        (x, y): (f64, f64),
        size: f64,
    ) -> Result<(), Error> {
        let (width, height) = (width_of(text, size) + 6.0, size * 1.2);
        self.rectangle((x + 3.0 - width, y - height / 2.0), (x + 3.0, y + height / 2.0), WHITE)?;
        self.text(text, (x, y), size, Align::Right)
    }

    /// Draws a text that runs upwards.
    pub fn vertical_text(&self, text: &str, position: (f64, f64), size: f64) -> Result<(), Error> {
        self.draw_text(text, position, size, Align::Centre, FontTransform::Rotate270)
    }

    /// Draws a filled rectangle between two opposite corners.
    pub fn rectangle(
        &self,
        from: (f64, f64),
        to: (f64, f64),
        colour: RGBColor,
    ) -> Result<(), Error> {
        let (from, to) = (to_canvas(from), to_canvas(to));
        let corners = [(from.0.min(to.0), from.1.min(to.1)), (from.0.max(to.0), from.1.max(to.1))];
        self.area.draw(&Rectangle::new(corners, colour.filled())).map_err(drawing)
    }

    /// Draws a line through the points.
    pub fn path(&self, points: &[(f64, f64)], width: f64, colour: RGBColor) -> Result<(), Error> {
        let mut positions: Vec<(i32, i32)> = points.iter().map(|&point| to_canvas(point)).collect();
        // Merge consecutive points at the same position.
        positions.dedup();
        let style = ShapeStyle::from(&colour).stroke_width((width * SCALE_FACTOR) as u32);
        self.area.draw(&PathElement::new(positions, style)).map_err(drawing)
    }

    /// Draws a dashed horizontal line.
    pub fn dashes(&self, (from, to): (f64, f64), y: f64, colour: RGBColor) -> Result<(), Error> {
        const DASH: f64 = 6.0;
        let count = ((to - from) / (2.0 * DASH)).ceil() as usize;
        (0..count).try_for_each(|n| {
            let x = from + 2.0 * DASH * n as f64;
            self.path(&[(x, y), ((x + DASH).min(to), y)], 1.2, colour)
        })
    }

    /// Draws a filled circle.
    pub fn dot(&self, position: (f64, f64), radius: f64, colour: RGBColor) -> Result<(), Error> {
        let circle =
            Circle::new(to_canvas(position), (radius * SCALE_FACTOR) as i32, colour.filled());
        self.area.draw(&circle).map_err(drawing)
    }

    /// Draws a legend with its upper left corner at this point.
    pub fn legend(&self, legend: &Legend, (x, y): (f64, f64)) -> Result<(), Error> {
        for (index, (name, position)) in legend.entries.iter().enumerate() {
            let (x, y) = (x + position.0, y + position.1);
            self.rectangle((x, y - 5.0), (x + LEGEND_MARK, y + 5.0), colour(index))?;
            self.text(name, (x + LEGEND_MARK + 5.0, y), TEXT, Align::Left)?;
        }
        Ok(())
    }
}

/// Names with their colours, in as many lines as necessary.
pub struct Legend {
    entries: Vec<(String, (f64, f64))>,
    /// Height of all lines.
    pub height: f64,
}

impl Legend {
    /// Arranges the names in lines of at most `width`. The n-th name gets the [`colour`] of the
    /// n-th series.
    pub fn of<'a>(names: impl Iterator<Item = &'a str>, width: f64) -> Self {
        let (mut x, mut y) = (0.0, LEGEND_LINE / 2.0);
        let mut entries = Vec::new();
        for name in names {
            let name = truncate(name, TEXT, width - LEGEND_MARK - 5.0);
            let needs = LEGEND_MARK + 5.0 + width_of(&name, TEXT);
            if x > 0.0 && x + needs > width {
                (x, y) = (0.0, y + LEGEND_LINE);
            }
            entries.push((name, (x, y)));
            x += needs + 16.0;
        }
        let height = if entries.is_empty() { 0.0 } else { y + LEGEND_LINE / 2.0 };
        Self { entries, height }
    }
}

/// Returns the approximate width of a text.
pub fn width_of(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * CHARACTER_WIDTH * size
}

/// Truncates a text to the available width.
pub fn truncate(text: &str, size: f64, room: f64) -> String {
    let most = (room / (CHARACTER_WIDTH * size)).max(1.0) as usize;
    if text.chars().count() <= most {
        return text.to_string();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// Replaces characters that XML cannot represent.
fn replace_invalid(text: &str) -> String {
    let is_there = |c: char| !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}');
    text.chars().map(|c| if is_there(c) { c } else { char::REPLACEMENT_CHARACTER }).collect()
}
