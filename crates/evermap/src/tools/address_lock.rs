//! A store that is about to be replaced: no process has an object of it open, and none opens one until the
//! other store has its place.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::storage::{File, LockKind};

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(2);

/// Time that processes which have objects open get to close them. A child that was forked a moment
/// ago holds copies of its parent's locks until it calls `exec`.
pub(super) const GRACE: Duration = Duration::from_secs(1);

/// Waits until no process holds a lock of the store's addresses from byte `first` on, for at most
/// `GRACE`.
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

/// All addresses of a store, locked. Processes that want to open an object wait for the end of this value,
/// and then find that the store was replaced.
pub(super) struct AddressLock(Arc<dyn File>);

impl AddressLock {
    /// Locks the addresses, by the store's lock file, when those who have objects open are gone.
    ///
    /// # Errors
    /// `Busy` when somebody still has one open after `timeout`.
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

/// Byte 0 is locked by those who make or move a store as a whole.
pub(super) const FIRST: u64 = 1;
const BYTES: u64 = i64::MAX as u64 - 1;

impl Drop for AddressLock {
    fn drop(&mut self) {
        // The kernel does it when the file is closed.
        let _ = self.0.unlock(FIRST, BYTES);
    }
}
