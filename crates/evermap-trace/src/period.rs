//! Exact periods: a clip of 23.976 frames a second must not drift by a frame in 12 hours.

use std::fmt;
use std::str::FromStr;

const NS_PER_S: u64 = 1_000_000_000;
/// Decimal rates that stand for NTSC rates: the number of thousands of frames in 1,001 seconds.
const NTSC: [(&str, u64); 6] =
    [("23.976", 24), ("29.97", 30), ("47.952", 48), ("59.94", 60), ("119.88", 120), ("23.98", 24)];

/// Time from one period's beginning to the next, as a fraction of nanoseconds. The n-th beginning
/// is computed exactly, so rounding errors do not add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Period {
    /// The period is `ns / parts` nanoseconds.
    ns: u64,
    parts: u64,
}

impl Period {
    /// Period of `us` microseconds. Returns `None` for 0 and for more than an hour.
    pub fn of_us(us: u64) -> Option<Self> {
        Self::of_fraction(us.checked_mul(1_000)?, 1)
    }

    /// Period of `numerator / denominator` frames a second, as in 24000/1001. Returns `None` for
    /// less than one frame an hour and for more than a million a second.
    pub fn of_rate(numerator: u64, denominator: u64) -> Option<Self> {
        Self::of_fraction(NS_PER_S.checked_mul(denominator)?, numerator)
    }

    fn of_fraction(ns: u64, parts: u64) -> Option<Self> {
        let is_possible = parts > 0 && ns / parts >= 1_000 && ns / parts <= 3_600 * NS_PER_S;
        is_possible.then_some(Self { ns, parts })
    }

    /// Length in nanoseconds, rounded down.
    pub fn ns(self) -> u64 {
        self.ns / self.parts
    }

    /// Beginning of period `n` in nanoseconds after the first beginning. Exact to the nanosecond
    /// for any `n`.
    pub fn begin_ns(self, n: u64) -> u64 {
        let ns = u128::from(self.ns) * u128::from(n) / u128::from(self.parts);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// Number of the period at `ns` nanoseconds after the first beginning.
    pub fn at(self, ns: u64) -> u64 {
        // Beginnings are rounded down, so the next period may have begun already.
        let n = u128::from(ns) * u128::from(self.parts) / u128::from(self.ns);
        let n = u64::try_from(n).unwrap_or(u64::MAX);
        if self.begin_ns(n.saturating_add(1)) <= ns { n + 1 } else { n }
    }

    /// Periods per second.
    pub fn rate_hz(self) -> f64 {
        NS_PER_S as f64 * self.parts as f64 / self.ns as f64
    }
}

impl FromStr for Period {
    type Err = String;

    /// Parses frames a second: `24`, `24000/1001`, `23.976` (which means 24000/1001), `12.5`.
    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || {
            format!(
                "`{text}` is not a rate: give frames a second as 24, 23.976 or 24000/1001, at most a million"
            )
        };
        let text = text.trim();
        let (numerator, denominator) = match text.split_once('/') {
            Some((numerator, denominator)) => {
                (numerator.trim().parse(), denominator.trim().parse())
            }
            None => match NTSC.iter().find(|(decimal, _)| *decimal == text) {
                Some((_, thousands)) => (Ok(thousands * 1_000), Ok(1_001)),
                None => {
                    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
                    let is_short = decimals.len() <= 6;
                    let scale = is_short.then(|| 10_u64.pow(decimals.len() as u32));
                    (format!("{whole}{decimals}").parse(), Ok(scale.ok_or_else(invalid)?))
                }
            },
        };
        let (numerator, denominator) =
            (numerator.map_err(|_| invalid())?, denominator.map_err(|_| invalid())?);
        Period::of_rate(numerator, denominator).ok_or_else(invalid)
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} ms", self.ns as f64 / self.parts as f64 / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ntsc_decimals_equal_their_fractions() {
        let film: Period = "23.976".parse().unwrap();
        assert_eq!(film, "24000/1001".parse().unwrap());
        // After a day, 86,400 s are 2,071,528.47 frames, not 2,071,526.4.
        assert_eq!(film.at(86_400 * NS_PER_S), 2_071_528);
    }

    #[test]
    fn periods_do_not_drift_in_a_year() {
        let film: Period = "24000/1001".parse().unwrap();
        assert_eq!(film.begin_ns(24_000 * 31_536), 1_001 * 31_536 * NS_PER_S);
    }

    #[test]
    fn at_returns_the_period_that_began_last() {
        for rate in ["24", "60", "1000", "24000/1001", "59.94", "12.5", "0.5"] {
            let period: Period = rate.parse().unwrap();
            for n in [0, 1, 2, 3, 7, 100, 1_001, 1_000_003] {
                let begin = period.begin_ns(n);
                assert_eq!(period.at(begin), n, "{rate}: the beginning of {n}");
                assert_eq!(period.at(begin + 1), n, "{rate}: within {n}");
                if n > 0 {
                    assert_eq!(period.at(begin - 1), n - 1, "{rate}: before {n}");
                }
            }
        }
    }

    #[test]
    fn invalid_rates_are_refused() {
        for text in
            ["", "0", "-24", "fast", "24/0", "0/1", "2000000", "1e3", "24.0000001", "1/7200"]
        {
            assert!(text.parse::<Period>().is_err(), "{text}");
        }
        assert_eq!(Period::of_us(0), None);
        assert_eq!(Period::of_us(u64::MAX), None);
    }
}
