//! Plots as SVG: drawing primitives that all plots share.
//!
//! The plotting library draws at integer coordinates, so everything is drawn ten times as large as
//! it is shown.

pub mod bars;
pub mod heat;
pub mod lines;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::Outcome;

const LARGER: i32 = 10;
pub const DARK: RGBColor = RGBColor(0x22, 0x22, 0x22);
pub const PALE: RGBColor = RGBColor(0xdd, 0xdd, 0xdd);
/// Colours that differ in lightness as well as in hue.
pub const COLOURS: [RGBColor; 6] = [
    RGBColor(0x1b, 0x1b, 0x3a),
    RGBColor(0xc4, 0x4e, 0x52),
    RGBColor(0xf0, 0xb4, 0x5a),
    RGBColor(0x8c, 0x6b, 0xb1),
    RGBColor(0x2f, 0x8f, 0x83),
    RGBColor(0x9a, 0xa2, 0xad),
];

/// Alignment of a text at its point.
#[derive(Clone, Copy, Debug)]
pub enum At {
    Left,
    Centre,
    Right,
}

/// Drawing area of a picture.
pub struct Canvas<'a> {
    area: DrawingArea<SVGBackend<'a>, Shift>,
}

/// Draws a picture of this size and returns the SVG text.
pub fn picture(
    (width, height): (i32, i32),
    draw: impl FnOnce(&Canvas<'_>) -> Outcome,
) -> Outcome<String> {
    let large = ((width * LARGER) as u32, (height * LARGER) as u32);
    let mut svg = String::new();
    {
        let canvas = Canvas { area: SVGBackend::with_string(&mut svg, large).into_drawing_area() };
        canvas.area.fill(&WHITE)?;
        draw(&canvas)?;
        canvas.area.present()?;
    }
    // Shows the picture at its nominal size.
    let drawn = format!("width=\"{}\" height=\"{}\"", large.0, large.1);
    Ok(svg.replacen(&drawn, &format!("width=\"{width}\" height=\"{height}\""), 1))
}

fn large(value: f64) -> i32 {
    (value * f64::from(LARGER)).round() as i32
}

impl Canvas<'_> {
    pub fn text(
        &self,
        content: &str,
        (x, y): (f64, f64),
        size: i32,
        at: At,
        colour: RGBColor,
    ) -> Outcome {
        // The library divides the given size by this factor.
        let size = f64::from(size * LARGER) * 1.24;
        let anchor = match at {
            At::Left => HPos::Left,
            At::Centre => HPos::Center,
            At::Right => HPos::Right,
        };
        let style = TextStyle::from(("sans-serif", size).into_font())
            .color(&colour)
            .pos(Pos::new(anchor, VPos::Center));
        self.area.draw(&Text::new(content.to_string(), (large(x), large(y)), style))?;
        Ok(())
    }

    pub fn rectangle(&self, from: (f64, f64), to: (f64, f64), colour: RGBColor) -> Outcome {
        let corners = [(large(from.0), large(from.1)), (large(to.0), large(to.1))];
        self.area.draw(&Rectangle::new(corners, colour.filled()))?;
        Ok(())
    }

    pub fn path(&self, points: &[(f64, f64)], width: f64, colour: RGBColor) -> Outcome {
        let points: Vec<(i32, i32)> = points.iter().map(|(x, y)| (large(*x), large(*y))).collect();
        let style = ShapeStyle::from(&colour).stroke_width(large(width) as u32);
        self.area.draw(&PathElement::new(points, style))?;
        Ok(())
    }

    pub fn dot(&self, (x, y): (f64, f64), radius: f64, colour: RGBColor) -> Outcome {
        let circle = Circle::new((large(x), large(y)), large(radius), colour.filled());
        self.area.draw(&circle)?;
        Ok(())
    }

    /// Draws a row of coloured squares with names.
    pub fn legend(&self, names: &[String], (x, y): (f64, f64)) -> Outcome {
        let mut x = x;
        for (name, colour) in names.iter().zip(COLOURS.iter().cycle()) {
            self.rectangle((x, y - 6.0), (x + 12.0, y + 6.0), *colour)?;
            self.text(name, (x + 17.0, y), 12, At::Left, DARK)?;
            x += 36.0 + 6.4 * name.chars().count() as f64;
        }
        Ok(())
    }
}

/// Spacing of a scale: linear, or logarithmic with a base.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Steps {
    Equal,
    Powers(f64),
}

/// Maps values to coordinates.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    values: (f64, f64),
    places: (f64, f64),
    steps: Steps,
}

impl Scale {
    /// Creates a scale that covers all these values.
    pub fn of(values: impl Iterator<Item = f64>, places: (f64, f64), steps: Steps) -> Scale {
        let finite = values.filter(|value| value.is_finite());
        let (least, most) = finite
            .fold((f64::INFINITY, 0.0), |(least, most): (f64, f64), value| {
                (least.min(value), most.max(value))
            });
        let values = match steps {
            Steps::Equal => (0.0, if most > 0.0 { most } else { 1.0 }),
            Steps::Powers(base) => {
                let (least, most) =
                    if least.is_finite() { (least, most.max(least)) } else { (1.0, 1.0) };
                let least = least.max(f64::MIN_POSITIVE).log(base).floor();
                let most = most.max(f64::MIN_POSITIVE).log(base).ceil();
                (base.powf(least), base.powf(most.max(least + 1.0)))
            }
        };
        Scale { values, places, steps }
    }

    pub fn place(&self, value: f64) -> f64 {
        let part = match self.steps {
            Steps::Equal => (value - self.values.0) / (self.values.1 - self.values.0),
            Steps::Powers(_) => (value / self.values.0).ln() / (self.values.1 / self.values.0).ln(),
        };
        self.places.0 + (self.places.1 - self.places.0) * part.clamp(0.0, 1.0)
    }

    /// Values at which grid lines are drawn.
    pub fn ticks(&self) -> Vec<f64> {
        let (least, most) = self.values;
        match self.steps {
            Steps::Equal => {
                let raw = most / 5.0;
                let power = 10f64.powf(raw.log10().floor());
                let factors = [1.0, 2.0, 5.0, 10.0];
                let factor = factors.into_iter().find(|factor| factor * power >= raw);
                let step = factor.unwrap_or(10.0) * power;
                (0..=(most / step + 0.001) as usize).map(|index| index as f64 * step).collect()
            }
            Steps::Powers(base) => {
                let count = (most / least).log(base).round() as i32;
                (0..=count).map(|index| least * base.powi(index)).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_equal_scale_begins_at_zero_and_has_round_steps() {
        let scale = Scale::of([3.0, 4.0].into_iter(), (100.0, 200.0), Steps::Equal);
        assert_eq!(scale.ticks(), [0.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!((scale.place(0.0), scale.place(2.0), scale.place(9.0)), (100.0, 150.0, 200.0));
    }

    #[test]
    fn a_logarithmic_scale_spaces_half_and_double_equally() {
        let scale = Scale::of([0.6, 3.0].into_iter(), (0.0, 300.0), Steps::Powers(2.0));
        assert_eq!(scale.ticks(), [0.5, 1.0, 2.0, 4.0]);
        assert!((scale.place(1.0) - 100.0).abs() < 1e-9 && (scale.place(2.0) - 200.0).abs() < 1e-9);
    }

    #[test]
    fn a_scale_without_values_can_be_drawn() {
        for steps in [Steps::Equal, Steps::Powers(10.0)] {
            let scale = Scale::of([f64::NAN].into_iter(), (0.0, 1.0), steps);
            assert!(scale.ticks().len() >= 2 && scale.place(1.0).is_finite());
        }
    }
}
