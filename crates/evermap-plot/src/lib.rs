//! Draws charts as SVG, for simulations, traces, reports and benchmarks.
//!
//! Any values give a chart or an error with the reason. Without points, a chart has empty axes. A
//! value that is not a number is a gap. A single point has space around it. Texts may contain any
//! characters. Equal charts give equal bytes. Nothing is written to files; the caller gets the
//! text.
//!
//! [`LineChart`] and [`BarChart`] draw on a [`canvas`] along a [`scale`]. Both modules are public
//! for charts of other kinds.

mod bars;
pub mod canvas;
mod error;
mod lines;
pub mod scale;

pub use bars::BarChart;
pub use error::Error;
pub use lines::{Kind, LineChart, Series};

/// Compiles the example in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns all texts, as an XML parser reads them.
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
    fn values_that_are_not_numbers_are_gaps() {
        let beyond = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, -f64::MAX];
        for value in beyond {
            for log_y in [false, true] {
                let mut chart = chart(vec![(0.0, 1.0), (1.0, value), (2.0, 3.0), (value, 4.0)]);
                chart.log_y = log_y;
                let svg = chart.svg().unwrap();
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{value}");
                assert_eq!(svg.matches("<circle").count(), 2, "{value}: only the two valid points");
            }
        }
        let groups = vec!["a".into(), "b".into()];
        let series = vec![("one".into(), vec![f64::NAN, 2.0])];
        let bars = BarChart { groups, series, ..BarChart::default() };
        assert!(!bars.svg().unwrap().contains("NaN"));
    }

    #[test]
    fn a_single_point_is_visible() {
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
    fn any_text_is_preserved_and_well_formed() {
        let name = "<&> \"quoted\" 'so' ]]>";
        let mut chart = chart(vec![(0.0, 1.0), (1.0, 2.0)]);
        for text in [&mut chart.title, &mut chart.x_label, &mut chart.y_label] {
            *text = name.to_string();
        }
        chart.series[0].name = name.to_string();
        chart.levels = vec![(1.5, name.to_string())];
        let found = texts(&chart.svg().unwrap());
        assert_eq!(found.iter().filter(|text| *text == name).count(), 5, "{found:?}");
        chart.title = "null \0, escape \x1b, noncharacter \u{ffff}".into();
        assert!(texts(&chart.svg().unwrap())[0].contains("null \u{fffd}, escape \u{fffd}"));
    }

    #[test]
    fn long_names_are_truncated_and_wrapped_within_the_picture() {
        let mut chart = chart(vec![(0.0, 1.0)]);
        chart.series = (0..12)
            .map(|n| Series { name: format!("{n} {}", "long ".repeat(n * n)), points: Vec::new() })
            .collect();
        let svg = chart.svg().unwrap();
        assert!(texts(&svg).iter().any(|text| text.ends_with('…')));
        assert!(texts(&svg).iter().all(|text| text.chars().count() < 200));
    }

    #[test]
    fn invalid_ranges_are_refused() {
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
    fn lines_are_clipped_at_the_edge() {
        let mut chart = chart(vec![(0.0, 0.0), (10.0, 100.0)]);
        chart.y_range = Some((0.0, 50.0));
        chart.x_range = Some((0.0, 10.0));
        let svg = chart.svg().unwrap();
        // The line leaves at the top, halfway across.
        let document = roxmltree::Document::parse(&svg).unwrap();
        let ends: Vec<f64> = document
            .descendants()
            .filter(|node| node.has_tag_name("polyline"))
            .filter(|node| node.attribute("stroke") == Some("#1B2A52"))
            .flat_map(|node| node.attribute("points").unwrap().split([' ', ',']))
            .filter_map(|number| number.parse().ok())
            .collect();
        let [x0, _, x1, _] = ends[..] else { panic!("{ends:?}") };
        let across = f64::from(lines::PLOT_WIDTH) * 10.0;
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
    fn too_many_series_are_refused() {
        let chart = LineChart { series: vec![Series::default(); 65], ..LineChart::default() };
        assert!(matches!(chart.svg(), Err(Error::TooMany { most: 64, .. })));
    }
}
