//! How many lanes: more while filling waits and each one gains, fewer when one does not.
//!
//! A splice of what is not cached runs in windows, and the kernel is asked to read each before its turn: where a device or its
//! read-ahead is what is waited for, that gains most of what a lane could (16 MiB on ext4: 10 ms instead of 18). Each window's
//! figures decide what the next one is done with. A second lane is of use only where filling waits all the same (for
//! decompression): two drains into one file take turns at its lock.

/// Bytes of a window: long enough for a disk to show its rate.
pub(crate) const WINDOW_BYTES: u64 = 16 << 20;
/// Filling is waited for when it takes more than this share of the time. What only finds pages that were read takes 40 to 56 %
/// (ext4), what unpacks them 83 to 88 % (squashfs), and a lane that does not gain costs half a window.
const WAITING_SHARE_MIN: f64 = 0.7;
/// A change that gains less than this is taken back.
const GAIN_MIN: f64 = 1.10;
/// More lanes than this are not tried: eight readers keep any device busy that one cannot.
const LANES_MAX: usize = 8;

/// What a window was like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) bytes: u64,
    pub(crate) wall_ns: u64,
    /// Summed over lanes.
    pub(crate) fill_ns: u64,
    pub(crate) drain_ns: u64,
}

/// Decides from window to window.
#[derive(Debug)]
pub(crate) struct Adapt {
    lanes: usize,
    /// What is gone back to when the lanes that are on trial do not gain, and its rate in bytes a nanosecond.
    before: Option<(usize, f64)>,
    settled: bool,
    log: Vec<String>,
}

impl Adapt {
    /// Begins with one lane.
    pub(crate) fn new() -> Adapt {
        Adapt { lanes: 1, before: None, settled: false, log: Vec::new() }
    }

    /// For the next window.
    pub(crate) fn lanes(&self) -> usize {
        self.lanes
    }

    /// What was changed and why, for the report.
    pub(crate) fn into_log(self) -> Vec<String> {
        self.log
    }

    /// A window is over.
    pub(crate) fn observe(&mut self, window: Window) {
        if self.settled || window.bytes == 0 || window.wall_ns == 0 {
            return;
        }
        let rate = window.bytes as f64 / window.wall_ns as f64;
        if let Some((lanes_before, rate_before)) = self.before.take() {
            let gain = rate / rate_before;
            let (lanes, percent) = (self.lanes, (gain - 1.0) * 100.0);
            if gain < GAIN_MIN {
                self.log.push(format!("{lanes} lanes gained {percent:.0} %: dropped"));
                self.lanes = lanes_before;
                self.settled = true;
                return;
            }
            self.log.push(format!("{lanes} lanes gained {percent:.0} %: kept"));
        }
        let busy_ns = (window.fill_ns + window.drain_ns).max(1);
        let waiting = window.fill_ns as f64 / busy_ns as f64;
        if waiting < WAITING_SHARE_MIN {
            let percent = waiting * 100.0;
            self.log.push(format!("filling takes {percent:.0} % of the time: no further lane"));
            self.settled = true;
        } else if self.lanes < LANES_MAX {
            self.before = Some((self.lanes, rate));
            self.lanes *= 2;
        } else {
            self.settled = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A source whose filling takes `fill_ns` of the kernel's time for a window with so many lanes.
    fn run(fill_ns: impl Fn(u64) -> u64, drain_ns: u64) -> Adapt {
        let mut adapt = Adapt::new();
        for _ in 0..20 {
            let lanes = adapt.lanes() as u64;
            let fill_ns = fill_ns(lanes);
            adapt.observe(Window {
                bytes: WINDOW_BYTES,
                // Fills go side by side, drains one after the other.
                wall_ns: fill_ns / lanes + drain_ns,
                fill_ns,
                drain_ns,
            });
        }
        adapt
    }

    #[test]
    fn where_draining_takes_the_time_one_lane_stays_alone() {
        for fill_ns in [1_000_000, 4_000_000, 5_000_000] {
            let adapt = run(|_| fill_ns, 4_000_000);
            assert_eq!(adapt.lanes(), 1);
            assert!(adapt.into_log().iter().any(|line| line.contains("no further lane")));
        }
    }

    #[test]
    fn lanes_are_added_as_long_as_each_gains() {
        assert_eq!(run(|_| 100_000_000, 1_000_000).lanes(), 8);
    }

    #[test]
    fn a_lane_that_does_not_gain_is_dropped() {
        // A disk that serves one reader at a time: the fills of two lanes take twice as long each.
        let adapt = run(|lanes| 50_000_000 * lanes, 1_000_000);
        assert_eq!(adapt.lanes(), 1);
        assert!(adapt.into_log().iter().any(|line| line.contains("dropped")));
    }
}
