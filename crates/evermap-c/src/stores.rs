//! Handle table for open stores. Calls on stores access the disk, so a lock and a map lookup are
//! negligible.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use evermap_core::Store;

use crate::failure::{Failure, Result};
use crate::handles::closed;
use crate::types::em_store;
use crate::{fork, reader_slots, status};

/// Tag bits: a store handle is never a valid address, nor an object handle.
const MARK: u64 = 0x5 << 60;
/// Maximum number of open store handles. A count this high means handles are leaking.
const OPEN_MAX: usize = 1 << 14;

struct Stores {
    open: Option<HashMap<u64, Store>>,
    opened: u64,
}

static STORES: Mutex<Stores> = Mutex::new(Stores { open: None, opened: 0 });

fn lock() -> MutexGuard<'static, Stores> {
    STORES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Must be called before a store is opened in any way.
///
/// # Errors
/// `FORKED`.
pub fn prepare() -> Result<()> {
    fork::check()?;
    fork::watch();
    reader_slots::prepare();
    crate::reserve::keep();
    Ok(())
}

pub fn insert(store: Store) -> Result<*mut em_store> {
    let mut stores = lock();
    let number = stores.opened;
    let open = stores.open.get_or_insert_default();
    if open.len() >= OPEN_MAX {
        let message = format!("{OPEN_MAX} stores are open; close some");
        return Err(Failure::new(status::TOO_MANY_OPEN, message));
    }
    let handle = MARK | number << 4;
    open.insert(handle, store);
    stores.opened += 1;
    Ok(handle as *mut em_store)
}

/// Returns the store of a handle.
///
/// # Errors
/// `CLOSED`, `FORKED`.
pub fn find(handle: *const em_store) -> Result<Store> {
    fork::check()?;
    let handle = handle as u64;
    let stores = lock();
    let store = stores.open.as_ref().and_then(|open| open.get(&handle)).cloned();
    store.ok_or_else(|| closed(handle))
}

/// Closes a handle.
///
/// # Errors
/// `CLOSED`, `FORKED`.
pub fn remove(handle: *const em_store) -> Result<()> {
    fork::check()?;
    let handle = handle as u64;
    let store = lock().open.as_mut().and_then(|open| open.remove(&handle));
    // Dropped after the lock is released: the last handle of a store may write its catalog.
    store.map(drop).ok_or_else(|| closed(handle))
}
