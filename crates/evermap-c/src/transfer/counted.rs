//! How far a transfer over the network is. The network tells that in a thread of its own, and C in the thread that called:
//! between the two are numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Shared by who tells and who looks.
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

    /// For who tells.
    pub fn teller(&self) -> impl Fn(u64, u64) + Send + Sync + 'static {
        let told = self.clone();
        move |arrived_bytes, total_bytes| told.set(arrived_bytes, total_bytes)
    }
}
