//! Number of lanes of a splice: raised while the source is slow and each lane gains, else lowered.
//!
//! An uncached source is spliced in windows, and the kernel is asked to read each one ahead. If the
//! device or its read-ahead is the bottleneck, this gains most of what a lane could (16 MiB on
//! ext4: 10 ms instead of 18). The measurements of each window decide the lanes of the next. A
//! second lane helps only if filling still waits, as for decompression: two lanes that drain into
//! one file take turns at its lock.

/// Bytes per window: long enough to measure a disk's rate.
pub(crate) const WINDOW_BYTES: u64 = 16 << 20;
/// Filling is the bottleneck if it takes more than this share of the time. Filling from pages read
/// ahead takes 40 to 56 % (ext4), with decompression 83 to 88 % (squashfs). A lane without gain
/// costs half a window.
const WAITING_SHARE_MIN: f64 = 0.7;
/// Minimum speedup to keep an added lane.
const GAIN_MIN: f64 = 1.10;
/// Maximum number of lanes. Eight readers saturate any device that one reader cannot.
const LANES_MAX: usize = 8;

/// Measurements of one window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) bytes: u64,
    pub(crate) wall_ns: u64,
    /// Nanoseconds, summed over lanes.
    pub(crate) fill_ns: u64,
    pub(crate) drain_ns: u64,
}

/// Decides the number of lanes after each window.
#[derive(Debug)]
pub(crate) struct Adapt {
    lanes: usize,
    /// Lanes before the current trial, and their rate in bytes per nanosecond.
    before: Option<(usize, f64)>,
    settled: bool,
    log: Vec<String>,
}

impl Adapt {
    /// Starts with one lane.
    pub(crate) fn new() -> Adapt {
        Adapt { lanes: 1, before: None, settled: false, log: Vec::new() }
    }

    /// Returns the number of lanes for the next window.
    pub(crate) fn lanes(&self) -> usize {
        self.lanes
    }

    /// Returns the changes and their reasons, for the report.
    pub(crate) fn into_log(self) -> Vec<String> {
        self.log
    }

    /// Takes the measurements of a finished window.
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

    /// Simulates a source that needs `fill_ns(lanes)` of kernel time per window.
    fn run(fill_ns: impl Fn(u64) -> u64, drain_ns: u64) -> Adapt {
        let mut adapt = Adapt::new();
        for _ in 0..20 {
            let lanes = adapt.lanes() as u64;
            let fill_ns = fill_ns(lanes);
            adapt.observe(Window {
                bytes: WINDOW_BYTES,
                // Fills run in parallel, drains one after the other.
                wall_ns: fill_ns / lanes + drain_ns,
                fill_ns,
                drain_ns,
            });
        }
        adapt
    }

    #[test]
    fn one_lane_stays_if_draining_is_the_bottleneck() {
        for fill_ns in [1_000_000, 4_000_000, 5_000_000] {
            let adapt = run(|_| fill_ns, 4_000_000);
            assert_eq!(adapt.lanes(), 1);
            assert!(adapt.into_log().iter().any(|line| line.contains("no further lane")));
        }
    }

    #[test]
    fn lanes_are_added_while_each_gains() {
        assert_eq!(run(|_| 100_000_000, 1_000_000).lanes(), 8);
    }

    #[test]
    fn lane_without_gain_is_dropped() {
        // The disk serves one reader at a time: each fill of two lanes takes twice as long.
        let adapt = run(|lanes| 50_000_000 * lanes, 1_000_000);
        assert_eq!(adapt.lanes(), 1);
        assert!(adapt.into_log().iter().any(|line| line.contains("dropped")));
    }
}
