//! Which window is read next when nobody waits for one, and how many at a time.

use crate::windows::{State, Windows};

/// Reads under way that a fault leaves to the stream: whoever touches at random shall not wait behind many.
const DEPTH_AFTER_FAULT: usize = 2;
/// But if no more windows than these are missing, all of them are there soon, and sooner with more reads at a time (64 MiB, 10 % written at random: 32.5 ms instead of 35.6; by eager takeover
/// 31.6).
const FEW_WINDOWS: usize = 64;
const DEPTH_AFTER_FAULT_FEW: usize = 8;

/// The stream that overtakes the faults.
#[derive(Debug)]
pub(crate) struct Stream {
    /// Windows that were used by the last run, in its order; then all others.
    recorded: Vec<u32>,
    recorded_at: usize,
    /// The next window in ascending order.
    at: usize,
    depth: usize,
    depth_max: usize,
}

impl Stream {
    pub(crate) fn new(recorded: Vec<u32>, depth_max: usize) -> Stream {
        Stream { recorded, recorded_at: 0, at: 0, depth: 1, depth_max }
    }

    /// Reads nothing before the first window is wanted, or some time has passed: whoever touches at random will want another one than the
    /// first.
    pub(crate) fn hold(&mut self) {
        self.depth = 0;
    }

    /// Whether it is held back.
    pub(crate) fn is_held(&self) -> bool {
        self.depth == 0
    }

    /// Is held back no longer.
    pub(crate) fn begin(&mut self) {
        self.depth = self.depth.max(1);
    }

    /// How many reads may be under way.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// A window came that nobody waited for: more at a time.
    pub(crate) fn went_well(&mut self) {
        self.depth = (self.depth + 1).min(self.depth_max);
    }

    /// A window was touched that the stream was far from: it goes on behind that, and more slowly if much is missing.
    pub(crate) fn overtaken_at(&mut self, window: usize, windows: &Windows) {
        let depth = match windows.unsettled() {
            ..=FEW_WINDOWS => DEPTH_AFTER_FAULT_FEW,
            _ => DEPTH_AFTER_FAULT,
        };
        self.depth = self.depth.min(depth);
        self.at = window + 1;
    }

    /// The next window that is missing.
    pub(crate) fn next(&mut self, windows: &Windows) -> Option<usize> {
        while let Some(window) = self.recorded.get(self.recorded_at) {
            self.recorded_at += 1;
            let window = *window as usize;
            if window < windows.len() && windows.state(window) == State::Missing {
                return Some(window);
            }
        }
        for _ in 0..windows.len() {
            let window = self.at % windows.len();
            self.at = window + 1;
            if windows.state(window) == State::Missing {
                return Some(window);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn drained(stream: &mut Stream, windows: &Windows) -> Vec<usize> {
        std::iter::from_fn(|| {
            let window = stream.next(windows)?;
            assert!(windows.claim(window));
            Some(window)
        })
        .collect()
    }

    #[test]
    fn it_goes_up_from_where_it_was_overtaken_and_leaves_nothing_out() {
        let windows = Windows::new(6);
        let mut stream = Stream::new(Vec::new(), 4);
        stream.overtaken_at(3, &windows);
        assert_eq!(drained(&mut stream, &windows), [4, 5, 0, 1, 2, 3]);
    }

    #[test]
    fn what_was_recorded_comes_first_and_nonsense_in_it_is_no_matter() {
        let windows = Windows::new(5);
        assert!(windows.claim(1));
        let mut stream = Stream::new(vec![4, 1, 99, 4, 2], 4);
        assert_eq!(drained(&mut stream, &windows), [4, 2, 0, 3]);
    }

    #[test]
    fn it_can_be_held_back_until_it_is_known_where_to_begin() {
        let mut stream = Stream::new(Vec::new(), 4);
        stream.hold();
        assert!(stream.is_held() && stream.depth() == 0);
        stream.overtaken_at(3, &Windows::new(6));
        stream.begin();
        assert!(!stream.is_held() && stream.depth() == 1);
        assert_eq!(stream.next(&Windows::new(6)), Some(4));
    }

    #[test]
    fn it_reads_more_at_a_time_while_all_goes_well_and_less_after_a_fault_if_much_is_missing() {
        let mut stream = Stream::new(Vec::new(), 12);
        let mut depths = vec![stream.depth()];
        for _ in 0..12 {
            stream.went_well();
            depths.push(stream.depth());
        }
        stream.overtaken_at(0, &Windows::new(FEW_WINDOWS));
        depths.push(stream.depth());
        stream.overtaken_at(0, &Windows::new(FEW_WINDOWS + 1));
        depths.push(stream.depth());
        assert_eq!(depths, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 12, 8, 2]);
    }
}
