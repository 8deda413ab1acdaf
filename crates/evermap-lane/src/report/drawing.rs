//! Charts of reports.

use evermap_plot::{Error, Kind, LineChart, Series};

use super::{FrameTimes, Report};

impl Report {
    /// Draws the completion of each sampled frame and the deadline in milliseconds, as SVG. Cost
    /// grows with the number of sampled frames.
    ///
    /// # Errors
    /// Errors of the chart library only.
    pub fn svg(&self, title: &str) -> Result<String, Error> {
        let series = vec![Series { name: "completion".into(), points: points(&self.timed) }];
        completion_chart(title, self.deadline_ms, series).svg()
    }
}

/// Chart of the completions of one or more runs with the same deadline. The axis is logarithmic if
/// the latest completion exceeds ten deadlines, since a linear axis would flatten all other values.
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

/// Points of period number and completion.
pub(crate) fn points(timed: &[FrameTimes]) -> Vec<(f64, f64)> {
    timed.iter().map(|frame| (frame.period as f64, frame.completion_ms)).collect()
}
