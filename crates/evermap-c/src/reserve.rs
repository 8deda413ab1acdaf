//! Arenas reserved for the life of the process. Those of the stores in `EVERMAP_RESERVE` are
//! reserved before `main`, so libraries and mappings that come later use other addresses.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use evermap_core::Store;

use crate::failure::{self, Result};
use crate::{env, stores};

/// Stores that stay open.
static RESERVED: Mutex<Vec<Store>> = Mutex::new(Vec::new());

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
    let mut reserved = RESERVED.lock().unwrap_or_else(PoisonError::into_inner);
    if reserved.iter().all(|known| known.path() != store.path()) {
        reserved.push(store);
    }
}

/// Runs before `main`, after the C library and the libraries that this one needs were loaded.
extern "C" fn before_main() {
    let Some(paths) = env::variable("EVERMAP_RESERVE") else { return };
    for path in paths.as_bytes().split(|&byte| byte == b':').filter(|path| !path.is_empty()) {
        let path = Path::new(OsStr::from_bytes(path));
        let reserved = failure::attempt(|| {
            stores::prepare()?;
            reserve(path)
        });
        if let Err(failure) = reserved {
            // A store that does not exist yet has no arena to reserve.
            eprintln!("evermap: EVERMAP_RESERVE: {}", failure.message);
        }
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = before_main;

/// Refers to the constructor. Linkers take only referenced parts from a static library, so this
/// makes programs that open a store include it.
#[inline(never)]
pub fn keep() {
    std::hint::black_box(&raw const BEFORE_MAIN);
}

/// Returns the store of `EVERMAP_STORE`, created if it does not exist, and kept open.
///
/// # Errors
/// `INVALID_ARGUMENT` without the variable; errors of opening the store.
pub fn store_of_environment() -> Result<Store> {
    stores::prepare()?;
    let path = env::store_path()?;
    let known = |store: &&Store| store.path() == path;
    if let Some(store) = RESERVED.lock().unwrap_or_else(PoisonError::into_inner).iter().find(known)
    {
        return Ok(store.clone());
    }
    let store = Store::open_or_create(&path)?;
    keep_open(store.clone());
    Ok(store)
}
