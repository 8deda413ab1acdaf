//! Counters of a running load, for progress and the report.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Written by the loading threads, read by any thread.
#[derive(Debug)]
pub(crate) struct Counters {
    begun: Instant,
    loaded_bytes: AtomicU64,
    /// Nanoseconds since the start; 0 if not reached.
    first_ns: AtomicU64,
    complete_ns: AtomicU64,
    pub(crate) on_demand: AtomicU64,
    pub(crate) streamed: AtomicU64,
    pub(crate) direct_bytes: AtomicU64,
    pub(crate) cached_bytes: AtomicU64,
    pub(crate) hole_bytes: AtomicU64,
    pub(crate) moved_again: AtomicU64,
    pub(crate) copied_instead: AtomicU64,
    pub(crate) read_again: AtomicU64,
    pub(crate) threads_replaced: AtomicU64,
}

impl Counters {
    pub(crate) fn new() -> Counters {
        let zero = || AtomicU64::new(0);
        Counters {
            begun: Instant::now(),
            loaded_bytes: zero(),
            first_ns: zero(),
            complete_ns: zero(),
            on_demand: zero(),
            streamed: zero(),
            direct_bytes: zero(),
            cached_bytes: zero(),
            hole_bytes: zero(),
            moved_again: zero(),
            copied_instead: zero(),
            read_again: zero(),
            threads_replaced: zero(),
        }
    }

    /// Counts bytes that became usable.
    pub(crate) fn loaded(&self, bytes: u64) {
        self.loaded_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn loaded_bytes(&self) -> u64 {
        self.loaded_bytes.load(Ordering::Relaxed)
    }

    /// Records that the first byte is usable. Later calls have no effect.
    pub(crate) fn first(&self) {
        self.mark(&self.first_ns);
    }

    /// Records that all bytes are usable. Later calls have no effect.
    pub(crate) fn complete(&self) {
        self.first();
        self.mark(&self.complete_ns);
    }

    fn mark(&self, word: &AtomicU64) {
        if word.load(Ordering::Relaxed) == 0 {
            let ns = (self.begun.elapsed().as_nanos() as u64).max(1);
            let _ = word.compare_exchange(0, ns, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    pub(crate) fn first_s(&self) -> Option<f64> {
        seconds(&self.first_ns)
    }

    pub(crate) fn complete_s(&self) -> Option<f64> {
        seconds(&self.complete_ns)
    }
}

fn seconds(word: &AtomicU64) -> Option<f64> {
    match word.load(Ordering::Relaxed) {
        0 => None,
        ns => Some(ns as f64 / 1e9),
    }
}

/// Increments a counter.
pub(crate) fn count(word: &AtomicU64) {
    add(word, 1);
}

/// Adds to a counter.
pub(crate) fn add(word: &AtomicU64, more: u64) {
    word.fetch_add(more, Ordering::Relaxed);
}
