//! Whether wake-ups come in a rhythm, and in which.
//!
//! A program may wake more than once in a period (a read, then the sleep), so intervals alone don't tell: the wake-ups are put into bins, and how
//! well they fall onto themselves when they are moved by some time (the autocorrelation) tells which time is the period.

use serde::Serialize;

/// With fewer wake-ups nothing is said of a rhythm.
pub const WAKE_UPS_MIN: usize = 100;
/// A rhythm is one from here on: the wake-ups fall onto themselves half as well moved by a period as not moved.
const AUTOCORRELATION_MIN: f64 = 0.5;
/// Of several times by which they fall onto themselves about as well, the shortest is the period, and the others are its multiples.
const NEARLY: f64 = 0.85;
/// What is looked at: the last ones. Bounds the work, which is the number of bins times a quarter of it.
const WAKE_UPS_MAX: usize = 1_024;
const BINS_MAX: u64 = 8_192;
/// Of the median interval.
const BINS_PER_INTERVAL: u64 = 8;
/// Bins are smoothed over three, so shorter times always look alike.
const LAG_MIN: usize = 4;
/// The mean interval is that near to the rough period if there is one wake-up in a period, but for some.
const ONE_SHARE: f64 = 0.2;
/// The rough period is known to about a bin, so nothing that is further from it is the period.
const TRUSTED_SHARE: f64 = 0.15;
/// If more of them are missing, the times that are there are no longer the times that there were.
const LOST_SHARE_MAX: f64 = 0.05;

/// When a thread woke.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Rhythm {
    /// How often.
    pub wake_ups: usize,
    /// From one to the next, at the mean.
    pub interval_us: f64,
    /// How much that varies: its standard deviation by its mean. 0 is a clock, 1 is chance. None if too many were not seen one by one.
    pub coefficient_of_variation: Option<f64>,
    /// The time by which the wake-ups fall best onto themselves; none for fewer than [`WAKE_UPS_MIN`] of them.
    pub period_us: Option<f64>,
    /// How well they do, from 0 (as by chance) to 1 (all).
    pub autocorrelation: Option<f64>,
    /// How often it wakes in a period.
    pub wake_ups_per_period: Option<f64>,
}

impl Rhythm {
    /// Whether there is one.
    pub fn is_periodic(&self) -> bool {
        self.period_us.is_some()
            && self.autocorrelation.is_some_and(|value| value >= AUTOCORRELATION_MIN)
    }
}

/// Of these times, in their order: the last of `count` wake-ups, of which `lost` were not seen one by one.
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
    // Among the remembered ones as many were lost, for each, as among all.
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

/// The period to about a bin, and how well the wake-ups fall onto themselves by it.
fn by_autocorrelation(times_ns: &[u64]) -> Option<(f64, f64)> {
    let (first, last) = (*times_ns.first()?, *times_ns.last()?);
    let span_ns = last.saturating_sub(first);
    let mut sorted: Vec<u64> = intervals(times_ns).collect();
    sorted.sort_unstable();
    let median_ns = sorted.get(sorted.len() / 2)?;
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
    let lag = *peaks.iter().find(|lag| by_lag[**lag] >= NEARLY * highest)?;
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

/// Where the parabola through three values has its highest point, from the middle one.
fn vertex(left: f64, middle: f64, right: f64) -> f64 {
    let curve = left - 2.0 * middle + right;
    if curve < 0.0 { ((left - right) / (2.0 * curve)).clamp(-0.5, 0.5) } else { 0.0 }
}

/// The period as the slope of the line through all wake-ups by the number of their period.
fn refined(times_ns: &[u64], rough_ns: f64) -> f64 {
    let mean_ns = intervals(times_ns).sum::<u64>() as f64 / (times_ns.len().max(2) - 1) as f64;
    let found = match (rough_ns / mean_ns - 1.0).abs() < ONE_SHARE {
        true => by_steps(times_ns, rough_ns),
        false => by_places(times_ns, rough_ns),
    };
    if (found / rough_ns - 1.0).abs() < TRUSTED_SHARE { found } else { rough_ns }
}

/// With one wake-up in a period, each is counted from the one before: a program that sleeps for a time, not until one, is late by a
/// little more each time, and by the end not where a clock would be.
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

/// With several, by their distance from the first; over few of them at the beginning, since with a rough period the numbers of late ones would be
/// wrong.
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

/// Of least squares.
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
    use crate::random::Random;

    const MS: f64 = 1e6;

    /// Chance that can be repeated.
    struct Chance(Random);

    impl Chance {
        fn of(seed: u64) -> Self {
            Self(Random::new(seed))
        }

        /// From 0 to 1.
        fn next(&mut self) -> f64 {
            (self.0.next() >> 11) as f64 / (1_u64 << 53) as f64
        }
    }

    fn rhythm(times: impl IntoIterator<Item = f64>) -> Rhythm {
        let times: Vec<u64> = times.into_iter().map(|time| time as u64).collect();
        of(&times, times.len() as u64, 0)
    }

    fn is_near(value: Option<f64>, expected: f64, share: f64) -> bool {
        value.is_some_and(|value| (value / expected - 1.0).abs() < share)
    }

    #[test]
    fn a_clock_is_found_to_a_hundredth_of_a_percent() {
        for period_ms in [1.0, 16.6833, 41.7083, 250.0] {
            let found = rhythm((0..400).map(|n| f64::from(n) * period_ms * MS));
            assert!(is_near(found.period_us, period_ms * 1e3, 1e-4), "{period_ms}: {found:?}");
            assert!(found.is_periodic() && found.coefficient_of_variation.unwrap() < 0.01);
            assert!(is_near(found.wake_ups_per_period, 1.0, 0.01));
        }
    }

    #[test]
    fn films_are_told_from_24_in_spite_of_a_tenth_of_jitter() {
        let seed = 24;
        let mut chance = Chance::of(seed);
        let period_ns = 1_001e9 / 24_000.0;
        let times: Vec<f64> =
            (0..240).map(|n| f64::from(n) * period_ns + chance.next() * period_ns / 10.0).collect();
        let found = rhythm(times);
        assert!(is_near(found.period_us, period_ns / 1e3, 3e-4), "seed {seed}: {found:?}");
        assert!(found.is_periodic());
    }

    #[test]
    fn who_sleeps_for_a_time_and_not_until_one_has_the_period_of_its_mean() {
        for seed in 1..10 {
            let mut chance = Chance::of(seed);
            let mut now = 0.0;
            let times: Vec<f64> = (0..800)
                .map(|_| {
                    now += (10.0 + chance.next()) * MS;
                    now
                })
                .collect();
            let found = rhythm(times);
            assert!(is_near(found.period_us, 10.5e3, 5e-3), "seed {seed}: {found:?}");
            assert!(is_near(found.wake_ups_per_period, 1.0, 5e-3), "seed {seed}: {found:?}");
        }
    }

    #[test]
    fn several_wake_ups_in_a_period_are_one_rhythm() {
        let offsets = [0.0, 0.07, 0.31];
        let times =
            (0..200).flat_map(|n| offsets.map(|offset| (f64::from(n) + offset) * 16.0 * MS));
        let found = rhythm(times);
        assert!(is_near(found.period_us, 16e3, 2e-3), "{found:?}");
        assert!(is_near(found.wake_ups_per_period, 3.0, 0.05), "{found:?}");
        assert!(found.is_periodic() && found.coefficient_of_variation.unwrap() > 0.5);
    }

    #[test]
    fn a_rhythm_is_heard_among_others_wake_ups() {
        let seed = 7;
        let mut chance = Chance::of(seed);
        let mut times: Vec<f64> = (0..300).map(|n| f64::from(n) * 20.0 * MS).collect();
        times.extend((0..100).map(|_| chance.next() * 300.0 * 20.0 * MS));
        times.sort_by(f64::total_cmp);
        let found = rhythm(times);
        assert!(is_near(found.period_us, 20e3, 5e-3), "seed {seed}: {found:?}");
        assert!(found.is_periodic(), "{found:?}");
    }

    #[test]
    fn chance_has_no_rhythm() {
        for seed in 0..20 {
            let mut chance = Chance::of(seed);
            let mut now = 0.0;
            let times: Vec<f64> = (0..800)
                .map(|_| {
                    now -= (1.0 - chance.next()).ln() * 10.0 * MS;
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
    fn too_few_are_counted_and_no_more() {
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
    fn what_was_not_seen_one_by_one_is_no_rhythm() {
        let times: Vec<u64> = (0..300).map(|n| n * 1_000_000).collect();
        let found = of(&times, 600, 300);
        assert_eq!((found.period_us, found.coefficient_of_variation), (None, None));
        assert!((found.interval_us - 299_000.0 / 599.0).abs() < 0.01, "{found:?}");
    }
}
