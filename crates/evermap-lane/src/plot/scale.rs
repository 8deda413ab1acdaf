//! From values to places along an axis, and the values that are written there.

/// Values beyond are not drawn: differences of such could not be told as numbers.
const LARGEST: f64 = 1e300;
/// Differences below are none: steps between such could not be told as numbers.
const SMALLEST: f64 = 1.0 / LARGEST;
/// About so many values are written along an axis.
const TICKS: f64 = 6.0;

/// Whether equal distances are equal differences or equal ratios.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steps {
    Equal,
    Ratios,
}

#[derive(Clone, Copy, Debug)]
pub struct Scale {
    from: f64,
    to: f64,
    places: (f64, f64),
    steps: Steps,
}

impl Steps {
    /// Whether a value has a place at all.
    pub fn can_show(self, value: f64) -> bool {
        value.abs() <= LARGEST && (self == Steps::Equal || value >= SMALLEST)
    }

    /// Whether an axis can go from one value to the other.
    pub fn can_span(self, (from, to): (f64, f64)) -> bool {
        let is_wide = self == Steps::Ratios || to - from >= SMALLEST;
        self.can_show(from) && self.can_show(to) && from < to && is_wide
    }

    fn of(self, value: f64) -> f64 {
        match self {
            Steps::Equal => value,
            Steps::Ratios => libm::log10(value),
        }
    }
}

/// The least and the most of the values that can be shown, with room around a single one. From 0 where nothing is below.
pub fn range_of(values: impl Iterator<Item = f64>, steps: Steps, from_zero: bool) -> (f64, f64) {
    let mut range: Option<(f64, f64)> = None;
    for value in values.filter(|&value| steps.can_show(value)) {
        let (least, most) = range.unwrap_or((value, value));
        range = Some((least.min(value), most.max(value)));
    }
    match (steps, range) {
        (Steps::Equal, None) => (0.0, 1.0),
        (Steps::Ratios, None) => (1.0, 10.0),
        (Steps::Equal, Some((mut least, mut most))) => {
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
        (Steps::Ratios, Some((least, most))) => {
            let power = |exponent: f64| libm::pow(10.0, exponent);
            let (from, to) = (libm::log10(least).floor(), libm::log10(most).ceil());
            (power(from), power(to.max(from + 1.0)))
        }
    }
}

impl Scale {
    /// `range` is two numbers of which the first is less, and both can be shown.
    pub fn new(range: (f64, f64), places: (f64, f64), steps: Steps) -> Self {
        Self { from: range.0, to: range.1, places, steps }
    }

    /// Where this value lies, as a share of the axis; beyond it, below 0 or above 1.
    pub fn share(&self, value: f64) -> f64 {
        let (from, to) = (self.steps.of(self.from), self.steps.of(self.to));
        (self.steps.of(value) - from) / (to - from)
    }

    pub fn place_of_share(&self, share: f64) -> f64 {
        self.places.0 + (self.places.1 - self.places.0) * share
    }

    pub fn place(&self, value: f64) -> f64 {
        self.place_of_share(self.share(value))
    }

    /// Values worth writing, and how they are written.
    pub fn ticks(&self) -> Vec<(f64, String)> {
        match self.steps {
            Steps::Equal => self.equal_ticks(),
            Steps::Ratios => self.ratio_ticks(),
        }
    }

    fn equal_ticks(&self) -> Vec<(f64, String)> {
        let step = round_step((self.to - self.from) / TICKS);
        let first = (self.from / step - 1e-6).ceil();
        let count = ((self.to / step + 1e-6).floor() - first).clamp(0.0, 4.0 * TICKS) as usize;
        let at = |n: usize| (first + n as f64) * step;
        (0..=count).map(|n| (at(n), written(at(n), step))).collect()
    }

    fn ratio_ticks(&self) -> Vec<(f64, String)> {
        let (from, to) = (libm::log10(self.from).floor(), libm::log10(self.to).ceil());
        let is_narrow = to - from < 2.5;
        let factors: &[f64] = if is_narrow { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let every = ((to - from) / (2.0 * TICKS)).ceil().max(1.0) as usize;
        let mut ticks = Vec::new();
        for exponent in (from as i32..=to as i32).step_by(every) {
            for factor in factors {
                let value = factor * libm::pow(10.0, f64::from(exponent));
                if value >= self.from * (1.0 - 1e-9) && value <= self.to * (1.0 + 1e-9) {
                    ticks.push((value, written(value, value)));
                }
            }
        }
        ticks
    }
}

/// 1, 2 or 5 times a power of ten, and no less than this.
fn round_step(least: f64) -> f64 {
    let power = libm::pow(10.0, libm::log10(least).floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= least * 0.999_999);
    factor.unwrap_or(10.0) * power
}

/// With as many digits as steps of this size need.
fn written(value: f64, step: f64) -> String {
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

    fn ticks(from: f64, to: f64, steps: Steps) -> Vec<String> {
        let scale = Scale::new((from, to), (0.0, 100.0), steps);
        scale.ticks().into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn round_numbers_stand_at_the_axis() {
        assert_eq!(ticks(0.0, 100.0, Steps::Equal), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!(ticks(-50.0, 0.0, Steps::Equal), ["-50", "-40", "-30", "-20", "-10", "0"]);
        assert_eq!(ticks(0.0, 0.5, Steps::Equal), ["0", "0.1", "0.2", "0.3", "0.4", "0.5"]);
        assert_eq!(ticks(0.001, 10.0, Steps::Ratios), ["0.001", "0.01", "0.1", "1", "10"]);
        assert_eq!(ticks(1.0, 10.0, Steps::Ratios), ["1", "2", "5", "10"]);
    }

    #[test]
    fn few_ticks_on_any_axis() {
        for (from, to) in
            [(0.0, 1e-300), (0.0, 1e-290), (-1e300, 1e300), (1e15, 1e15 + 2.0), (0.0, 7.3)]
        {
            let count = ticks(from, to, Steps::Equal).len();
            assert!((1..=14).contains(&count), "{from} to {to}: {count}");
        }
        assert!(ticks(1e-300, 1e300, Steps::Ratios).len() <= 14);
    }

    #[test]
    fn on_ratios_half_and_twice_are_equally_far() {
        let scale = Scale::new((1.0, 100.0), (0.0, 200.0), Steps::Ratios);
        assert!((scale.place(10.0) - 100.0).abs() < 1e-9);
        let down = Scale::new((0.0, 4.0), (200.0, 100.0), Steps::Equal);
        assert_eq!((down.place(0.0), down.place(1.0), down.place(4.0)), (200.0, 175.0, 100.0));
    }

    #[test]
    fn a_range_begins_at_nothing_unless_something_is_below() {
        let of = |values: &[f64]| range_of(values.iter().copied(), Steps::Equal, true);
        assert_eq!(of(&[3.0, 8.0]), (0.0, 8.0));
        assert_eq!(of(&[-3.0, -8.0]), (-8.0, 0.0));
        assert_eq!(of(&[f64::NAN]), (0.0, 1.0));
        assert_eq!(of(&[0.0]), (-1.0, 1.0));
        assert_eq!(of(&[0.0, 5e-324]), (-1.0, 1.0), "too near to each other to be told apart");
    }
}
