//! What a transfer counts while it runs, for all its threads; and how it is told to stop.
//!
//! One meter belongs to one transfer of one file or stream. Everything in it may be read by another thread at any
//! time, which is how progress is shown while an engine is at work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Counters of a transfer.
///
/// Orders are relaxed: the figures are for people, and the threads that they are summed over are joined before any is
/// relied on.
#[derive(Debug, Default)]
pub struct Meter {
    arrived_bytes: AtomicU64,
    calls: AtomicU64,
    fill_ns: AtomicU64,
    drain_ns: AtomicU64,
    /// Shared between the files of a tree, and with whoever handles signals.
    cancelled: Arc<AtomicBool>,
}

impl Meter {
    /// One that `cancelled` stops.
    pub fn new(cancelled: Arc<AtomicBool>) -> Meter {
        Meter { cancelled, ..Meter::default() }
    }

    /// Bytes that have arrived at the target.
    pub fn arrived_bytes(&self) -> u64 {
        self.arrived_bytes.load(Ordering::Relaxed)
    }

    /// System calls that moved data, or tried to.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Time that lanes spent taking bytes from the source, where the engine has that apart: nanoseconds, summed over
    /// lanes.
    pub fn fill_ns(&self) -> u64 {
        self.fill_ns.load(Ordering::Relaxed)
    }

    /// Time that lanes spent bringing bytes into the target, like [`Meter::fill_ns`].
    pub fn drain_ns(&self) -> u64 {
        self.drain_ns.load(Ordering::Relaxed)
    }

    /// Whether somebody wants it to stop. Engines look between two calls.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// `bytes` more have arrived.
    pub fn arrived(&self, bytes: u64) {
        self.arrived_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A call was made.
    pub fn called(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Makes a call that takes from the source, and times it.
    pub fn filling<T>(&self, call: impl FnOnce() -> T) -> T {
        self.timed(&self.fill_ns, call)
    }

    /// Makes a call that brings to the target, and times it.
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
