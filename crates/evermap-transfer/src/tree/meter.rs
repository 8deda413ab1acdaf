//! What a copy of a tree counts while it runs; and how it is told to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Counters of a copy of a tree, which another thread may read at any time.
///
/// Orders are relaxed: the figures are for people, and all threads have ended before any is relied on.
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

/// What was copied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Counts {
    /// Regular files, an inode with several names once.
    pub files: u64,
    /// Directories, the uppermost among them.
    pub directories: u64,
    /// Further names of files that were copied under another one.
    pub links: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// FIFOs, sockets and devices.
    pub special: u64,
    /// Bytes that were moved.
    pub bytes: u64,
    /// Bytes that were not, as they lie in holes.
    pub hole_bytes: u64,
}

impl TreeMeter {
    /// One that `cancelled` stops.
    pub fn new(cancelled: Arc<AtomicBool>) -> TreeMeter {
        TreeMeter { cancelled, ..TreeMeter::default() }
    }

    /// The counts up to now.
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

    /// Whether somebody wants it to stop. Threads look between two files.
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
