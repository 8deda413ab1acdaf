//! Error and version functions of `evermap.h`.

use std::ffi::{CStr, c_char};

use crate::abi::types::em_status;
use crate::abi::{failure, status};

#[unsafe(no_mangle)]
pub extern "C" fn em_last_error() -> em_status {
    failure::last_status()
}

#[unsafe(no_mangle)]
pub extern "C" fn em_last_error_message() -> *const c_char {
    failure::last_message()
}

#[unsafe(no_mangle)]
pub extern "C" fn em_clear_error() {
    failure::forget_last();
}

#[unsafe(no_mangle)]
pub extern "C" fn em_status_name(status: em_status) -> *const c_char {
    let known = status::ALL.iter().find(|(number, ..)| *number == status);
    let name = match (status, known) {
        (status::OK, _) => c"EM_OK",
        (_, Some((_, name, _))) => name,
        (_, None) => c"unknown status",
    };
    name.as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn em_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => unreachable!(),
        };
    VERSION.as_ptr()
}
