//! A report as a picture.

use super::{Report, Timed};
use crate::plot::{self, Kind, LineChart, Series};

impl Report {
    /// The completion of each period, in milliseconds, and the deadline, as SVG. Cost: as the frames that were sampled.
    ///
    /// # Errors
    /// Only those of the drawing itself.
    pub fn svg(&self, title: &str) -> Result<String, plot::Error> {
        let series = vec![Series { name: "completion".into(), points: points(&self.timed) }];
        completion_chart(title, self.deadline_ms, series).svg()
    }
}

/// Completions of one or more runs with the same deadline. Where the latest is ten deadlines late, the axis is logarithmic: the others would lie on the ground.
pub(crate) fn completion_chart(title: &str, deadline_ms: f64, series: Vec<Series>) -> LineChart {
    let points = series.iter().flat_map(|series| &series.points);
    let latest_ms = points.map(|(_, ms)| *ms).fold(0.0, f64::max);
    LineChart {
        log_y: latest_ms > 10.0 * deadline_ms,
        title: title.into(),
        x_label: "period".into(),
        y_label: "completion [ms]".into(),
        levels: vec![(deadline_ms, format!("deadline, {deadline_ms:.2} ms"))],
        kind: if series.len() == 1 { Kind::Lines } else { Kind::Points },
        series,
        ..LineChart::default()
    }
}

/// Completions by period.
pub(crate) fn points(timed: &[Timed]) -> Vec<(f64, f64)> {
    timed.iter().map(|frame| (frame.period as f64, frame.completion_ms)).collect()
}
