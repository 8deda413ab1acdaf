//! Arenas kept for the life of the process, before `main` for the stores in `EVERMAP_RESERVE`:
//! what is loaded or mapped later goes elsewhere.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use evermap_core::Store;

use crate::failure::{self, Result};
use crate::{stores, surroundings};

/// Stores that stay open.
static RESERVED: Mutex<Vec<Store>> = Mutex::new(Vec::new());

/// Opens a store for the life of the process.
///
/// # Errors
/// As opening it.
pub fn reserve(path: &Path) -> Result<()> {
    keep_open(Store::open(path)?);
    Ok(())
}

/// Keeps a store open for the life of the process.
pub fn keep_open(store: Store) {
    let mut reserved = RESERVED.lock().unwrap_or_else(PoisonError::into_inner);
    if reserved.iter().all(|known| known.path() != store.path()) {
        reserved.push(store);
    }
}

/// Runs before `main`, when the C library and the libraries that this one needs are there.
extern "C" fn before_main() {
    let Some(paths) = surroundings::variable("EVERMAP_RESERVE") else { return };
    for path in paths.as_bytes().split(|&byte| byte == b':').filter(|path| !path.is_empty()) {
        let path = Path::new(OsStr::from_bytes(path));
        let reserved = failure::attempt(|| {
            stores::prepare()?;
            reserve(path)
        });
        if let Err(failure) = reserved {
            // A store that is not there yet has no arena to keep.
            eprintln!("evermap: EVERMAP_RESERVE: {}", failure.message);
        }
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = before_main;

/// Linkers take from a static library only what somebody refers to: whoever opens a store has the
/// constructor in the program.
#[inline(never)]
pub fn keep() {
    std::hint::black_box(&raw const BEFORE_MAIN);
}

/// The store of `EVERMAP_STORE`, made if it is not there, and kept open.
///
/// # Errors
/// `INVALID_ARGUMENT` without the variable; as opening it.
pub fn store_of_environment() -> Result<Store> {
    stores::prepare()?;
    let path = surroundings::store_path()?;
    let known = |store: &&Store| store.path() == path;
    if let Some(store) = RESERVED.lock().unwrap_or_else(PoisonError::into_inner).iter().find(known)
    {
        return Ok(store.clone());
    }
    let store = Store::open_or_create(&path)?;
    keep_open(store.clone());
    Ok(store)
}
