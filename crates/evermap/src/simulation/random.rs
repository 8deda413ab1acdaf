//! Reproducible random numbers. Every choice of the simulation comes from here.

/// SplitMix64: one word of state; any seed is good.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Creates an independent stream for each list of numbers.
    pub(super) fn of(parts: &[u64]) -> Random {
        let mut random = Random(0x9e37_79b9);
        for part in parts {
            random.0 ^= part.wrapping_mul(0xff51_afd7_ed55_8ccd);
            random.0 = random.next();
        }
        random
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Returns a number below `bound`, which must not be zero.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Returns true in `part` of `whole` cases.
    pub(super) fn chance(&mut self, part: usize, whole: usize) -> bool {
        self.below(whole) < part
    }
}
