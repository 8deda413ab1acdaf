//! Stores that stay open for the life of the process, so their arenas stay reserved.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use evermap_core::Store;

use crate::abi::failure::Result;

/// Stores that stay open.
static RESERVED: Mutex<Vec<Store>> = Mutex::new(Vec::new());

fn lock() -> MutexGuard<'static, Vec<Store>> {
    RESERVED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens a store for the life of the process.
///
/// # Errors
/// Errors of opening the store.
pub fn reserve(path: &Path) -> Result<()> {
    keep_open(Store::open(path)?);
    Ok(())
}

/// Keeps a store open for the life of the process.
pub fn keep_open(store: Store) {
    let mut reserved = lock();
    if reserved.iter().all(|known| known.path() != store.path()) {
        reserved.push(store);
    }
}

/// Returns the store at this path if it is kept open.
pub fn kept(path: &Path) -> Option<Store> {
    lock().iter().find(|store| store.path() == path).cloned()
}
