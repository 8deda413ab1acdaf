//! Repeated measurements of one figure, printed as median, minimum and maximum.

use std::fmt;
use std::time::Duration;

/// Measurements in one unit.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    values: Vec<f64>,
}

impl Samples {
    pub fn new() -> Samples {
        Samples::default()
    }

    pub fn push(&mut self, value: f64) {
        self.values.push(value);
    }

    pub fn push_us(&mut self, time: Duration) {
        self.push(time.as_secs_f64() * 1e6);
    }

    pub fn push_ms(&mut self, time: Duration) {
        self.push(time.as_secs_f64() * 1e3);
    }

    pub fn median(&self) -> f64 {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        match sorted.len() {
            0 => f64::NAN,
            n if n % 2 == 1 => sorted[middle],
            _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
        }
    }

    pub fn mean(&self) -> f64 {
        self.values.iter().sum::<f64>() / self.values.len() as f64
    }

    /// Formats the range between the 10th and the 90th percentile.
    pub fn middle(&self) -> String {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |part: f64| {
            let index = (sorted.len().saturating_sub(1)) as f64 * part;
            figure(sorted.get(index.round() as usize).copied().unwrap_or(f64::NAN))
        };
        format!("{}-{}", at(0.1), at(0.9))
    }

    pub fn min(&self) -> f64 {
        self.values.iter().copied().fold(f64::INFINITY, f64::min)
    }

    pub fn max(&self) -> f64 {
        self.values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    pub fn count(&self) -> usize {
        self.values.len()
    }
}

/// Median, then minimum to maximum in parentheses.
impl fmt::Display for Samples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (least, most) = (figure(self.min()), figure(self.max()));
        write!(f, "{} ({least}-{most})", figure(self.median()))
    }
}

/// Formats a number with three significant digits, or all digits before the point.
pub fn figure(value: f64) -> String {
    match value.abs() {
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        v if v >= 0.0995 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// Prints a line of a Markdown table.
pub fn row(cells: &[String]) {
    println!("| {} |", cells.join(" | "));
}

/// Prints the head of a Markdown table.
pub fn head(titles: &[&str]) {
    println!("| {} |", titles.join(" | "));
    println!("|{}", "---|".repeat(titles.len()));
}
