//! Environment variables: the store and the application of `fastio.h` and `nvheap.h`.

use std::ffi::{CStr, OsString};
use std::path::PathBuf;

use evermap_core::ApplicationKey;

use crate::abi::failure::{Failure, Result};

/// Returns a variable that is set and not empty.
pub fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns the path of the store.
///
/// # Errors
/// `INVALID_ARGUMENT` without `EVERMAP_STORE`.
pub fn store_path() -> Result<PathBuf> {
    variable("EVERMAP_STORE").map(PathBuf::from).ok_or_else(|| {
        Failure::argument("EVERMAP_STORE is not set; set it to the directory of the store")
    })
}

/// Returns the application that `EVERMAP_APPLICATION` names.
///
/// # Errors
/// `INVALID_ARGUMENT` when the name is not UTF-8.
pub fn application() -> Result<Option<String>> {
    let text = |name: OsString| {
        name.into_string().map_err(|_| Failure::argument("EVERMAP_APPLICATION is not UTF-8"))
    };
    variable("EVERMAP_APPLICATION").map(text).transpose()
}

/// Returns the application's key.
///
/// # Errors
/// Same errors as [`application`].
pub fn application_key() -> Result<Option<ApplicationKey>> {
    Ok(application()?.as_deref().map(ApplicationKey::named))
}

unsafe extern "C" {
    /// Variable of the C library: the program's name without directories.
    static program_invocation_short_name: *const std::ffi::c_char;
}

/// Returns the program's name without directories.
pub fn program_name() -> String {
    // SAFETY: the C library sets the variable before the program runs; it changes only if the
    // program itself writes to it.
    unsafe { CStr::from_ptr(program_invocation_short_name) }.to_string_lossy().into_owned()
}
