//! Random numbers from a seed that a test prints and accepts.

/// Environment variable with the seed, printed in the same form.
const SEED: &str = "EVERMAP_SEED";

/// xorshift64*.
pub struct Random(u64);

impl Random {
    /// Seeds from the variable `EVERMAP_SEED`, or else from the clock, and prints the seed.
    pub fn from_environment(what: &str) -> Random {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let seed = number(SEED).unwrap_or(now.as_nanos() as u64);
        println!("{what}: {SEED}={seed}");
        Random::new(seed)
    }

    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// Returns a number less than `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit.max(1)
    }

    /// Returns true once in `n` times on average.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        bytes.iter_mut().for_each(|byte| *byte = self.number() as u8);
    }
}

/// Reads a number from an environment variable, for example a seed or a number of rounds.
pub fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}
