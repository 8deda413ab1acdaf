//! Random numbers that are the same on every machine, in every build, and with every later version.
//!
//! ChaCha with 8 rounds as the source, of `rand_chacha`; what is drawn from it is computed here and not by `rand` and `rand_distr`. Those promise the same values
//! for a patch release only, and take logarithms from the platform when any crate of a build wants them to: these differ in their last bits, and what differs in the last bit may be a miss in one
//! place and none in another. Here they are a software library's (`libm`). SplitMix, which the rest of this crate shuffles by, has no streams: here each purpose has one of its own, so that a change of
//! the wait or the cache does not change what else is drawn, and two runs differ by what was changed alone.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// What numbers are drawn for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    DecodeTimes = 1,
    ReferenceCounts = 2,
    Pages = 3,
    WarmPages = 4,
    Device = 5,
    Search = 6,
}

pub(super) struct Random(ChaCha8Rng);

impl Random {
    pub(super) fn of(seed: u64, purpose: Purpose) -> Self {
        Self::nth(seed, purpose, 0)
    }

    /// The n-th of many independent ones for a purpose.
    pub(super) fn nth(seed: u64, purpose: Purpose, n: u64) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8] = purpose as u8;
        let mut source = ChaCha8Rng::from_seed(key);
        source.set_stream(n);
        Self(source)
    }

    /// From 0 up to, not including, 1, in steps of 2^-53.
    pub(super) fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Below `count`, each as likely to within `count` / 2^32.
    pub(super) fn below(&mut self, count: u32) -> u32 {
        ((u64::from(self.0.next_u32()) * u64::from(count)) >> 32) as u32
    }

    /// Normal, with mean 0 and deviation 1 (Marsaglia's polar method).
    pub(super) fn normal(&mut self) -> f64 {
        loop {
            let (x, y) = (2.0 * self.unit() - 1.0, 2.0 * self.unit() - 1.0);
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                return x * (-2.0 * libm::log(square) / square).sqrt();
            }
        }
    }

    /// All numbers below `count` in any order.
    pub(super) fn order(&mut self, count: u32) -> Vec<u32> {
        let mut order: Vec<u32> = (0..count).collect();
        for last in (1..count).rev() {
            order.swap(last as usize, self.below(last + 1) as usize);
        }
        order
    }
}

/// A lognormal value with this mean, whose logarithm deviates by `sigma`, of a normal one.
pub(super) fn lognormal(mean: f64, sigma: f64, normal: f64) -> f64 {
    if mean <= 0.0 {
        return 0.0;
    }
    libm::exp(libm::log(mean) - sigma * sigma / 2.0 + sigma * normal)
}

/// The deviation of the logarithm for a coefficient of variation.
pub(super) fn sigma_of_cv(cv: f64) -> f64 {
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
        // Four deviations of what such a mean deviates by.
        assert!(mean.abs() < 4.0 / f64::from(count).sqrt(), "{mean}");
        assert!((square - 1.0).abs() < 4.0 * (2.0 / f64::from(count)).sqrt(), "{square}");
    }

    #[test]
    fn lognormal_values_have_the_mean_and_variation_asked_for() {
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
    fn an_order_has_each_number_once() {
        for count in [0, 1, 2, 1_000] {
            let mut order = Random::of(9, Purpose::WarmPages).order(count);
            order.sort_unstable();
            assert_eq!(order, (0..count).collect::<Vec<_>>());
        }
    }
}
