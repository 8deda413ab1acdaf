//! Order and depth of background reads.

use crate::windows::{State, Windows};

/// Outstanding reads of the stream after a fault. Few, so that random accesses do not wait behind
/// many reads.
const DEPTH_AFTER_FAULT: usize = 2;
/// Up to this many missing windows, more reads are used after a fault, because all windows are
/// loaded soon. (64 MiB, 10 % written at random: 32.5 ms instead of 35.6; by eager takeover 31.6.)
const FEW_WINDOWS: usize = 64;
const DEPTH_AFTER_FAULT_FEW: usize = 8;

/// Background stream of reads, ahead of the faults.
#[derive(Debug)]
pub(crate) struct Stream {
    /// Windows of the recorded run, in its order. All other windows follow.
    recorded: Vec<u32>,
    recorded_at: usize,
    /// Next window in ascending order.
    at: usize,
    depth: usize,
    depth_max: usize,
}

impl Stream {
    pub(crate) fn new(recorded: Vec<u32>, depth_max: usize) -> Stream {
        Stream { recorded, recorded_at: 0, at: 0, depth: 1, depth_max }
    }

    /// Pauses the stream until the first window is wanted or some time has passed. With random
    /// access, the first window wanted is rarely the first of the file.
    pub(crate) fn pause(&mut self) {
        self.depth = 0;
    }

    /// Returns true if the stream is paused.
    pub(crate) fn is_paused(&self) -> bool {
        self.depth == 0
    }

    /// Resumes the stream.
    pub(crate) fn resume(&mut self) {
        self.depth = self.depth.max(1);
    }

    /// Returns the maximum number of outstanding reads.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// Increases the depth after a window was loaded before any thread waited for it.
    pub(crate) fn speed_up(&mut self) {
        self.depth = (self.depth + 1).min(self.depth_max);
    }

    /// Continues after an accessed window that the stream had not reached. Reduces the depth, more
    /// if many windows are missing.
    pub(crate) fn jump_to(&mut self, window: usize, windows: &Windows) {
        let depth = match windows.unsettled() {
            ..=FEW_WINDOWS => DEPTH_AFTER_FAULT_FEW,
            _ => DEPTH_AFTER_FAULT,
        };
        self.depth = self.depth.min(depth);
        self.at = window + 1;
    }

    /// Returns the next missing window.
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
    fn the_stream_continues_after_a_fault_and_wraps_around() {
        let windows = Windows::new(6);
        let mut stream = Stream::new(Vec::new(), 4);
        stream.jump_to(3, &windows);
        assert_eq!(drained(&mut stream, &windows), [4, 5, 0, 1, 2, 3]);
    }

    #[test]
    fn recorded_windows_come_first_and_invalid_ones_are_ignored() {
        let windows = Windows::new(5);
        assert!(windows.claim(1));
        let mut stream = Stream::new(vec![4, 1, 99, 4, 2], 4);
        assert_eq!(drained(&mut stream, &windows), [4, 2, 0, 3]);
    }

    #[test]
    fn a_paused_stream_starts_at_the_first_fault() {
        let mut stream = Stream::new(Vec::new(), 4);
        stream.pause();
        assert!(stream.is_paused() && stream.depth() == 0);
        stream.jump_to(3, &Windows::new(6));
        stream.resume();
        assert!(!stream.is_paused() && stream.depth() == 1);
        assert_eq!(stream.next(&Windows::new(6)), Some(4));
    }

    #[test]
    fn depth_grows_without_faults_and_shrinks_after_one() {
        let mut stream = Stream::new(Vec::new(), 12);
        let mut depths = vec![stream.depth()];
        for _ in 0..12 {
            stream.speed_up();
            depths.push(stream.depth());
        }
        stream.jump_to(0, &Windows::new(FEW_WINDOWS));
        depths.push(stream.depth());
        stream.jump_to(0, &Windows::new(FEW_WINDOWS + 1));
        depths.push(stream.depth());
        assert_eq!(depths, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 12, 8, 2]);
    }
}
