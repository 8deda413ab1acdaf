//! Random numbers that are the same on every machine, in every build and with every later version.
//!
//! The source is ChaCha with 8 rounds, from `rand_chacha`. The distributions are computed here and
//! not by `rand` and `rand_distr`, which promise the same values for patch releases only, and use
//! the platform's logarithm if any crate of a build enables it. Such logarithms differ in their
//! last bits, and a difference in the last bit can turn a hit into a miss. The functions here come
//! from a software library (`libm`).
//!
//! SplitMix, the shuffler in the rest of this crate, has no streams. Here each purpose has its own
//! stream. A change of the wait or the cache does not change other draws, so two runs differ only
//! by the changed parameter.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Purpose of random numbers. Each has its own stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    DecodeTimes = 1,
    ReferenceCounts = 2,
    Pages = 3,
    WarmPages = 4,
    Device = 5,
    Search = 6,
}

pub(crate) struct Random(ChaCha8Rng);

impl Random {
    pub(crate) fn of(seed: u64, purpose: Purpose) -> Self {
        Self::nth(seed, purpose, 0)
    }

    /// Returns the n-th of many independent streams for a purpose.
    pub(crate) fn nth(seed: u64, purpose: Purpose, n: u64) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8] = purpose as u8;
        let mut source = ChaCha8Rng::from_seed(key);
        source.set_stream(n);
        Self(source)
    }

    /// Returns a number in [0, 1), in steps of 2^-53.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a number below `count`. The probabilities are equal within `count` / 2^32.
    pub(crate) fn below(&mut self, count: u32) -> u32 {
        ((u64::from(self.0.next_u32()) * u64::from(count)) >> 32) as u32
    }

    /// Returns a standard normal number (Marsaglia's polar method).
    pub(crate) fn normal(&mut self) -> f64 {
        loop {
            let (x, y) = (2.0 * self.unit() - 1.0, 2.0 * self.unit() - 1.0);
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                return x * (-2.0 * libm::log(square) / square).sqrt();
            }
        }
    }

    /// Returns all numbers below `count` in random order.
    pub(crate) fn order(&mut self, count: u32) -> Vec<u32> {
        let mut order: Vec<u32> = (0..count).collect();
        for last in (1..count).rev() {
            order.swap(last as usize, self.below(last + 1) as usize);
        }
        order
    }
}

/// Maps a standard normal sample to a lognormal one with this mean and log-sigma.
pub(crate) fn lognormal(mean: f64, sigma: f64, normal: f64) -> f64 {
    if mean <= 0.0 {
        return 0.0;
    }
    libm::exp(libm::log(mean) - sigma * sigma / 2.0 + sigma * normal)
}

/// Returns the log-sigma for a coefficient of variation.
pub(crate) fn sigma_of_cv(cv: f64) -> f64 {
    libm::log(1.0 + cv * cv).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_numbers_of_a_seed_never_change() {
        let mut random = Random::of(1, Purpose::DecodeTimes);
        let drawn: Vec<u64> = (0..3).map(|_| random.normal().to_bits()).collect();
        let order = random.order(6);
        assert_eq!(
            (format!("{drawn:x?}"), order),
            (
                "[bfe069c1aaf4f970, bfbc9612a0e8d653, bfe16dd36d3dda0e]".into(),
                vec![1, 2, 5, 4, 3, 0]
            )
        );
    }

    #[test]
    fn normal_values_have_mean_0_and_deviation_1() {
        let mut random = Random::of(7, Purpose::Search);
        let count = 100_000;
        let drawn: Vec<f64> = (0..count).map(|_| random.normal()).collect();
        let mean = drawn.iter().sum::<f64>() / f64::from(count);
        let square = drawn.iter().map(|value| value * value).sum::<f64>() / f64::from(count);
        // Allow four standard deviations of the mean.
        assert!(mean.abs() < 4.0 / f64::from(count).sqrt(), "{mean}");
        assert!((square - 1.0).abs() < 4.0 * (2.0 / f64::from(count)).sqrt(), "{square}");
    }

    #[test]
    fn lognormal_values_have_the_given_mean_and_variation() {
        let mut random = Random::of(3, Purpose::DecodeTimes);
        let sigma = sigma_of_cv(0.15);
        let drawn: Vec<f64> =
            (0..100_000).map(|_| lognormal(10.5, sigma, random.normal())).collect();
        let mean = drawn.iter().sum::<f64>() / 1e5;
        let square = drawn.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / 1e5;
        assert!((mean - 10.5).abs() < 0.03, "{mean}");
        assert!((square.sqrt() / mean - 0.15).abs() < 0.003);
    }

    #[test]
    fn a_random_order_has_each_number_once() {
        for count in [0, 1, 2, 1_000] {
            let mut order = Random::of(9, Purpose::WarmPages).order(count);
            order.sort_unstable();
            assert_eq!(order, (0..count).collect::<Vec<_>>());
        }
    }
}
