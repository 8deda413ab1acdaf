//! Handle tables of open things: a handle is never reused, and a thread that looked one up keeps
//! its entry until it is done.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::abi::failure::{Failure, Result};
use crate::abi::status;
use crate::runtime::fork;
use crate::runtime::handles::closed;

/// Maximum number of open handles per kind. A count this high means handles are leaking.
const OPEN_MAX: usize = 1 << 14;

/// Table of one kind of handle.
pub struct Table<T> {
    /// Tag bits: a handle is never a valid address, nor a handle of another kind.
    mark: u64,
    /// Plural name for messages, as in "close some".
    what: &'static str,
    entries: Mutex<Entries<T>>,
}

struct Entries<T> {
    open: Option<HashMap<u64, Arc<T>>>,
    opened: u64,
}

impl<T> Table<T> {
    pub const fn new(mark: u64, what: &'static str) -> Table<T> {
        Table { mark, what, entries: Mutex::new(Entries { open: None, opened: 0 }) }
    }

    fn lock(&self) -> MutexGuard<'_, Entries<T>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the value that `make` creates for its handle.
    ///
    /// # Errors
    /// `TOO_MANY_OPEN`.
    pub fn insert(&self, make: impl FnOnce(u64) -> T) -> Result<u64> {
        let mut entries = self.lock();
        let handle = self.mark | entries.opened << 4;
        let open = entries.open.get_or_insert_default();
        if open.len() >= OPEN_MAX {
            let message = format!("{OPEN_MAX} {} are open; close some", self.what);
            return Err(Failure::new(status::TOO_MANY_OPEN, message));
        }
        open.insert(handle, Arc::new(make(handle)));
        entries.opened += 1;
        Ok(handle)
    }

    /// Returns the entry of a handle.
    ///
    /// # Errors
    /// `CLOSED`, `FORKED`.
    pub fn find(&self, handle: u64) -> Result<Arc<T>> {
        fork::check()?;
        let entries = self.lock();
        let found = entries.open.as_ref().and_then(|open| open.get(&handle)).cloned();
        found.ok_or_else(|| closed(handle))
    }

    /// Closes a handle and returns its entry, so that nothing is dropped under the table's lock.
    ///
    /// # Errors
    /// `CLOSED`, `FORKED`.
    pub fn remove(&self, handle: u64) -> Result<Arc<T>> {
        fork::check()?;
        let removed = self.lock().open.as_mut().and_then(|open| open.remove(&handle));
        removed.ok_or_else(|| closed(handle))
    }
}
