//! Recordings of an image's use. The next load starts from one.

use crate::job::Job;
use crate::part::Part;
use crate::plan::Order;
use crate::source::Identity;
use crate::sys::HUGE_PAGE_BYTES;

/// Unit of recording.
pub(crate) const WINDOW_BYTES: usize = 64 << 10;
/// Minimum share of ascending touches for an image to count as used in order.
const ASCENDING_SHARE_MIN: f64 = 0.9;

/// First access to a window of 64 KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Touch {
    /// Window number, counted from the start of the loaded range rounded down to a block of the
    /// file (see `docs/load.md`, "Images byte by byte").
    pub window: u32,
    /// True if the first access was a write.
    pub is_write: bool,
}

/// Use of an image of one version of a file: the windows touched, their order, and the bytes
/// written. Covers the whole use if taken at its end.
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let path = directory.path().join("data");
/// # std::fs::write(&path, vec![1u8; 1 << 20]).unwrap();
/// use evermap_load::Loader;
///
/// let mut image = Loader::open(&path).record().load()?;
/// image[700_000] = 2;
/// assert_eq!(image[5], 1);
/// let Some(recording) = image.recording() else { return Ok(()) }; // userfaultfd is not available
/// assert_eq!(recording.touches().len(), 2);
/// let image = Loader::open(&path).replay(&recording).load()?;
/// # Ok::<(), evermap_load::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recording {
    pub(crate) file_bytes: u64,
    pub(crate) modified_ns: i128,
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) touches: Vec<Touch>,
    pub(crate) written_bytes: u64,
}

impl Recording {
    pub(crate) fn new(job: &Job, touches: Vec<Touch>, written_bytes: u64) -> Recording {
        let identity = job.source.identity();
        Recording {
            file_bytes: identity.bytes,
            modified_ns: identity.modified_ns,
            begin: job.part.begin,
            end: job.part.end,
            touches,
            written_bytes,
        }
    }

    /// Returns the first touches, in order.
    pub fn touches(&self) -> &[Touch] {
        &self.touches
    }

    /// Returns the share of the loaded range, 0 to 1, in windows that were touched.
    pub fn touched_share(&self) -> f64 {
        self.share((self.touches.len() * WINDOW_BYTES) as u64)
    }

    /// Returns the share of the loaded range, 0 to 1, in pages that were written. Before Linux 6.7,
    /// counts the windows whose first access was a write.
    pub fn written_share(&self) -> f64 {
        self.share(self.written_bytes)
    }

    fn share(&self, bytes: u64) -> f64 {
        match self.end - self.begin {
            0 => 0.0,
            whole => (bytes as f64 / whole as f64).min(1.0),
        }
    }

    /// Returns the order of use.
    pub fn order(&self) -> Order {
        let pairs = self.touches.windows(2);
        let count = pairs.len();
        let ascending = pairs.filter(|pair| pair[0].window < pair[1].window).count();
        match count {
            0 => Order::Unknown,
            _ if ascending as f64 >= count as f64 * ASCENDING_SHARE_MIN => Order::Sequential,
            _ => Order::Random,
        }
    }

    /// Returns the reason why the recording does not apply to this part of this file, if any.
    pub(crate) fn mismatch(&self, file: &Identity, part: &Part) -> Option<&'static str> {
        if (self.file_bytes, self.modified_ns) != (file.bytes, file.modified_ns) {
            Some("the file has changed since")
        } else if (self.begin, self.end) != (part.begin, part.end) {
            Some("it covers another range of the file")
        } else {
            None
        }
    }

    /// Returns the huge pages in the order of their first touches.
    pub(crate) fn huge_windows(&self) -> Vec<u32> {
        let mut is_present = vec![false; self.huge_count()];
        let mut windows = Vec::new();
        for touch in &self.touches {
            let huge = touch.window as usize * WINDOW_BYTES / HUGE_PAGE_BYTES;
            if is_present.get(huge) == Some(&false) {
                is_present[huge] = true;
                windows.push(huge as u32);
            }
        }
        windows
    }

    fn huge_count(&self) -> usize {
        ((self.end - self.begin) as usize).div_ceil(HUGE_PAGE_BYTES)
    }

    /// Returns the touched ranges of memory, ascending and merged.
    pub(crate) fn ranges(&self) -> Vec<std::ops::Range<usize>> {
        let mut windows: Vec<usize> =
            self.touches.iter().map(|touch| touch.window as usize).collect();
        windows.sort_unstable();
        windows.dedup();
        let mut ranges: Vec<std::ops::Range<usize>> = Vec::new();
        for window in windows {
            let from = window * WINDOW_BYTES;
            match ranges.last_mut() {
                Some(last) if last.end == from => last.end += WINDOW_BYTES,
                _ => ranges.push(from..from + WINDOW_BYTES),
            }
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn of(windows: &[u32]) -> Recording {
        let touches =
            windows.iter().map(|window| Touch { window: *window, is_write: false }).collect();
        let end = 8 << 20;
        let written_bytes = 1 << 20;
        Recording { file_bytes: end, modified_ns: 1, begin: 0, end, touches, written_bytes }
    }

    #[test]
    fn shares_and_order_match_the_touches() {
        let recording = of(&[0, 1, 2, 3]);
        assert_eq!((recording.touched_share(), recording.written_share()), (4.0 / 128.0, 0.125));
        assert_eq!(recording.order(), Order::Sequential);
        assert_eq!(of(&[9, 1, 7, 3]).order(), Order::Random);
        assert_eq!(of(&[9]).order(), Order::Unknown);
    }

    #[test]
    fn huge_pages_are_listed_once_in_the_order_of_first_touches() {
        let recording = of(&[127, 3, 64, 0, 1, 65, 4_000_000]);
        assert_eq!(recording.huge_windows(), [3, 0, 2]);
        assert_eq!(of(&[5, 4, 9]).ranges(), [4 << 16..6 << 16, 9 << 16..10 << 16]);
    }
}
