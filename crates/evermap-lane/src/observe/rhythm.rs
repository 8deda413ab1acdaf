//! Finds the period of wake-ups.
//!
//! A program may wake more than once in a period (after a read, and after its sleep), so intervals
//! alone do not show the period. The wake-ups are counted in bins, and the autocorrelation of the
//! bins shows it.

use evermap_observe::quantile;
use serde::Serialize;

/// Minimum number of wake-ups for a period.
pub const WAKE_UPS_MIN: usize = 100;
/// Minimum autocorrelation of a rhythm: half of the value without a shift.
const AUTOCORRELATION_MIN: f64 = 0.5;
/// Share of the highest peak of the autocorrelation from which a shorter time is the period and the
/// longer ones are its multiples.
const PEAK_SHARE: f64 = 0.85;
/// Number of most recent wake-ups used. Limits the work, which is the number of bins times a
/// quarter of it.
const WAKE_UPS_MAX: usize = 1_024;
const BINS_MAX: u64 = 8_192;
/// Bins in a median interval.
const BINS_PER_INTERVAL: u64 = 8;
/// Shortest lag considered. Bins are smoothed over three, so shorter lags always correlate.
const LAG_MIN: usize = 4;
/// Maximum relative difference between mean interval and rough period for one wake-up in nearly
/// every period.
const ONE_SHARE: f64 = 0.2;
/// Maximum relative error of the rough period, which is known to about a bin.
const TRUSTED_SHARE: f64 = 0.15;
/// Maximum share of lost wake-ups. With more, the recorded times are not representative.
const LOST_SHARE_MAX: f64 = 0.05;

/// Wake-ups of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Rhythm {
    /// Number of wake-ups.
    pub wake_ups: usize,
    /// Mean interval between wake-ups.
    pub interval_us: f64,
    /// Standard deviation of the intervals divided by their mean: 0 for a clock, 1 for random
    /// wake-ups. `None` if too many wake-ups have no individual time.
    pub coefficient_of_variation: Option<f64>,
    /// Period with the best autocorrelation. `None` for fewer than [`WAKE_UPS_MIN`] wake-ups.
    pub period_us: Option<f64>,
    /// Autocorrelation at the period, from 0 (random) to 1 (exact).
    pub autocorrelation: Option<f64>,
    /// Mean number of wake-ups in a period.
    pub wake_ups_per_period: Option<f64>,
}

impl Rhythm {
    /// Returns true if the wake-ups are periodic.
    pub fn is_periodic(&self) -> bool {
        self.period_us.is_some()
            && self.autocorrelation.is_some_and(|value| value >= AUTOCORRELATION_MIN)
    }
}

/// Analyses the times of the last of `count` wake-ups, in order. `lost` of the `count` have no
/// individual time.
pub(super) fn of(times_ns: &[u64], count: u64, lost: u64) -> Rhythm {
    let (Some(&first), Some(&last)) = (times_ns.first(), times_ns.last()) else {
        return Rhythm::default();
    };
    let wake_ups = usize::try_from(count).unwrap_or(usize::MAX).max(times_ns.len());
    let mut rhythm = Rhythm { wake_ups, ..Rhythm::default() };
    let span_ns = last.saturating_sub(first);
    if wake_ups < 3 || span_ns == 0 {
        return rhythm;
    }
    // Assumes the same share of lost wake-ups among the remembered ones as among all.
    let remembered = times_ns.len() as f64;
    let seen = (count.saturating_sub(lost) as f64).max(remembered);
    let in_span = (remembered * count as f64 / seen).max(remembered);
    rhythm.interval_us = span_ns as f64 / 1e3 / (in_span - 1.0);
    if lost as f64 > LOST_SHARE_MAX * wake_ups as f64 {
        return rhythm;
    }
    rhythm.coefficient_of_variation = variation(times_ns);
    let recent = &times_ns[times_ns.len().saturating_sub(WAKE_UPS_MAX)..];
    if recent.len() >= WAKE_UPS_MIN
        && let Some((rough_ns, autocorrelation)) = by_autocorrelation(recent)
    {
        let period_ns = refined(recent, rough_ns);
        rhythm.period_us = Some(period_ns / 1e3);
        rhythm.autocorrelation = Some(autocorrelation);
        rhythm.wake_ups_per_period = Some(period_ns / 1e3 / rhythm.interval_us);
    }
    rhythm
}

fn intervals(times_ns: &[u64]) -> impl Iterator<Item = u64> + '_ {
    times_ns.windows(2).map(|two| two[1].saturating_sub(two[0]))
}

fn variation(times_ns: &[u64]) -> Option<f64> {
    let count = times_ns.len().checked_sub(1).filter(|count| *count > 1)? as f64;
    let mean = intervals(times_ns).map(|ns| ns as f64).sum::<f64>() / count;
    let squares = intervals(times_ns).map(|ns| (ns as f64 - mean).powi(2)).sum::<f64>();
    (mean > 0.0).then(|| (squares / (count - 1.0)).sqrt() / mean)
}

/// Rough period, exact to about a bin, and its autocorrelation.
fn by_autocorrelation(times_ns: &[u64]) -> Option<(f64, f64)> {
    let (first, last) = (*times_ns.first()?, *times_ns.last()?);
    let span_ns = last.saturating_sub(first);
    let mut sorted: Vec<u64> = intervals(times_ns).collect();
    sorted.sort_unstable();
    let median_ns = quantile(&sorted, 0.5)?;
    let bin_ns = (median_ns / BINS_PER_INTERVAL).max(span_ns / BINS_MAX + 1);
    let mut bins = vec![0.0_f64; usize::try_from(span_ns / bin_ns).ok()? + 1];
    for time in times_ns {
        bins[usize::try_from((time.saturating_sub(first)) / bin_ns).ok()?] += 1.0;
    }
    let own = smoothed_without_mean(&bins);
    let power = own.iter().map(|value| value * value).sum::<f64>() / own.len() as f64;
    let lags = own.len() / 4;
    if power <= 0.0 || lags <= LAG_MIN + 1 {
        return None;
    }
    let by_lag: Vec<f64> = (0..=lags).map(|lag| correlation(&own, lag) / power).collect();
    let is_peak = |lag: &usize| by_lag[*lag] >= by_lag[lag - 1] && by_lag[*lag] >= by_lag[lag + 1];
    let peaks: Vec<usize> = (LAG_MIN..lags).filter(is_peak).collect();
    let highest = peaks.iter().map(|lag| by_lag[*lag]).max_by(f64::total_cmp)?;
    let lag = *peaks.iter().find(|lag| by_lag[**lag] >= PEAK_SHARE * highest)?;
    let rough = lag as f64 + vertex(by_lag[lag - 1], by_lag[lag], by_lag[lag + 1]);
    Some((rough * bin_ns as f64, by_lag[lag].clamp(0.0, 1.0)))
}

fn smoothed_without_mean(bins: &[f64]) -> Vec<f64> {
    let mean = bins.iter().sum::<f64>() / bins.len() as f64;
    let at = |place: Option<usize>| {
        place.and_then(|place| bins.get(place)).map_or(0.0, |value| value - mean)
    };
    (0..bins.len())
        .map(|place| (at(place.checked_sub(1)) + 2.0 * at(Some(place)) + at(Some(place + 1))) / 4.0)
        .collect()
}

fn correlation(values: &[f64], lag: usize) -> f64 {
    let moved = &values[lag..];
    values.iter().zip(moved).map(|(one, other)| one * other).sum::<f64>() / moved.len() as f64
}

/// Position of the maximum of a parabola through three values, relative to the middle one.
fn vertex(left: f64, middle: f64, right: f64) -> f64 {
    let curve = left - 2.0 * middle + right;
    if curve < 0.0 { ((left - right) / (2.0 * curve)).clamp(-0.5, 0.5) } else { 0.0 }
}

/// Refines the period: the slope of a line through all wake-ups over the numbers of their periods.
fn refined(times_ns: &[u64], rough_ns: f64) -> f64 {
    let mean_ns = intervals(times_ns).sum::<u64>() as f64 / (times_ns.len().max(2) - 1) as f64;
    let found = match (rough_ns / mean_ns - 1.0).abs() < ONE_SHARE {
        true => by_steps(times_ns, rough_ns),
        false => by_places(times_ns, rough_ns),
    };
    if (found / rough_ns - 1.0).abs() < TRUSTED_SHARE { found } else { rough_ns }
}

/// With one wake-up in a period, counts each from the one before. A program that sleeps for a
/// duration instead of until a moment is a little later each time, and drifts from a clock.
fn by_steps(times_ns: &[u64], rough_ns: f64) -> f64 {
    let mut number = 0.0;
    let mut points = vec![(0.0, 0.0)];
    let mut since_first_ns = 0.0;
    for interval in intervals(times_ns).map(|ns| ns as f64) {
        number += (interval / rough_ns).round();
        since_first_ns += interval;
        points.push((number, since_first_ns));
    }
    slope(&points).unwrap_or(rough_ns)
}

/// With several wake-ups in a period, numbers them by their distance from the first. Begins with
/// few of them, since a rough period gives wrong numbers to late ones.
fn by_places(times_ns: &[u64], rough_ns: f64) -> f64 {
    let Some(&first) = times_ns.first() else { return rough_ns };
    let mut period_ns = rough_ns;
    let mut count = 16;
    loop {
        let part = &times_ns[..count.min(times_ns.len())];
        let since_first = part.iter().map(|time| time.saturating_sub(first) as f64);
        let points: Vec<(f64, f64)> =
            since_first.map(|ns| ((ns / period_ns).round(), ns)).collect();
        period_ns = slope(&points)
            .filter(|slope| (slope / rough_ns - 1.0).abs() < TRUSTED_SHARE)
            .unwrap_or(period_ns);
        if count >= times_ns.len() {
            return period_ns;
        }
        count *= 2;
    }
}

/// Slope by least squares.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let (x_mean, y_mean) = (
        points.iter().map(|point| point.0).sum::<f64>() / count,
        points.iter().map(|point| point.1).sum::<f64>() / count,
    );
    let across = points.iter().map(|(x, y)| (x - x_mean) * (y - y_mean)).sum::<f64>();
    let along = points.iter().map(|(x, _)| (x - x_mean).powi(2)).sum::<f64>();
    (along > 0.0).then(|| across / along)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: f64 = 1e6;

    fn rhythm(times: impl IntoIterator<Item = f64>) -> Rhythm {
        let times: Vec<u64> = times.into_iter().map(|time| time as u64).collect();
        of(&times, times.len() as u64, 0)
    }

    fn is_near(value: Option<f64>, expected: f64, share: f64) -> bool {
        value.is_some_and(|value| (value / expected - 1.0).abs() < share)
    }

    #[test]
    fn a_clock_s_period_is_found_to_a_hundredth_of_a_percent() {
        for period_ms in [1.0, 16.6833, 41.7083, 250.0] {
            let found = rhythm((0..400).map(|n| f64::from(n) * period_ms * MS));
            assert!(is_near(found.period_us, period_ms * 1e3, 1e-4), "{period_ms}: {found:?}");
            assert!(found.is_periodic() && found.coefficient_of_variation.unwrap() < 0.01);
            assert!(is_near(found.wake_ups_per_period, 1.0, 0.01));
        }
    }

    #[test]
    fn film_rates_differ_from_24_despite_jitter_of_a_tenth() {
        let seed = 24;
        let mut random = fastrand::Rng::with_seed(seed);
        let period_ns = 1_001e9 / 24_000.0;
        let times: Vec<f64> =
            (0..240).map(|n| f64::from(n) * period_ns + random.f64() * period_ns / 10.0).collect();
        let found = rhythm(times);
        assert!(is_near(found.period_us, period_ns / 1e3, 3e-4), "seed {seed}: {found:?}");
        assert!(found.is_periodic());
    }

    #[test]
    fn relative_sleeps_have_their_mean_as_period() {
        for seed in 1..10 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut now = 0.0;
            let times: Vec<f64> = (0..800)
                .map(|_| {
                    now += (10.0 + random.f64()) * MS;
                    now
                })
                .collect();
            let found = rhythm(times);
            assert!(is_near(found.period_us, 10.5e3, 5e-3), "seed {seed}: {found:?}");
            assert!(is_near(found.wake_ups_per_period, 1.0, 5e-3), "seed {seed}: {found:?}");
        }
    }

    #[test]
    fn several_wake_ups_in_a_period_have_one_rhythm() {
        let offsets = [0.0, 0.07, 0.31];
        let times =
            (0..200).flat_map(|n| offsets.map(|offset| (f64::from(n) + offset) * 16.0 * MS));
        let found = rhythm(times);
        assert!(is_near(found.period_us, 16e3, 2e-3), "{found:?}");
        assert!(is_near(found.wake_ups_per_period, 3.0, 0.05), "{found:?}");
        assert!(found.is_periodic() && found.coefficient_of_variation.unwrap() > 0.5);
    }

    #[test]
    fn a_rhythm_is_found_among_random_wake_ups() {
        let seed = 7;
        let mut random = fastrand::Rng::with_seed(seed);
        let mut times: Vec<f64> = (0..300).map(|n| f64::from(n) * 20.0 * MS).collect();
        times.extend((0..100).map(|_| random.f64() * 300.0 * 20.0 * MS));
        times.sort_by(f64::total_cmp);
        let found = rhythm(times);
        assert!(is_near(found.period_us, 20e3, 5e-3), "seed {seed}: {found:?}");
        assert!(found.is_periodic(), "{found:?}");
    }

    #[test]
    fn random_wake_ups_have_no_rhythm() {
        for seed in 0..20 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut now = 0.0;
            let times: Vec<f64> = (0..800)
                .map(|_| {
                    now -= (1.0 - random.f64()).ln() * 10.0 * MS;
                    now
                })
                .collect();
            let found = rhythm(times);
            assert!(!found.is_periodic(), "seed {seed}: {found:?}");
            let variation = found.coefficient_of_variation.unwrap();
            assert!((0.8..1.2).contains(&variation), "seed {seed}: {found:?}");
        }
    }

    #[test]
    fn too_few_wake_ups_have_no_period() {
        assert_eq!(rhythm([]), Rhythm::default());
        let few = rhythm((0..99).map(|n| f64::from(n) * MS));
        assert_eq!((few.wake_ups, few.period_us), (99, None));
        assert!(!few.is_periodic());
        let at_once = rhythm([5.0; 300]);
        assert_eq!(at_once.period_us, None);
        let backwards = rhythm((0..300).rev().map(|n| f64::from(n) * MS));
        assert!(!backwards.is_periodic());
    }

    #[test]
    fn lost_wake_ups_have_no_rhythm() {
        let times: Vec<u64> = (0..300).map(|n| n * 1_000_000).collect();
        let found = of(&times, 600, 300);
        assert_eq!((found.period_us, found.coefficient_of_variation), (None, None));
        assert!((found.interval_us - 299_000.0 / 599.0).abs() < 0.01, "{found:?}");
    }
}
