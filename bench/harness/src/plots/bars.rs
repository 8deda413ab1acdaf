//! Horizontal bars in groups, drawn from zero, or from one to both sides for ratios.

use evermap_plot::canvas::{Align, Legend, TEXT, colour, picture};
use evermap_plot::scale::{Scale, Spacing, range_of};

use super::{Powers, axis, line, names_width, titles};
use crate::Outcome;
use crate::goals::shortest;

pub struct Bars {
    pub title: String,
    /// Meaning of the numbers.
    pub meaning: String,
    pub series: Vec<String>,
    /// Bars of each group, one for each series; `None` where nothing was measured.
    pub groups: Vec<(String, Vec<Option<f64>>)>,
    /// Bars begin at one, and half and double are equally long.
    pub ratios: bool,
}

const BARS: f64 = 440.0;
const NUMBERS: f64 = 60.0;
const BAR: f64 = 11.0;
const BETWEEN: f64 = 9.0;
const FOOT: f64 = 26.0;

enum Across {
    Equal(Scale),
    Ratios(Powers),
}

impl Across {
    fn position(&self, value: f64) -> f64 {
        match self {
            Across::Equal(scale) => scale.position(value),
            Across::Ratios(powers) => powers.position(value),
        }
    }

    fn ticks(&self) -> Vec<(f64, String)> {
        match self {
            Across::Equal(scale) => scale.ticks(),
            Across::Ratios(powers) => powers.ticks().map(|tick| (tick, shortest(tick))).collect(),
        }
    }
}

impl Bars {
    fn group_height(&self) -> f64 {
        (BAR + 1.0) * self.series.len().max(1) as f64 + BETWEEN
    }

    fn left(&self) -> f64 {
        names_width(self.groups.iter().map(|(name, _)| name))
    }

    fn across(&self, left: f64) -> Across {
        let values = self.groups.iter().flat_map(|(_, bars)| bars.iter().flatten().copied());
        let places = (left, left + BARS);
        match self.ratios {
            true => Across::Ratios(Powers::of(values.chain([1.0]), places, 2.0)),
            false => {
                let range = range_of(values, Spacing::Linear, true);
                Across::Equal(Scale::new(range, places, Spacing::Linear))
            }
        }
    }

    pub fn svg(&self) -> Outcome<String> {
        let left = self.left();
        let legend =
            Legend::of(self.series.iter().map(String::as_str), left + BARS + NUMBERS - 24.0);
        let head = 78.0 + legend.height;
        let bottom = head + self.group_height() * self.groups.len() as f64;
        let across = self.across(left);
        let svg = picture((left + BARS + NUMBERS, bottom + FOOT), |canvas| {
            titles(canvas, &self.title, &self.meaning)?;
            canvas.legend(&legend, (12.0, 53.0))?;
            for (tick, text) in across.ticks() {
                let x = across.position(tick);
                line(canvas, (x, head - 8.0), (x, bottom))?;
                canvas.text(&text, (x, bottom + 12.0), TEXT, Align::Centre)?;
            }
            let zero = across.position(if self.ratios { 1.0 } else { 0.0 });
            for (index, (name, bars)) in self.groups.iter().enumerate() {
                let top = head + self.group_height() * index as f64 + BETWEEN / 2.0;
                let middle = top + (BAR + 1.0) * bars.len() as f64 / 2.0;
                canvas.text(name, (left - 10.0, middle), TEXT, Align::Right)?;
                for (place, bar) in bars.iter().enumerate() {
                    let top = top + (BAR + 1.0) * place as f64;
                    let Some(value) = bar else { continue };
                    let end = across.position(*value);
                    let (from, to) = (zero.min(end), zero.max(end).max(zero.min(end) + 1.0));
                    canvas.rectangle((from, top), (to, top + BAR), colour(place))?;
                    let at = (to + 5.0, top + BAR / 2.0);
                    canvas.text(&hundredths(*value), at, TEXT - 1.0, Align::Left)?;
                }
            }
            axis(canvas, (zero, head - 8.0), (zero, bottom))
        });
        Ok(svg?)
    }
}

/// Formats small numbers with two decimals, larger ones with one.
fn hundredths(value: f64) -> String {
    match value {
        v if v < 0.005 => "0".to_string(),
        v if v < 10.0 => format!("{v:.2}"),
        v => format!("{v:.1}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn long_names_fit_and_missing_bars_are_not_drawn() {
        let bars = |name: &str, value: Option<f64>| Bars {
            title: "More".to_string(),
            meaning: String::new(),
            series: vec!["one".to_string()],
            groups: vec![(name.to_string(), vec![value, Some(2.0)])],
            ratios: true,
        };
        let (short, long) = (bars("a", Some(0.5)), bars(&"a long name ".repeat(5), None));
        assert!(long.left() > 60.0 * 6.0 && short.left() < 200.0);
        let texts = |bars: &Bars| bars.svg().unwrap().matches("<text").count();
        assert_eq!(texts(&short), texts(&long) + 2, "one number and one tick label more");
    }

    #[test]
    fn small_values_print_as_zero_and_large_ones_have_few_digits() {
        assert_eq!([0.0001, 1.006, 12.34].map(hundredths), ["0", "1.01", "12.3"]);
    }
}
