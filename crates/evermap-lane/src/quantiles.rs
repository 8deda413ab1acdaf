//! What many measured times come to.

use serde::{Deserialize, Serialize};

/// Of measured times, in the unit they were given in: exact, by nearest rank, of all samples. All are 0 without samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Quantiles {
    /// How many samples there were.
    pub count: usize,
    /// Their mean.
    pub mean: f64,
    /// The smallest.
    pub min: f64,
    /// Half of them are not larger.
    pub p50: f64,
    /// 99 of 100 are not larger.
    pub p99: f64,
    /// 999 of 1,000 are not larger: the largest, below 1,000 samples.
    pub p999: f64,
    /// The largest.
    pub max: f64,
}

impl Quantiles {
    /// Of these. Cost: a sort.
    pub fn of(samples: &[f64]) -> Self {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else {
            return Self::default();
        };
        let at = |share: f64| sorted[quantile_index(sorted.len(), share)];
        Self {
            count: sorted.len(),
            mean: sorted.iter().sum::<f64>() / sorted.len() as f64,
            min,
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            max,
        }
    }

    /// Of nanoseconds, in milliseconds.
    pub fn of_ns_in_ms(samples: &[u64]) -> Self {
        let ms: Vec<f64> = samples.iter().map(|&ns| ns as f64 / 1e6).collect();
        Self::of(&ms)
    }
}

/// Where the quantile stands in sorted samples, by nearest rank.
pub(crate) fn quantile_index(count: usize, share: f64) -> usize {
    let rank = (count as f64 * share).ceil() as usize;
    rank.clamp(1, count.max(1)) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_samples() {
        let samples: Vec<f64> = (1..=1_000).rev().map(f64::from).collect();
        let of = Quantiles::of(&samples);
        assert_eq!((of.min, of.p50, of.p99, of.p999, of.max), (1.0, 500.0, 990.0, 999.0, 1_000.0));
        assert_eq!(of.mean, 500.5);
    }

    #[test]
    fn few_samples_and_none() {
        assert_eq!(Quantiles::of(&[]), Quantiles::default());
        let one = Quantiles::of(&[3.0]);
        assert_eq!((one.min, one.p50, one.p999, one.max), (3.0, 3.0, 3.0, 3.0));
    }
}
