//! Start of the library: before `main`, and before the first store is opened.
//!
//! Arenas of the stores in `EVERMAP_RESERVE` are reserved before `main`, so libraries and mappings
//! that come later use other addresses.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use evermap_core::Store;

use crate::abi::failure::{self, Result};
use crate::runtime::reserve::{keep_open, kept, reserve};
use crate::runtime::{env, fork, handles, reader_slots};

/// Starts to detect forks.
pub fn watch() {
    fork::watch(in_child);
}

/// Runs in a forked child, after the handler of the Rust library.
extern "C" fn in_child() {
    fork::set_inherited();
    reader_slots::forget();
    handles::inherit();
}

/// Must be called before a store is opened in any way.
///
/// # Errors
/// `FORKED`.
pub fn prepare() -> Result<()> {
    fork::check()?;
    watch();
    reader_slots::prepare();
    refer_to_constructor();
    Ok(())
}

/// Runs before `main`, after the C library and the libraries that this one needs were loaded.
extern "C" fn before_main() {
    let Some(paths) = env::variable("EVERMAP_RESERVE") else { return };
    for path in paths.as_bytes().split(|&byte| byte == b':').filter(|path| !path.is_empty()) {
        let path = Path::new(OsStr::from_bytes(path));
        let reserved = failure::attempt(|| {
            prepare()?;
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
fn refer_to_constructor() {
    std::hint::black_box(&raw const BEFORE_MAIN);
}

/// Returns the store of `EVERMAP_STORE`, created if it does not exist, and kept open.
///
/// # Errors
/// `INVALID_ARGUMENT` without the variable; errors of opening the store.
pub fn store_of_environment() -> Result<Store> {
    prepare()?;
    let path = env::store_path()?;
    if let Some(store) = kept(&path) {
        return Ok(store);
    }
    let store = Store::open_or_create(&path)?;
    keep_open(store.clone());
    Ok(store)
}
