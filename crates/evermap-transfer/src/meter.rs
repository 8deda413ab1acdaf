//! Counters of a running transfer, shared by its threads, and its cancellation flag.
//!
//! One meter belongs to one transfer of a file or stream. Other threads may read it at any time,
//! for example to show progress.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Counters of a transfer.
///
/// All accesses are relaxed: the figures are informational, and the threads are joined before a
/// result depends on a sum.
#[derive(Debug, Default)]
pub struct Meter {
    arrived_bytes: AtomicU64,
    calls: AtomicU64,
    fill_ns: AtomicU64,
    drain_ns: AtomicU64,
    /// Shared between the files of a tree and with the signal handler.
    cancelled: Arc<AtomicBool>,
}

impl Meter {
    /// Creates a meter with this cancellation flag.
    pub fn new(cancelled: Arc<AtomicBool>) -> Meter {
        Meter { cancelled, ..Meter::default() }
    }

    /// Returns the bytes that have arrived at the target.
    pub fn arrived_bytes(&self) -> u64 {
        self.arrived_bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of system calls that moved data or tried to.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Returns nanoseconds spent reading from the source, summed over lanes, for engines that
    /// measure it separately.
    pub fn fill_ns(&self) -> u64 {
        self.fill_ns.load(Ordering::Relaxed)
    }

    /// Returns nanoseconds spent writing to the target, like [`Meter::fill_ns`].
    pub fn drain_ns(&self) -> u64 {
        self.drain_ns.load(Ordering::Relaxed)
    }

    /// Returns true if the transfer was cancelled. Engines check between two calls.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Counts `bytes` more as arrived.
    pub fn arrived(&self, bytes: u64) {
        self.arrived_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts one system call.
    pub fn called(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Runs, counts and times a call that reads from the source.
    pub fn filling<T>(&self, call: impl FnOnce() -> T) -> T {
        self.timed(&self.fill_ns, call)
    }

    /// Runs, counts and times a call that writes to the target.
    pub fn draining<T>(&self, call: impl FnOnce() -> T) -> T {
        self.timed(&self.drain_ns, call)
    }

    fn timed<T>(&self, sum_ns: &AtomicU64, call: impl FnOnce() -> T) -> T {
        self.called();
        let start = Instant::now();
        let result = call();
        sum_ns.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        result
    }
}
