//! Distribution of a value over several seeds.

use evermap_trace::quantile;

/// Mean, 5th and 95th percentile over several seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) mean: f64,
    pub(crate) p5: f64,
    pub(crate) p95: f64,
}

impl Spread {
    pub(crate) fn of(mut values: Vec<f64>) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        let at = |share| quantile(&values, share).unwrap_or(0.0);
        let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
        Self { mean, p5: at(0.05), p95: at(0.95) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let spread = Spread::of((1..=200).rev().map(f64::from).collect());
        assert_eq!((spread.mean, spread.p5, spread.p95), (100.5, 10.0, 190.0));
        assert_eq!(Spread::of(Vec::new()).mean, 0.0);
    }
}
