//! Scales: map values to positions on an axis, and choose the ticks.
//!
//! ```
//! use evermap_plot::scale::{Scale, Spacing, range_of};
//!
//! let range = range_of([3.0, 8.0].into_iter(), Spacing::Linear, true);
//! let axis = Scale::new(range, (300.0, 0.0), Spacing::Linear);
//! assert_eq!(axis.position(4.0), 150.0);
//! let (value, text) = &axis.ticks()[1];
//! assert_eq!((*value, text.as_str()), (2.0, "2"));
//! ```

/// Larger values are not drawn, because their differences could overflow.
const LARGEST: f64 = 1e300;
/// Smaller differences count as none, because steps between such values could underflow.
const SMALLEST: f64 = 1.0 / LARGEST;
/// Approximate number of ticks.
const TICKS: f64 = 6.0;

/// Spacing of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    /// Equal differences have equal distances.
    Linear,
    /// Equal ratios have equal distances.
    Logarithmic,
}

/// Axis: a range of values and the positions of its ends.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    from: f64,
    to: f64,
    positions: (f64, f64),
    spacing: Spacing,
}

impl Spacing {
    /// Returns true if the value can be drawn.
    pub fn can_show(self, value: f64) -> bool {
        value.abs() <= LARGEST && (self == Spacing::Linear || value >= SMALLEST)
    }

    /// Returns true if an axis can have this range.
    pub fn can_span(self, (from, to): (f64, f64)) -> bool {
        let is_wide = self == Spacing::Logarithmic || to - from >= SMALLEST;
        self.can_show(from) && self.can_show(to) && from < to && is_wide
    }

    fn of(self, value: f64) -> f64 {
        match self {
            Spacing::Linear => value,
            Spacing::Logarithmic => libm::log10(value),
        }
    }
}

/// Returns the range of the values that can be drawn. Adds space around a single value. With
/// `from_zero`, the range includes 0.
pub fn range_of(
    values: impl Iterator<Item = f64>,
    spacing: Spacing,
    from_zero: bool,
) -> (f64, f64) {
    let mut range: Option<(f64, f64)> = None;
    for value in values.filter(|&value| spacing.can_show(value)) {
        let (least, most) = range.unwrap_or((value, value));
        range = Some((least.min(value), most.max(value)));
    }
    match (spacing, range) {
        (Spacing::Linear, None) => (0.0, 1.0),
        (Spacing::Logarithmic, None) => (1.0, 10.0),
        (Spacing::Linear, Some((mut least, mut most))) => {
            if from_zero {
                (least, most) = (least.min(0.0), most.max(0.0));
            }
            let room = (most.abs().max(least.abs()) * 1e-9).max(SMALLEST);
            if most - least <= room {
                let around = if most.abs() <= SMALLEST { 1.0 } else { most.abs() / 2.0 };
                return (least - around, most + around);
            }
            (least, most)
        }
        (Spacing::Logarithmic, Some((least, most))) => {
            let power = |exponent: f64| libm::pow(10.0, exponent);
            let (from, to) = (libm::log10(least).floor(), libm::log10(most).ceil());
            (power(from), power(to.max(from + 1.0)))
        }
    }
}

impl Scale {
    /// Creates a scale. `range` must be valid: finite and ascending.
    pub fn new(range: (f64, f64), positions: (f64, f64), spacing: Spacing) -> Self {
        Self { from: range.0, to: range.1, positions, spacing }
    }

    /// Returns the position of a value as a share of the axis; below 0 or above 1 if it is outside.
    pub fn share(&self, value: f64) -> f64 {
        let (from, to) = (self.spacing.of(self.from), self.spacing.of(self.to));
        (self.spacing.of(value) - from) / (to - from)
    }

    /// Returns the position of a share of the axis.
    pub fn position_of_share(&self, share: f64) -> f64 {
        self.positions.0 + (self.positions.1 - self.positions.0) * share
    }

    /// Returns the position of a value.
    pub fn position(&self, value: f64) -> f64 {
        self.position_of_share(self.share(value))
    }

    /// Returns the values and texts of the ticks.
    pub fn ticks(&self) -> Vec<(f64, String)> {
        match self.spacing {
            Spacing::Linear => self.linear_ticks(),
            Spacing::Logarithmic => self.logarithmic_ticks(),
        }
    }

    fn linear_ticks(&self) -> Vec<(f64, String)> {
        let step = round_step((self.to - self.from) / TICKS);
        let first = (self.from / step - 1e-6).ceil();
        let count = ((self.to / step + 1e-6).floor() - first).clamp(0.0, 4.0 * TICKS) as usize;
        let at = |n: usize| (first + n as f64) * step;
        (0..=count).map(|n| (at(n), format_tick(at(n), step))).collect()
    }

    fn logarithmic_ticks(&self) -> Vec<(f64, String)> {
        let (from, to) = (libm::log10(self.from).floor(), libm::log10(self.to).ceil());
        let is_narrow = to - from < 2.5;
        let factors: &[f64] = if is_narrow { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let every = ((to - from) / (2.0 * TICKS)).ceil().max(1.0) as usize;
        let mut ticks = Vec::new();
        for exponent in (from as i32..=to as i32).step_by(every) {
            for factor in factors {
                let value = factor * libm::pow(10.0, f64::from(exponent));
                if value >= self.from * (1.0 - 1e-9) && value <= self.to * (1.0 + 1e-9) {
                    ticks.push((value, format_tick(value, value)));
                }
            }
        }
        ticks
    }
}

/// Returns the smallest number of the form 1, 2 or 5 times a power of ten that is at least `least`.
fn round_step(least: f64) -> f64 {
    let power = libm::pow(10.0, libm::log10(least).floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= least * 0.999_999);
    factor.unwrap_or(10.0) * power
}

/// Formats a tick with the digits that steps of this size need.
fn format_tick(value: f64, step: f64) -> String {
    let magnitude = value.abs().max(step);
    if magnitude >= 1e7 || step < 1e-5 {
        let text = format!("{value:.2e}");
        return match text.split_once('e') {
            Some((digits, exponent)) => {
                format!("{}e{exponent}", digits.trim_end_matches('0').trim_end_matches('.'))
            }
            None => text,
        };
    }
    let decimals = (-libm::log10(step).floor()).clamp(0.0, 6.0) as usize;
    let text = format!("{value:.decimals$}");
    if text.trim_start_matches(['-', '0', '.']).is_empty() { "0".into() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(from: f64, to: f64, spacing: Spacing) -> Vec<String> {
        let scale = Scale::new((from, to), (0.0, 100.0), spacing);
        scale.ticks().into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(ticks(0.0, 100.0, Spacing::Linear), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!(ticks(-50.0, 0.0, Spacing::Linear), ["-50", "-40", "-30", "-20", "-10", "0"]);
        assert_eq!(ticks(0.0, 0.5, Spacing::Linear), ["0", "0.1", "0.2", "0.3", "0.4", "0.5"]);
        assert_eq!(ticks(0.001, 10.0, Spacing::Logarithmic), ["0.001", "0.01", "0.1", "1", "10"]);
        assert_eq!(ticks(1.0, 10.0, Spacing::Logarithmic), ["1", "2", "5", "10"]);
    }

    #[test]
    fn every_axis_has_few_ticks() {
        for (from, to) in
            [(0.0, 1e-300), (0.0, 1e-290), (-1e300, 1e300), (1e15, 1e15 + 2.0), (0.0, 7.3)]
        {
            let count = ticks(from, to, Spacing::Linear).len();
            assert!((1..=14).contains(&count), "{from} to {to}: {count}");
        }
        assert!(ticks(1e-300, 1e300, Spacing::Logarithmic).len() <= 14);
    }

    #[test]
    fn equal_ratios_have_equal_distances_on_a_logarithmic_scale() {
        let scale = Scale::new((1.0, 100.0), (0.0, 200.0), Spacing::Logarithmic);
        assert!((scale.position(10.0) - 100.0).abs() < 1e-9);
        let down = Scale::new((0.0, 4.0), (200.0, 100.0), Spacing::Linear);
        assert_eq!(
            (down.position(0.0), down.position(1.0), down.position(4.0)),
            (200.0, 175.0, 100.0)
        );
    }

    #[test]
    fn a_range_includes_0() {
        let of = |values: &[f64]| range_of(values.iter().copied(), Spacing::Linear, true);
        assert_eq!(of(&[3.0, 8.0]), (0.0, 8.0));
        assert_eq!(of(&[-3.0, -8.0]), (-8.0, 0.0));
        assert_eq!(of(&[f64::NAN]), (0.0, 1.0));
        assert_eq!(of(&[0.0]), (-1.0, 1.0));
        assert_eq!(of(&[0.0, 5e-324]), (-1.0, 1.0), "too close to distinguish");
    }
}
