//! A store that is about to be replaced: no process has an object of it open, and none opens one until the
//! other store has its place.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::storage::{File, LockKind};

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(2);

/// All addresses of a store, locked. Processes that want to open an object wait for the end of this value,
/// and then find that the store was replaced.
pub(super) struct Shut(Arc<dyn File>);

impl Shut {
    /// Locks the addresses, by the store's lock file, when those who have objects open are gone.
    ///
    /// # Errors
    /// `Busy` when somebody still has one open after `patience`.
    pub(super) fn take(locks: &Arc<dyn File>, store: &Path, patience: Duration) -> Result<Shut> {
        let since = Instant::now();
        while !locks.try_lock(LockKind::Exclusive, FIRST, BYTES)? {
            if since.elapsed() >= patience {
                return Err(Error::Busy {
                    what: format!("store {}", store.display()),
                    holder: "another process has objects of it open".to_string(),
                });
            }
            std::thread::sleep(PAUSE);
        }
        Ok(Shut(Arc::clone(locks)))
    }
}

/// Byte 0 is locked by those who make or move a store as a whole.
const FIRST: u64 = 1;
const BYTES: u64 = i64::MAX as u64 - 1;

impl Drop for Shut {
    fn drop(&mut self) {
        // The kernel does it when the file is closed.
        let _ = self.0.unlock(FIRST, BYTES);
    }
}
