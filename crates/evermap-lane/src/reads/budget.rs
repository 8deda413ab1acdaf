//! Budget of bytes on the tier, shared by all files of a lane.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Remaining bytes; `None` is unlimited. Clones share one budget.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budget(Option<Arc<AtomicU64>>);

impl Budget {
    /// Makes a budget of `bytes_max` bytes, or an unlimited one.
    pub(crate) fn of(bytes_max: Option<u64>) -> Self {
        Self(bytes_max.map(|bytes| Arc::new(AtomicU64::new(bytes))))
    }

    /// Reserves bytes. Fails with the number of bytes left.
    pub(super) fn reserve(&self, bytes: u64) -> Result<Reservation, u64> {
        if let Some(left) = &self.0 {
            let less = |left: u64| left.checked_sub(bytes);
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)?;
        }
        Ok(Reservation { budget: self.clone(), bytes })
    }
}

/// Reserved bytes, returned to the budget when dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    budget: Budget,
    bytes: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(left) = &self.budget.0 {
            left.fetch_add(self.bytes, Ordering::Relaxed);
        }
    }
}
