//! Charts that several areas draw, on the canvas of `evermap-plot`.

pub mod bars;
pub mod heat;
pub mod lines;

use evermap_plot::canvas::{Align, Canvas, DARK, PALE, TEXT, TITLE};
use evermap_plot::scale::{Scale, Spacing};

/// Result of drawing.
pub type Drawn = Result<(), evermap_plot::Error>;

/// Least width of the names of rows.
const NAMES_LEAST: f64 = 160.0;
const CHARACTER: f64 = 6.7;

/// Returns the width of the longest name of a row.
fn names_width<'a>(names: impl Iterator<Item = &'a String>) -> f64 {
    let longest = names.map(|name| name.chars().count()).max().unwrap_or(0);
    (longest as f64 * CHARACTER + 20.0).max(NAMES_LEAST)
}

/// Draws the title of a chart, and the meaning of its numbers below it.
fn titles(canvas: &Canvas<'_>, title: &str, meaning: &str) -> Drawn {
    canvas.text(title, (12.0, 18.0), TITLE, Align::Left)?;
    canvas.text(meaning, (12.0, 38.0), TEXT, Align::Left)
}

/// Logarithmic axis whose ticks are the powers of a base.
#[derive(Clone, Copy, Debug)]
pub struct Powers {
    base: f64,
    least: i32,
    most: i32,
    scale: Scale,
}

impl Powers {
    /// Creates an axis that covers all these values. Values that are not above 0 do not count.
    pub fn of(values: impl Iterator<Item = f64>, places: (f64, f64), base: f64) -> Powers {
        let logarithms = values.filter(|value| value.is_normal() && *value > 0.0).map(f64::ln);
        let powers = logarithms.map(|logarithm| logarithm / base.ln());
        let (least, most) = powers
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), power| {
                (power.min(least), power.max(most))
            });
        // Rounding must not move a power of the base to the next tick.
        let least = if least.is_finite() { (least + 1e-9).floor() as i32 } else { 0 };
        let most = if most.is_finite() { (most - 1e-9).ceil() as i32 } else { 1 };
        let most = most.max(least + 1);
        let range = (base.powi(least), base.powi(most));
        Powers { base, least, most, scale: Scale::new(range, places, Spacing::Logarithmic) }
    }

    /// Returns the position of a value. Values outside of the axis are at its ends.
    pub fn position(&self, value: f64) -> f64 {
        let share = if value > 0.0 { self.scale.share(value) } else { 0.0 };
        self.scale.position_of_share(share.clamp(0.0, 1.0))
    }

    pub fn ticks(&self) -> impl Iterator<Item = f64> + use<> {
        let base = self.base;
        (self.least..=self.most).map(move |power| base.powi(power))
    }
}

/// Draws a line of a grid.
pub fn line(canvas: &Canvas<'_>, from: (f64, f64), to: (f64, f64)) -> Drawn {
    canvas.path(&[from, to], 1.0, PALE)
}

/// Draws an axis.
pub fn axis(canvas: &Canvas<'_>, from: (f64, f64), to: (f64, f64)) -> Drawn {
    canvas.path(&[from, to], 1.2, DARK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_and_double_are_equally_far_from_one() {
        let powers = Powers::of([0.6, 3.0].into_iter(), (0.0, 300.0), 2.0);
        assert_eq!(powers.ticks().collect::<Vec<_>>(), [0.5, 1.0, 2.0, 4.0]);
        for (value, position) in [(1.0, 100.0), (2.0, 200.0), (9.0, 300.0), (0.0, 0.0)] {
            assert!((powers.position(value) - position).abs() < 1e-9, "{value}");
        }
    }

    #[test]
    fn powers_of_the_base_are_at_the_ends() {
        let powers = Powers::of([4096.0, 1e9, 4f64.powi(15)].into_iter(), (0.0, 1.0), 4.0);
        assert_eq!(powers.ticks().next(), Some(4096.0));
        assert_eq!(powers.ticks().last(), Some(4f64.powi(15)));
    }

    #[test]
    fn an_axis_without_values_can_be_drawn() {
        let powers = Powers::of([f64::NAN, 0.0].into_iter(), (0.0, 1.0), 10.0);
        assert!(powers.ticks().count() >= 2 && powers.position(1.0).is_finite());
    }
}
