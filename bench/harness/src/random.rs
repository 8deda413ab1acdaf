//! Random numbers, the same in every run.

use std::collections::HashSet;

/// xorshift64*.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(limit)) >> 64) as u64
    }

    /// Shuffles the slice (Fisher and Yates).
    pub fn shuffle<T>(&mut self, all: &mut [T]) {
        for last in (1..all.len()).rev() {
            all.swap(last, self.below(last as u64 + 1) as usize);
        }
    }

    /// Returns `count` different numbers below `limit`.
    pub fn different(&mut self, count: usize, limit: u64) -> Vec<u64> {
        let mut seen = HashSet::with_capacity(count);
        while seen.len() < count {
            seen.insert(self.below(limit));
        }
        let mut all: Vec<u64> = seen.into_iter().collect();
        // A set has another order in every run.
        all.sort_unstable_by_key(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_numbers_are_the_same_in_every_run() {
        let numbers = Random::new(7).different(100, 120);
        assert_eq!(numbers, Random::new(7).different(100, 120));
        assert_eq!(numbers.iter().collect::<HashSet<_>>().len(), 100);
        assert!(numbers.iter().all(|number| *number < 120));
    }
}
