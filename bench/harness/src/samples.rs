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

    /// Divides each figure by the figure of the same round.
    pub fn ratios(&self, other: &Samples) -> Samples {
        self.values.iter().zip(&other.values).map(|(one, other)| one / other).collect()
    }

    pub fn count(&self) -> usize {
        self.values.len()
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Samples {
        Samples { values: values.into_iter().collect() }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: &[f64]) -> Samples {
        values.iter().copied().collect()
    }

    #[test]
    fn the_median_of_an_even_number_is_the_mean_of_the_middle_two() {
        assert_eq!(samples(&[9.0, 1.0, 2.0]).median(), 2.0);
        assert_eq!(samples(&[9.0, 1.0, 2.0, 4.0]).median(), 3.0);
        assert!(Samples::new().median().is_nan());
    }

    #[test]
    fn samples_print_their_median_and_their_spread() {
        assert_eq!(samples(&[9.0, 1.0, 2.0]).to_string(), "2.00 (1.00-9.00)");
        let hundred: Samples = (0..=100).map(f64::from).collect();
        assert_eq!(hundred.middle(), "10.0-90.0");
        assert_eq!((hundred.mean(), hundred.min(), hundred.max()), (50.0, 0.0, 100.0));
    }

    #[test]
    fn ratios_compare_figures_of_the_same_round() {
        let ratios = samples(&[10.0, 30.0, 8.0]).ratios(&samples(&[5.0, 10.0]));
        assert_eq!((ratios.min(), ratios.max(), ratios.count()), (2.0, 3.0, 2));
    }

    #[test]
    fn figures_have_three_significant_digits_or_all_before_the_point() {
        assert_eq!(
            [1234.5, 12.345, 1.2345, 0.012_345].map(figure),
            ["1234", "12.3", "1.23", "0.0123"]
        );
    }

    #[test]
    fn times_are_converted_to_the_unit_of_the_figure() {
        let mut times = Samples::new();
        times.push_us(Duration::from_millis(3));
        times.push_ms(Duration::from_millis(3));
        assert_eq!((times.max(), times.min()), (3000.0, 3.0));
    }
}
