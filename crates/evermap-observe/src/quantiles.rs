//! Quantiles of measured values. All crates use this one definition, nearest rank: a quantile is
//! one of the samples, so the median of an even number of them is the lower of the middle two.

/// Exact quantiles of measured times, by nearest rank, in the unit of the samples. All fields are 0
/// if there are no samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Quantiles {
    /// Number of samples.
    pub count: usize,
    /// Mean.
    pub mean: f64,
    /// Smallest sample.
    pub min: f64,
    /// Median: half of the samples are not larger.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile: the largest sample if there are fewer than 1,000.
    pub p999: f64,
    /// Largest sample.
    pub max: f64,
}

impl Quantiles {
    /// Computes the quantiles of `samples`. Sorts a copy.
    pub fn of(samples: &[f64]) -> Self {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else {
            return Self::default();
        };
        let at = |share| quantile(&sorted, share).unwrap_or(max);
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

    /// Computes the quantiles, in milliseconds, of samples in nanoseconds.
    pub fn of_ns_in_ms(samples: &[u64]) -> Self {
        let ms: Vec<f64> = samples.iter().map(|&ns| ns as f64 / 1e6).collect();
        Self::of(&ms)
    }
}

/// Returns a quantile of sorted samples, by nearest rank: the smallest sample that at least this
/// share of all samples does not exceed. Returns `None` without samples.
///
/// ```
/// use evermap_observe::quantile;
///
/// assert_eq!(quantile(&[1, 2, 3, 4, 5], 0.5), Some(3));
/// assert_eq!(quantile(&[1, 2, 3, 4], 0.5), Some(2));
/// assert_eq!(quantile::<u64>(&[], 0.5), None);
/// ```
pub fn quantile<T: Copy>(sorted: &[T], share: f64) -> Option<T> {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied()
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
    fn quantiles_of_one_sample_and_of_none() {
        assert_eq!(Quantiles::of(&[]), Quantiles::default());
        let one = Quantiles::of(&[3.0]);
        assert_eq!((one.min, one.p50, one.p999, one.max), (3.0, 3.0, 3.0, 3.0));
    }
}
