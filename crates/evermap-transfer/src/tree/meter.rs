//! Counters of a running tree copy, and its cancellation flag.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::tally::Counts;

/// Counters of a tree copy. Other threads may read them at any time.
///
/// All accesses are relaxed: the figures are informational, and all threads have ended before a
/// result depends on one.
#[derive(Debug, Default)]
pub struct TreeMeter {
    pub(super) files: AtomicU64,
    pub(super) directories: AtomicU64,
    pub(super) links: AtomicU64,
    pub(super) symlinks: AtomicU64,
    pub(super) special: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) hole_bytes: AtomicU64,
    cancelled: Arc<AtomicBool>,
}

impl TreeMeter {
    /// Creates a meter with this cancellation flag.
    pub fn new(cancelled: Arc<AtomicBool>) -> TreeMeter {
        TreeMeter { cancelled, ..TreeMeter::default() }
    }

    /// Returns the current counts.
    pub fn counts(&self) -> Counts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            files: get(&self.files),
            directories: get(&self.directories),
            links: get(&self.links),
            symlinks: get(&self.symlinks),
            special: get(&self.special),
            bytes: get(&self.bytes),
            hole_bytes: get(&self.hole_bytes),
        }
    }

    /// Returns true if the copy was cancelled. Threads check between two files.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    pub(super) fn cancelled(&self) -> &Arc<AtomicBool> {
        &self.cancelled
    }

    pub(super) fn count(counter: &AtomicU64, more: u64) {
        counter.fetch_add(more, Ordering::Relaxed);
    }
}
