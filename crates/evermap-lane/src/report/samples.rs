//! What every frame took, in memory that is there before the first of them.
//!
//! The first 65,536 frames are kept all (45 minutes at 24 a second, a minute at 1,000). Of longer runs a sample of that size is kept in which every frame is equally
//! likely (reservoir sampling, Vitter's algorithm R); the largest of each time is kept exactly in any case.

use crate::random::Random;
use crate::sys::memory::{Lock, Memory};

/// Frames that are kept: 2 MiB.
const KEPT_MAX: usize = 1 << 16;
const WORDS: usize = 4;

/// One frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) period: u64,
    pub(crate) wake_up_ns: u64,
    pub(crate) io_ns: u64,
    pub(crate) completion_ns: u64,
}

impl Sample {
    /// The rest of its completion.
    pub(crate) fn compute_ns(&self) -> u64 {
        self.completion_ns.saturating_sub(self.wake_up_ns).saturating_sub(self.io_ns)
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Samples {
    memory: Memory,
    seen: u64,
    /// The largest wake-up, I/O, compute, completion.
    largest_ns: [u64; 4],
    random: Random,
}

impl Samples {
    pub(crate) fn new(lock: Lock) -> std::io::Result<Self> {
        let memory = Memory::new(KEPT_MAX * WORDS * 8, lock)?;
        Ok(Self { memory, seen: 0, largest_ns: [0; 4], random: Random::new(1) })
    }

    pub(crate) fn is_locked(&self) -> bool {
        self.memory.is_locked()
    }

    pub(crate) fn push(&mut self, sample: Sample) {
        let times = [sample.wake_up_ns, sample.io_ns, sample.compute_ns(), sample.completion_ns];
        for (largest, time) in self.largest_ns.iter_mut().zip(times) {
            *largest = time.max(*largest);
        }
        let place = match self.seen < KEPT_MAX as u64 {
            true => self.seen,
            false => self.random.below(self.seen + 1),
        };
        self.seen += 1;
        if let Some(words) = self.memory.words_mut().chunks_exact_mut(WORDS).nth(place as usize)
            && place < KEPT_MAX as u64
        {
            let Sample { period, wake_up_ns, io_ns, completion_ns } = sample;
            words.copy_from_slice(&[period, wake_up_ns, io_ns, completion_ns]);
        }
    }

    /// Those that are kept, by period.
    pub(crate) fn kept(&self) -> Vec<Sample> {
        let count = self.seen.min(KEPT_MAX as u64) as usize;
        let of_words = |words: &[u64]| Sample {
            period: words[0],
            wake_up_ns: words[1],
            io_ns: words[2],
            completion_ns: words[3],
        };
        let mut kept: Vec<Sample> =
            self.memory.words().chunks_exact(WORDS).take(count).map(of_words).collect();
        kept.sort_unstable_by_key(|sample| sample.period);
        kept
    }

    /// The largest wake-up, I/O, compute, completion of all frames.
    pub(crate) fn largest_ns(&self) -> [u64; 4] {
        self.largest_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(period: u64) -> Sample {
        Sample { period, wake_up_ns: 1, io_ns: 2, completion_ns: 10 + period }
    }

    #[test]
    fn all_frames_are_kept_as_they_were() {
        let mut samples = Samples::new(Lock::Unwanted).unwrap();
        (0..1_000).for_each(|period| samples.push(sample(period)));
        let kept = samples.kept();
        assert_eq!(kept.len(), 1_000);
        assert!(kept.iter().enumerate().all(|(at, kept)| *kept == sample(at as u64)));
        assert_eq!(samples.largest_ns(), [1, 2, 1_006, 1_009]);
    }

    #[test]
    fn of_more_than_there_is_room_for_all_are_as_likely_and_the_largest_is_exact() {
        let mut samples = Samples::new(Lock::Unwanted).unwrap();
        let count = 8 * KEPT_MAX as u64;
        (0..count).for_each(|period| samples.push(sample(period)));
        let kept = samples.kept();
        assert_eq!((kept.len(), samples.seen), (KEPT_MAX, count));
        let mean = kept.iter().map(|sample| sample.period as f64).sum::<f64>() / kept.len() as f64;
        // The mean of a sample of 65,536 is within 2 % of the middle but for once in billions.
        let middle = count as f64 / 2.0;
        assert!((mean - middle).abs() < 0.02 * middle, "{mean} of {middle}");
        assert_eq!(samples.largest_ns()[3], 10 + count - 1);
    }
}
