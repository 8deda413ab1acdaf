//! What may be put on the tier, by all files of a lane together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that are left of it; none is no bound. Its copies are of the same budget.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budget(Option<Arc<AtomicU64>>);

impl Budget {
    /// So many bytes, or as many as anybody likes.
    pub(crate) fn of(bytes_max: Option<u64>) -> Self {
        Self(bytes_max.map(|bytes| Arc::new(AtomicU64::new(bytes))))
    }

    /// Takes so much of it, or says how much is left.
    pub(super) fn take(&self, bytes: u64) -> Result<Taken, u64> {
        if let Some(left) = &self.0 {
            let less = |left: u64| left.checked_sub(bytes);
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)?;
        }
        Ok(Taken { budget: self.clone(), bytes })
    }
}

/// Given back when it is dropped.
#[derive(Debug)]
pub(super) struct Taken {
    budget: Budget,
    bytes: u64,
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(left) = &self.budget.0 {
            left.fetch_add(self.bytes, Ordering::Relaxed);
        }
    }
}
