//! Times of frames, in memory that is allocated before the first frame.
//!
//! Keeps all of the first 65,536 frames (45 minutes at 24 a second, a minute at 1,000). Longer runs
//! keep a uniform sample of that size (reservoir sampling, Vitter's algorithm R). The maximum of
//! each time is exact in any case.

use crate::sys::memory::{Lock, Memory};

/// Maximum number of frames kept: 2 MiB.
const KEPT_MAX: usize = 1 << 16;
const WORDS: usize = 4;

/// Times of one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) period: u64,
    pub(crate) wake_up_ns: u64,
    pub(crate) io_ns: u64,
    pub(crate) completion_ns: u64,
}

impl Sample {
    /// Rest of the completion, without wake-up and I/O.
    pub(crate) fn compute_ns(&self) -> u64 {
        self.completion_ns.saturating_sub(self.wake_up_ns).saturating_sub(self.io_ns)
    }
}

/// Sample of frames with exact maxima. See the module.
#[derive(Debug)]
pub(crate) struct Samples {
    memory: Memory,
    seen: u64,
    /// Maxima of wake-up, I/O, compute and completion.
    largest_ns: [u64; 4],
    random: fastrand::Rng,
}

impl Samples {
    pub(crate) fn new(lock: Lock) -> std::io::Result<Self> {
        let memory = Memory::new(KEPT_MAX * WORDS * 8, lock)?;
        Ok(Self { memory, seen: 0, largest_ns: [0; 4], random: fastrand::Rng::with_seed(1) })
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
            false => self.random.u64(..=self.seen),
        };
        self.seen += 1;
        if let Some(words) = self.memory.words_mut().chunks_exact_mut(WORDS).nth(place as usize)
            && place < KEPT_MAX as u64
        {
            let Sample { period, wake_up_ns, io_ns, completion_ns } = sample;
            words.copy_from_slice(&[period, wake_up_ns, io_ns, completion_ns]);
        }
    }

    /// Kept frames, by period.
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

    /// Maxima of wake-up, I/O, compute and completion over all frames.
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
    fn all_frames_are_kept_while_there_is_room() {
        let mut samples = Samples::new(Lock::Unwanted).unwrap();
        (0..1_000).for_each(|period| samples.push(sample(period)));
        let kept = samples.kept();
        assert_eq!(kept.len(), 1_000);
        assert!(kept.iter().enumerate().all(|(at, kept)| *kept == sample(at as u64)));
        assert_eq!(samples.largest_ns(), [1, 2, 1_006, 1_009]);
    }

    #[test]
    fn long_runs_keep_a_uniform_sample_and_exact_maxima() {
        let mut samples = Samples::new(Lock::Unwanted).unwrap();
        let count = 8 * KEPT_MAX as u64;
        (0..count).for_each(|period| samples.push(sample(period)));
        let kept = samples.kept();
        assert_eq!((kept.len(), samples.seen), (KEPT_MAX, count));
        let mean = kept.iter().map(|sample| sample.period as f64).sum::<f64>() / kept.len() as f64;
        // The mean of 65,536 samples is within 2 % of the middle, except once in billions of runs.
        let middle = count as f64 / 2.0;
        assert!((mean - middle).abs() < 0.02 * middle, "{mean} of {middle}");
        assert_eq!(samples.largest_ns()[3], 10 + count - 1);
    }
}
