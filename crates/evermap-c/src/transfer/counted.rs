//! Progress counters of a network transfer. The network thread updates them, and the calling thread
//! reads them for C.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Shared by the two threads.
#[derive(Clone, Default)]
pub struct Counted {
    arrived_bytes: Arc<AtomicU64>,
    total_bytes: Arc<AtomicU64>,
}

impl Counted {
    pub fn set(&self, arrived_bytes: u64, total_bytes: u64) {
        self.total_bytes.store(total_bytes, Ordering::Relaxed);
        self.arrived_bytes.store(arrived_bytes, Ordering::Relaxed);
    }

    pub fn get(&self) -> (u64, u64) {
        (self.arrived_bytes.load(Ordering::Relaxed), self.total_bytes.load(Ordering::Relaxed))
    }

    /// Returns the function that updates the counters.
    pub fn teller(&self) -> impl Fn(u64, u64) + Send + Sync + 'static {
        let progress = self.clone();
        move |arrived_bytes, total_bytes| progress.set(arrived_bytes, total_bytes)
    }
}
