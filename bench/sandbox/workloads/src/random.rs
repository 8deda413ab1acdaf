//! Random numbers without floating point, the same in every run and on every machine.

/// Generator of random numbers (xorshift64*).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator with this seed.
    pub fn new(seed: u64) -> Random {
        Random(mix(seed) | 1)
    }

    /// Returns the next number.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Returns a number below `limit`. The limit must not be 0.
    pub fn number_below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(limit)) >> 64) as u64
    }

    /// Like [`number_below`](Random::number_below), for indices.
    pub fn below(&mut self, limit: usize) -> usize {
        self.number_below(limit as u64) as usize
    }

    /// Returns true with a probability of `of_thousand` in a thousand.
    pub fn happens(&mut self, of_thousand: usize) -> bool {
        self.below(1000) < of_thousand
    }
}

/// Maps a number to a random-looking one, without collisions (the finaliser of SplitMix64).
pub fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

/// Zipf-like distribution of ranks, as of the words of a language. Rank `r` has the weight
/// `1 / (r + 3)`.
#[derive(Clone, Debug)]
pub struct Zipf {
    cumulative: Vec<u64>,
}

impl Zipf {
    /// Creates the distribution of the ranks `0..ranks`.
    pub fn new(ranks: usize) -> Zipf {
        let mut sum = 0;
        let weights = (0..ranks as u64).map(|rank| (1 << 40) / (rank + 3));
        let cumulative = weights.map(|weight| {
            sum += weight;
            sum
        });
        Zipf { cumulative: cumulative.collect() }
    }

    /// Returns a random rank.
    pub fn rank(&self, random: &mut Random) -> usize {
        let sum = self.cumulative.last().map_or(1, |sum| *sum);
        let point = random.number_below(sum);
        self.cumulative.partition_point(|cumulative| *cumulative <= point)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_in_every_run() {
        let mut random = Random::new(42);
        let numbers = [random.number(), random.number()];
        assert_eq!(numbers, [3_580_622_183_945_639_842, 10_378_725_325_292_465_923]);
        assert_ne!(Random::new(43).number(), numbers[0]);
    }

    #[test]
    fn low_ranks_are_the_most_frequent_and_the_last_one_occurs() {
        let (zipf, mut random) = (Zipf::new(10), Random::new(1));
        let mut drawn = [0; 10];
        for _ in 0..10_000 {
            drawn[zipf.rank(&mut random)] += 1;
        }
        assert!(drawn[0] > 2 * drawn[5] && drawn[9] > 300, "{drawn:?}");
    }
}
