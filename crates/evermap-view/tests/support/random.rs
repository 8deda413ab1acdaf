//! Random numbers for tests that print and accept a seed, and parameters from the environment.

/// xorshift64*: the same sequence for the same seed, which must not be 0.
pub struct Random(pub u64);

impl Random {
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.number() % end as u64) as usize
    }
}

/// Returns a number from the environment, such as `EVERMAP_SEED` or `EVERMAP_STEPS`.
pub fn variable(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}
