//! Bar charts: groups of bars with one colour for each series. Negative values point down.

use crate::canvas::{
    Align, Canvas, DARK, Legend, PALE, TEXT, TITLE, colour, picture, truncate, width_of, wrapped,
};
use crate::error::{Error, SERIES_MAX, at_most};
use crate::scale::{Scale, Spacing, range_of};

const PLOT_WIDTH: f64 = 620.0;
const PLOT_HEIGHT: f64 = 280.0;
const MARGIN: f64 = 14.0;
/// Share of a group's width that its bars take.
const BARS_SHARE: f64 = 0.76;
const GROUPS_MAX: usize = 200;
/// Maximum number of lines of a group's name.
const LINES_MAX: usize = 3;
const LINE_HEIGHT: f64 = TEXT + 2.0;

/// Groups of bars.
///
/// ```
/// use evermap_plot::BarChart;
///
/// let chart = BarChart {
///     title: "Utilisation".into(),
///     y_label: "change [%]".into(),
///     groups: vec!["persistent memory".into(), "disk".into()],
///     series: vec![("model".into(), vec![-4.9, -49.6]), ("study".into(), vec![-4.0, -49.0])],
/// };
/// assert!(chart.svg()?.contains("-49.6"));
/// # Ok::<(), evermap_plot::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BarChart {
    /// Title above the chart.
    pub title: String,
    /// Label of the y axis, with its unit.
    pub y_label: String,
    /// Names of the groups.
    pub groups: Vec<String>,
    /// Series: a name, and a value for each group. NaN leaves a gap.
    pub series: Vec<(String, Vec<f64>)>,
}

impl BarChart {
    /// Draws the chart as an SVG document.
    ///
    /// # Errors
    ///
    /// A series does not have one value per group; or there are more than 64 series or 200 groups.
    pub fn svg(&self) -> Result<String, Error> {
        at_most("series", self.series.len(), SERIES_MAX)?;
        at_most("groups", self.groups.len(), GROUPS_MAX)?;
        for (name, values) in &self.series {
            if values.len() != self.groups.len() {
                let (values, groups) = (values.len(), self.groups.len());
                return Err(Error::Unequal { series: name.clone(), values, groups });
            }
        }
        let values = self.series.iter().flat_map(|(_, values)| values.iter().copied());
        let (mut least, mut most) = range_of(values, Spacing::Linear, true);
        // Leave space for the number at a bar's end.
        let room = (most - least) * 0.07;
        (least, most) = (
            if least < 0.0 { least - room } else { 0.0 },
            if most > 0.0 { most + room } else { 0.0 },
        );
        let ticks = Scale::new((least, most), (0.0, 1.0), Spacing::Linear).ticks();
        let widest = ticks.iter().map(|(_, text)| width_of(text, TEXT)).fold(0.0, f64::max);
        let left = (MARGIN + TEXT + 10.0 + widest + 8.0).ceil();
        let width = left + PLOT_WIDTH + MARGIN;
        let names = self.series.iter().map(|(name, _)| name.as_str());
        let legend = Legend::of(names, width - 2.0 * MARGIN);
        let top = MARGIN + TITLE + 8.0 + legend.height + 12.0;
        let y = Scale::new((least, most), (top + PLOT_HEIGHT, top), Spacing::Linear);
        let lines = self.groups.iter().map(|name| self.lines(name).len()).max().unwrap_or(1);
        let below = 16.0 + TEXT + LINE_HEIGHT * lines.saturating_sub(1) as f64;
        picture((width, top + PLOT_HEIGHT + below + MARGIN), |canvas| {
            let title = truncate(&self.title, TITLE, width - 2.0 * MARGIN);
            canvas.text(&title, (MARGIN, MARGIN + TITLE / 2.0), TITLE, Align::Left)?;
            canvas.legend(&legend, (MARGIN, MARGIN + TITLE + 8.0))?;
            for (value, text) in ticks {
                let position = y.position(value);
                canvas.path(&[(left, position), (left + PLOT_WIDTH, position)], 0.8, PALE)?;
                canvas.text(&text, (left - 7.0, position), TEXT, Align::Right)?;
            }
            let label = truncate(&self.y_label, TEXT, PLOT_HEIGHT);
            canvas.vertical_text(&label, (MARGIN + TEXT / 2.0, top + PLOT_HEIGHT / 2.0), TEXT)?;
            self.draw_groups(canvas, left, &y, top + PLOT_HEIGHT)?;
            canvas.path(&[(left, top), (left, top + PLOT_HEIGHT)], 1.2, DARK)?;
            canvas.path(&[(left, y.position(0.0)), (left + PLOT_WIDTH, y.position(0.0))], 1.2, DARK)
        })
    }

    /// Returns the lines of a group's name.
    fn lines(&self, name: &str) -> Vec<String> {
        wrapped(name, TEXT, PLOT_WIDTH / self.groups.len().max(1) as f64, LINES_MAX)
    }

    fn draw_groups(
        &self,
        canvas: &Canvas<'_>,
        left: f64,
        y: &Scale,
        bottom: f64,
    ) -> Result<(), Error> {
        let group_width = PLOT_WIDTH / self.groups.len().max(1) as f64;
        let bar_width = group_width * BARS_SHARE / self.series.len().max(1) as f64;
        for (group, name) in self.groups.iter().enumerate() {
            let middle = left + group_width * (group as f64 + 0.5);
            for (line, text) in self.lines(name).iter().enumerate() {
                let position = (middle, bottom + 14.0 + LINE_HEIGHT * line as f64);
                canvas.text(text, position, TEXT, Align::Centre)?;
            }
            for (index, (_, values)) in self.series.iter().enumerate() {
                let value = values[group];
                if !Spacing::Linear.can_show(value) {
                    continue;
                }
                let from = middle - group_width * BARS_SHARE / 2.0 + bar_width * index as f64;
                let end = y.position(value);
                let gap = (bar_width * 0.04).min(1.0);
                let corners = ((from + gap, y.position(0.0)), (from + bar_width - gap, end));
                canvas.rectangle(corners.0, corners.1, colour(index))?;
                let fits = |text: &String| width_of(text, TEXT) <= bar_width + 2.0;
                if let Some(text) = labels(value).into_iter().find(fits) {
                    let offset = if value < 0.0 { TEXT * 0.75 } else { -TEXT * 0.75 };
                    canvas.text(
                        &text,
                        (from + bar_width / 2.0, end + offset),
                        TEXT,
                        Align::Centre,
                    )?;
                }
            }
        }
        Ok(())
    }
}

/// Returns labels for a value, the most exact first. Omits those that round a nonzero value to 0.
fn labels(value: f64) -> Vec<String> {
    let mut all = vec![short_number(value)];
    all.extend([2, 1, 0].map(|digits| format!("{value:.digits$}")));
    all.retain(|text| value == 0.0 || text.parse::<f64>().is_ok_and(|shown| shown != 0.0));
    all
}

/// Formats a value with about three digits.
fn short_number(value: f64) -> String {
    let text = match value.abs() {
        magnitude if magnitude >= 1e6 => return format!("{value:.1e}"),
        magnitude if magnitude >= 100.0 => format!("{value:.0}"),
        magnitude if magnitude >= 1.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    };
    if !text.contains('.') {
        return text;
    }
    let short = text.trim_end_matches('0').trim_end_matches('.');
    if matches!(short, "-0" | "") { "0".into() } else { short.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_formatted_with_few_digits() {
        let values = [0.0, -0.0, 0.0001, 0.25, -4.9, 84.0, 1234.5, 2.5e9];
        assert_eq!(
            values.map(short_number),
            ["0", "0", "0", "0.25", "-4.9", "84", "1234", "2.5e9"].map(String::from)
        );
    }

    #[test]
    fn labels_of_narrow_bars_are_shorter_and_never_zero() {
        assert_eq!(labels(0.117), ["0.117", "0.12", "0.1"]);
        assert_eq!(labels(48.41), ["48.4", "48.41", "48.4", "48"]);
        assert_eq!(labels(0.0)[0], "0");
        assert!(labels(1e-9).is_empty());
    }

    #[test]
    fn long_names_are_wrapped_between_words_and_then_truncated() {
        assert_eq!(wrapped("lend-map", TEXT, 80.0, 3), ["lend-map"]);
        assert_eq!(wrapped("ordinary-blocking", TEXT, 70.0, 3), ["ordinary-", "blocking"]);
        let one = wrapped("unbreakably", TEXT, 40.0, 3);
        assert!(one.len() == 1 && one[0].ends_with('…'), "{one:?}");
        assert_eq!(wrapped("a b c d e f", TEXT, 1.0, 2).len(), 2);
        assert!(wrapped("", TEXT, 10.0, 3).is_empty());
    }

    #[test]
    fn each_value_has_a_bar_and_negative_bars_point_down() {
        let chart = BarChart {
            groups: vec!["a".into(), "b".into()],
            series: vec![("one".into(), vec![-4.0, 2.0]), ("two".into(), vec![f64::NAN, 1.0])],
            ..BarChart::default()
        };
        let svg = chart.svg().unwrap();
        let document = roxmltree::Document::parse(&svg).unwrap();
        let heights: Vec<f64> = document
            .descendants()
            .filter(|node| node.has_tag_name("rect"))
            .map(|node| node.attribute("height").unwrap().parse().unwrap())
            .collect();
        // Background, two marks of the legend, three bars.
        assert_eq!(heights.len(), 6);
        assert!((heights[3] - 2.0 * heights[4]).abs() <= 2.0, "{heights:?}");
    }
}
