//! Horizontal bars in groups, drawn from zero, or from one to both sides for ratios.

use super::{At, COLOURS, DARK, PALE, Scale, Steps, picture};
use crate::Outcome;

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

const NAMES_LEAST: f64 = 160.0;
const CHARACTER: f64 = 6.7;
const BARS: f64 = 440.0;
const NUMBERS: f64 = 60.0;
const HEAD: f64 = 96.0;
const BAR: f64 = 11.0;
const BETWEEN: f64 = 9.0;
const FOOT: f64 = 26.0;

impl Bars {
    fn group_height(&self) -> f64 {
        (BAR + 1.0) * self.series.len().max(1) as f64 + BETWEEN
    }

    /// Width of the longest name.
    fn names_width(&self) -> f64 {
        let longest = self.groups.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        (longest as f64 * CHARACTER + 20.0).max(NAMES_LEAST)
    }

    pub fn svg(&self) -> Outcome<String> {
        let left = self.names_width();
        let bottom = HEAD + self.group_height() * self.groups.len() as f64;
        let size = ((left + BARS + NUMBERS) as i32, (bottom + FOOT) as i32);
        let values = self.groups.iter().flat_map(|(_, bars)| bars.iter().flatten().copied());
        let (steps, from) = match self.ratios {
            true => (Steps::Powers(2.0), Some(1.0)),
            false => (Steps::Equal, None),
        };
        let scale = Scale::of(values.chain(from), (left, left + BARS), steps);
        picture(size, |canvas| {
            canvas.text(&self.title, (12.0, 18.0), 15, At::Left, DARK)?;
            canvas.text(&self.meaning, (12.0, 38.0), 11, At::Left, DARK)?;
            canvas.legend(&self.series, (12.0, 62.0))?;
            for tick in scale.ticks() {
                let x = scale.place(tick);
                canvas.path(&[(x, HEAD - 8.0), (x, bottom)], 1.0, PALE)?;
                canvas.text(&shortest(tick), (x, bottom + 12.0), 11, At::Centre, DARK)?;
            }
            let zero = scale.place(from.unwrap_or(0.0));
            for (index, (name, bars)) in self.groups.iter().enumerate() {
                let top = HEAD + self.group_height() * index as f64 + BETWEEN / 2.0;
                let middle = top + (BAR + 1.0) * bars.len() as f64 / 2.0;
                canvas.text(name, (left - 10.0, middle), 12, At::Right, DARK)?;
                for (place, bar) in bars.iter().enumerate() {
                    let top = top + (BAR + 1.0) * place as f64;
                    let Some(value) = bar else { continue };
                    let end = scale.place(*value);
                    let corners = (zero.min(end), zero.max(end).max(zero.min(end) + 1.0));
                    let colour = COLOURS[place % COLOURS.len()];
                    canvas.rectangle((corners.0, top), (corners.1, top + BAR), colour)?;
                    let at = (corners.1 + 5.0, top + BAR / 2.0);
                    canvas.text(&hundredths(*value), at, 10, At::Left, DARK)?;
                }
            }
            canvas.path(&[(zero, HEAD - 8.0), (zero, bottom)], 1.2, DARK)
        })
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

/// Formats a number without trailing zeros.
fn shortest(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
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
        assert!(long.names_width() > 60.0 * 6.0 && short.names_width() < 200.0);
        let texts = |bars: &Bars| bars.svg().unwrap().matches("<text").count();
        assert_eq!(texts(&short), texts(&long) + 2, "one number and one tick label more");
    }

    #[test]
    fn small_values_print_as_zero_and_large_ones_have_few_digits() {
        assert_eq!([0.0001, 1.006, 12.34].map(hundredths), ["0", "1.01", "12.3"]);
    }
}
