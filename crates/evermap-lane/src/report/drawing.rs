//! A report as a picture.

use super::Report;
use crate::plot::{self, Kind, LineChart, Series};

impl Report {
    /// The completion of each period, in milliseconds, and the deadline, as SVG. Cost: as the frames that were sampled.
    ///
    /// # Errors
    /// Only those of the drawing itself.
    pub fn svg(&self, title: &str) -> Result<String, plot::Error> {
        let points = self.completions.iter().map(|(period, ms)| (*period as f64, *ms)).collect();
        completion_chart(
            title,
            self.deadline_ms,
            vec![Series { name: "completion".into(), points }],
        )
        .svg()
    }
}

/// Completions of one or more runs with the same deadline.
pub(crate) fn completion_chart(title: &str, deadline_ms: f64, series: Vec<Series>) -> LineChart {
    LineChart {
        title: title.into(),
        x_label: "period".into(),
        y_label: "completion [ms]".into(),
        levels: vec![(deadline_ms, "deadline".into())],
        kind: if series.len() == 1 { Kind::Lines } else { Kind::Points },
        series,
        ..LineChart::default()
    }
}
