//! Groups of bars, one colour for each series; downwards for what is below 0.

use super::canvas::{
    At, Canvas, DARK, Legend, PALE, TEXT, TITLE, colour, cut, picture, width_of, wrapped,
};
use super::scale::{Scale, Steps, range_of};
use super::{Error, SERIES_MAX, at_most};

const ACROSS: f64 = 620.0;
const UP: f64 = 280.0;
const EDGE: f64 = 14.0;
/// The share of a group's width that its bars take.
const FULL: f64 = 0.76;
const GROUPS_MAX: usize = 200;
/// Of a group's name.
const LINES_MAX: usize = 3;
const LINE: f64 = TEXT + 2.0;

/// Groups of bars.
///
/// ```
/// use evermap_lane::plot::BarChart;
///
/// let chart = BarChart {
///     title: "Utilisation".into(),
///     y_label: "change [%]".into(),
///     groups: vec!["persistent memory".into(), "disk".into()],
///     series: vec![("model".into(), vec![-4.9, -49.6]), ("study".into(), vec![-4.0, -49.0])],
/// };
/// assert!(chart.svg()?.contains("-49.6"));
/// # Ok::<(), evermap_lane::plot::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BarChart {
    /// Above it.
    pub title: String,
    /// What the bars count, with its unit.
    pub y_label: String,
    /// The names below them.
    pub groups: Vec<String>,
    /// A name and a value for each group; NaN where there is none.
    pub series: Vec<(String, Vec<f64>)>,
}

impl BarChart {
    /// The chart as an SVG document.
    ///
    /// # Errors
    ///
    /// A series that has not one value for each group; more than 64 series or 200 groups.
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
        let (mut least, mut most) = range_of(values, Steps::Equal, true);
        // Room for the number at the bar's end.
        let room = (most - least) * 0.07;
        (least, most) = (
            if least < 0.0 { least - room } else { 0.0 },
            if most > 0.0 { most + room } else { 0.0 },
        );
        let ticks = Scale::new((least, most), (0.0, 1.0), Steps::Equal).ticks();
        let widest = ticks.iter().map(|(_, text)| width_of(text, TEXT)).fold(0.0, f64::max);
        let left = (EDGE + TEXT + 10.0 + widest + 8.0).ceil();
        let width = left + ACROSS + EDGE;
        let names = self.series.iter().map(|(name, _)| name.as_str());
        let legend = Legend::of(names, width - 2.0 * EDGE);
        let top = EDGE + TITLE + 8.0 + legend.height + 12.0;
        let y = Scale::new((least, most), (top + UP, top), Steps::Equal);
        let lines = self.groups.iter().map(|name| self.lines(name).len()).max().unwrap_or(1);
        let below = 16.0 + TEXT + LINE * lines.saturating_sub(1) as f64;
        picture((width, top + UP + below + EDGE), |canvas| {
            let title = cut(&self.title, TITLE, width - 2.0 * EDGE);
            canvas.text(&title, (EDGE, EDGE + TITLE / 2.0), TITLE, At::Left)?;
            canvas.legend(&legend, (EDGE, EDGE + TITLE + 8.0))?;
            for (value, text) in ticks {
                let place = y.place(value);
                canvas.path(&[(left, place), (left + ACROSS, place)], 0.8, PALE)?;
                canvas.text(&text, (left - 7.0, place), TEXT, At::Right)?;
            }
            let label = cut(&self.y_label, TEXT, UP);
            canvas.upright(&label, (EDGE + TEXT / 2.0, top + UP / 2.0), TEXT)?;
            self.draw_groups(canvas, left, &y, top + UP)?;
            canvas.path(&[(left, top), (left, top + UP)], 1.2, DARK)?;
            canvas.path(&[(left, y.place(0.0)), (left + ACROSS, y.place(0.0))], 1.2, DARK)
        })
    }

    /// A group's name, as it stands below it.
    fn lines(&self, name: &str) -> Vec<String> {
        wrapped(name, TEXT, ACROSS / self.groups.len().max(1) as f64, LINES_MAX)
    }

    fn draw_groups(
        &self,
        canvas: &Canvas<'_>,
        left: f64,
        y: &Scale,
        bottom: f64,
    ) -> Result<(), Error> {
        let group_width = ACROSS / self.groups.len().max(1) as f64;
        let bar_width = group_width * FULL / self.series.len().max(1) as f64;
        for (group, name) in self.groups.iter().enumerate() {
            let middle = left + group_width * (group as f64 + 0.5);
            for (line, text) in self.lines(name).iter().enumerate() {
                let place = (middle, bottom + 14.0 + LINE * line as f64);
                canvas.text(text, place, TEXT, At::Centre)?;
            }
            for (index, (_, values)) in self.series.iter().enumerate() {
                let value = values[group];
                if !Steps::Equal.can_show(value) {
                    continue;
                }
                let from = middle - group_width * FULL / 2.0 + bar_width * index as f64;
                let end = y.place(value);
                let gap = (bar_width * 0.04).min(1.0);
                let corners = ((from + gap, y.place(0.0)), (from + bar_width - gap, end));
                canvas.rectangle(corners.0, corners.1, colour(index))?;
                let fits = |text: &String| width_of(text, TEXT) <= bar_width + 2.0;
                if let Some(text) = figures(value).into_iter().find(fits) {
                    let beside = if value < 0.0 { TEXT * 0.75 } else { -TEXT * 0.75 };
                    canvas.text(&text, (from + bar_width / 2.0, end + beside), TEXT, At::Centre)?;
                }
            }
        }
        Ok(())
    }
}

/// As exactly as it is, and shorter ones that still say something.
fn figures(value: f64) -> Vec<String> {
    let mut all = vec![figure(value)];
    all.extend([2, 1, 0].map(|digits| format!("{value:.digits$}")));
    all.retain(|text| value == 0.0 || text.parse::<f64>().is_ok_and(|shown| shown != 0.0));
    all
}

/// Three figures, about.
fn figure(value: f64) -> String {
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
    fn bars_say_their_value_in_few_digits() {
        let values = [0.0, -0.0, 0.0001, 0.25, -4.9, 84.0, 1234.5, 2.5e9];
        assert_eq!(
            values.map(figure),
            ["0", "0", "0", "0.25", "-4.9", "84", "1234", "2.5e9"].map(String::from)
        );
    }

    #[test]
    fn a_narrow_bar_says_less_of_its_value_and_never_that_it_is_nothing() {
        assert_eq!(figures(0.117), ["0.117", "0.12", "0.1"]);
        assert_eq!(figures(48.41), ["48.4", "48.41", "48.4", "48"]);
        assert_eq!(figures(0.0)[0], "0");
        assert!(figures(1e-9).is_empty());
    }

    #[test]
    fn long_names_are_broken_at_their_words_and_cut_last() {
        assert_eq!(wrapped("lend-map", TEXT, 80.0, 3), ["lend-map"]);
        assert_eq!(wrapped("ordinary-blocking", TEXT, 70.0, 3), ["ordinary-", "blocking"]);
        let one = wrapped("unbreakably", TEXT, 40.0, 3);
        assert!(one.len() == 1 && one[0].ends_with('…'), "{one:?}");
        assert_eq!(wrapped("a b c d e f", TEXT, 1.0, 2).len(), 2);
        assert!(wrapped("", TEXT, 10.0, 3).is_empty());
    }

    #[test]
    fn there_is_a_bar_for_each_value_and_what_is_below_nothing_goes_down() {
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
        // The ground, two marks of the legend, three bars.
        assert_eq!(heights.len(), 6);
        assert!((heights[3] - 2.0 * heights[4]).abs() <= 2.0, "{heights:?}");
    }
}
