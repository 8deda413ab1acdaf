//! Locks all addresses of a store that is about to be replaced.
//!
//! Every open native object holds a lock on its addresses, in the store's lock file. So while all
//! addresses are locked no process has one open, and none can open one until the other store is in
//! place. The addresses of guest objects are not the store's. Those that are open for writing lock
//! [`GUESTS_BYTE`](crate::layout::GUESTS_BYTE) instead; those that are only read hold no lock.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::storage::{File, LockKind};

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(2);

/// Time that other processes get to close their objects. A child process that was just forked holds
/// copies of its parent's locks until it calls `exec`.
pub(super) const GRACE: Duration = Duration::from_secs(1);

/// Waits until no process holds a lock of the store's addresses from byte `first` on, for at most
/// `timeout` and at most [`GRACE`].
///
/// # Errors
/// `Busy` if a process still holds one.
pub(super) fn wait_for_users(
    locks: &dyn File,
    first: u64,
    store: &Path,
    timeout: Duration,
) -> Result<()> {
    let since = Instant::now();
    while locks.lock_holder(first, BYTES)?.is_some() {
        if since.elapsed() >= timeout.min(GRACE) {
            return Err(in_use(store));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

fn in_use(store: &Path) -> Error {
    Error::Busy {
        what: format!("store {}", store.display()),
        holder: "another process has objects of it open".to_string(),
    }
}

/// Exclusive lock on all addresses of a store. Processes that open an object wait until it is
/// dropped, and then find that the store was replaced.
pub(super) struct AddressLock(Arc<dyn File>);

impl AddressLock {
    /// Locks all addresses in the store's lock file. Waits until no process has an object open.
    ///
    /// # Errors
    /// `Busy` if a process still has one open after `timeout`.
    pub(super) fn acquire(
        locks: &Arc<dyn File>,
        store: &Path,
        timeout: Duration,
    ) -> Result<AddressLock> {
        let since = Instant::now();
        while !locks.try_lock(LockKind::Exclusive, FIRST, BYTES)? {
            if since.elapsed() >= timeout {
                return Err(in_use(store));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(AddressLock(Arc::clone(locks)))
    }
}

/// First byte of the addresses. Byte 0 is locked by processes that create or move a whole store.
pub(super) const FIRST: u64 = 1;
const BYTES: u64 = i64::MAX as u64 - 1;

impl Drop for AddressLock {
    fn drop(&mut self) {
        // If this fails, closing the file releases the lock.
        let _ = self.0.unlock(FIRST, BYTES);
    }
}
