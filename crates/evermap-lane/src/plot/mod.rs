//! Charts as SVG: what simulations, traces and reports are shown in.
//!
//! Whatever the values are, a chart comes out or an error that says why not: without points there are axes, a value that is no number is a
//! gap, a single point has room around it, and any text may stand in it. The same chart is the same bytes. No file is touched: the caller writes
//! the text where it likes.

mod bars;
mod canvas;
mod lines;
mod scale;

pub use bars::BarChart;
pub use lines::LineChart;

/// What stands in one colour: a name, and points `(x, y)`.
///
/// A point that is no number (or beyond 1e300) is a gap; so is one that isn't above 0 where the scale is logarithmic.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// As the legend has it.
    pub name: String,
    /// In the order in which lines connect them.
    pub points: Vec<(f64, f64)>,
}

/// How points are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Connected, and dots where there are few.
    #[default]
    Lines,
    /// Dots alone.
    Points,
}

/// Why there is no chart.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An axis cannot be so.
    #[error(
        "the {axis} axis cannot go from {from} to {to}: it needs two numbers, the first below the second, and above 0 on a logarithmic scale"
    )]
    Range {
        /// `x` or `y`.
        axis: &'static str,
        /// Where it was to begin.
        from: f64,
        /// Where it was to end.
        to: f64,
    },
    /// Values and groups don't go together.
    #[error(
        "series `{series}` has {values} values for {groups} groups of bars: give one for each, NaN where there is none"
    )]
    Unequal {
        /// Its name.
        series: String,
        /// How many values it has.
        values: usize,
        /// How many groups there are.
        groups: usize,
    },
    /// More than anybody could see.
    #[error("{what}: {count}, and {most} at most are drawn; draw fewer, or several charts")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there were.
        count: usize,
        /// How many there may be.
        most: usize,
    },
    /// The plotting library could not draw.
    #[error("cannot draw: {0}")]
    Drawing(String),
}

/// So that no input makes a picture that nobody can open.
const SERIES_MAX: usize = 64;
const POINTS_MAX: usize = 1_000_000;

fn at_most(what: &'static str, count: usize, most: usize) -> Result<(), Error> {
    if count > most { Err(Error::TooMany { what, count, most }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As any reader of XML sees it.
    pub(super) fn texts(svg: &str) -> Vec<String> {
        let document = roxmltree::Document::parse(svg).unwrap();
        let texts = document.descendants().filter(|node| node.has_tag_name("text"));
        texts.map(|node| node.text().unwrap_or_default().trim().to_string()).collect()
    }

    fn chart(points: Vec<(f64, f64)>) -> LineChart {
        LineChart {
            title: "A title".into(),
            x_label: "capacity [%]".into(),
            y_label: "misses [%]".into(),
            series: vec![Series { name: "one".into(), points }],
            ..LineChart::default()
        }
    }

    #[test]
    fn a_chart_without_points_has_axes() {
        for chart in [chart(Vec::new()), LineChart::default()] {
            let svg = chart.svg().unwrap();
            assert!(texts(&svg).iter().any(|text| text == "0"), "{svg}");
        }
        assert!(BarChart::default().svg().is_ok());
    }

    #[test]
    fn values_that_are_no_numbers_are_gaps() {
        let beyond = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, -f64::MAX];
        for value in beyond {
            for log_y in [false, true] {
                let mut chart = chart(vec![(0.0, 1.0), (1.0, value), (2.0, 3.0), (value, 4.0)]);
                chart.log_y = log_y;
                let svg = chart.svg().unwrap();
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{value}");
                assert_eq!(svg.matches("<circle").count(), 2, "{value}: only the two that are");
            }
        }
        let groups = vec!["a".into(), "b".into()];
        let series = vec![("one".into(), vec![f64::NAN, 2.0])];
        let bars = BarChart { groups, series, ..BarChart::default() };
        assert!(!bars.svg().unwrap().contains("NaN"));
    }

    #[test]
    fn a_single_point_is_seen() {
        let small = f64::MIN_POSITIVE;
        for point in
            [(0.0, 0.0), (5.0, 7.0), (-3.0, 1e-12), (1e300, 1e300), (1.0, -2.0), (small, small)]
        {
            let svg = chart(vec![point]).svg().unwrap();
            assert_eq!(svg.matches("<circle").count(), 1, "{point:?}");
            assert!(!svg.contains("NaN"), "{point:?}");
        }
    }

    #[test]
    fn any_text_comes_out_as_it_was_and_is_well_formed() {
        let name = "<&> \"quoted\" 'so' ]]>";
        let mut chart = chart(vec![(0.0, 1.0), (1.0, 2.0)]);
        for text in [&mut chart.title, &mut chart.x_label, &mut chart.y_label] {
            *text = name.to_string();
        }
        chart.series[0].name = name.to_string();
        chart.levels = vec![(1.5, name.to_string())];
        let found = texts(&chart.svg().unwrap());
        assert_eq!(found.iter().filter(|text| *text == name).count(), 5, "{found:?}");
        chart.title = "null \0, escape \x1b, no character \u{ffff}".into();
        assert!(texts(&chart.svg().unwrap())[0].contains("null \u{fffd}, escape \u{fffd}"));
    }

    #[test]
    fn long_names_are_cut_and_wrapped_within_the_picture() {
        let mut chart = chart(vec![(0.0, 1.0)]);
        chart.series = (0..12)
            .map(|n| Series { name: format!("{n} {}", "long ".repeat(n * n)), points: Vec::new() })
            .collect();
        let svg = chart.svg().unwrap();
        assert!(texts(&svg).iter().any(|text| text.ends_with('…')));
        assert!(texts(&svg).iter().all(|text| text.chars().count() < 200));
    }

    #[test]
    fn axes_that_cannot_be_are_refused() {
        for range in [(1.0, 1.0), (2.0, 1.0), (f64::NAN, 1.0), (0.0, f64::INFINITY), (0.0, 5e-324)]
        {
            let mut chart = chart(vec![(0.0, 1.0)]);
            chart.x_range = Some(range);
            assert!(matches!(chart.svg(), Err(Error::Range { axis: "x", .. })), "{range:?}");
        }
        let mut chart = chart(vec![(0.0, 1.0)]);
        (chart.y_range, chart.log_y) = (Some((0.0, 1.0)), true);
        assert!(matches!(chart.svg(), Err(Error::Range { axis: "y", .. })));
    }

    #[test]
    fn lines_are_cut_at_the_edge_and_not_bent() {
        let mut chart = chart(vec![(0.0, 0.0), (10.0, 100.0)]);
        chart.y_range = Some((0.0, 50.0));
        chart.x_range = Some((0.0, 10.0));
        let svg = chart.svg().unwrap();
        // The line leaves at the top, halfway across: its end is as far from both sides.
        let document = roxmltree::Document::parse(&svg).unwrap();
        let ends: Vec<f64> = document
            .descendants()
            .filter(|node| node.has_tag_name("polyline"))
            .filter(|node| node.attribute("stroke") == Some("#1B2A52"))
            .flat_map(|node| node.attribute("points").unwrap().split([' ', ',']))
            .filter_map(|number| number.parse().ok())
            .collect();
        let [x0, _, x1, _] = ends[..] else { panic!("{ends:?}") };
        let across = f64::from(lines::ACROSS_POINTS) * 10.0;
        assert!((x1 - x0 - across / 2.0).abs() < across * 0.1, "{x0} to {x1}");
    }

    #[test]
    fn bars_without_a_value_for_each_group_are_refused() {
        let bars = BarChart {
            groups: vec!["a".into(), "b".into()],
            series: vec![("one".into(), vec![1.0])],
            ..BarChart::default()
        };
        assert!(matches!(bars.svg(), Err(Error::Unequal { values: 1, groups: 2, .. })));
    }

    #[test]
    fn a_million_series_are_refused() {
        let chart = LineChart { series: vec![Series::default(); 65], ..LineChart::default() };
        assert!(matches!(chart.svg(), Err(Error::TooMany { most: 64, .. })));
    }
}
