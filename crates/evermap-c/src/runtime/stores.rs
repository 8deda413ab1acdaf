//! Handle table for open stores. Calls on stores access the disk, so a lock and a map lookup are
//! negligible.

use evermap_core::Store;

use crate::abi::failure::Result;
use crate::abi::types::em_store;
use crate::runtime::table::Table;

/// The tag bits make sure that a store handle is never a valid address, nor an object handle.
static STORES: Table<Store> = Table::new(0x5 << 60, "stores");

/// Stores a store and returns its handle.
///
/// # Errors
/// `TOO_MANY_OPEN`.
pub fn insert(store: Store) -> Result<*mut em_store> {
    Ok(STORES.insert(|_| store)? as *mut em_store)
}

/// Returns the store of a handle.
///
/// # Errors
/// `CLOSED`, `FORKED`.
pub fn find(handle: *const em_store) -> Result<Store> {
    Ok((*STORES.find(handle as u64)?).clone())
}

/// Closes a handle. The last handle of a store may write its catalog.
///
/// # Errors
/// `CLOSED`, `FORKED`.
pub fn remove(handle: *const em_store) -> Result<()> {
    STORES.remove(handle as u64).map(drop)
}
