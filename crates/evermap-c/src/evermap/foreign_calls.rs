//! Functions of `evermap.h` for foreign pointers and for code pointers in objects.

use std::ffi::c_void;

use crate::abi::failure;
use crate::abi::types::{em_foreign_callback, em_object, em_status};
use crate::runtime::foreign_reports;
use crate::runtime::handles::{share, take};
use crate::runtime::open::shared;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn em_on_foreign_pointer(
    callback: em_foreign_callback,
    context: *mut c_void,
) {
    foreign_reports::set_callback(callback, context);
}

#[unsafe(no_mangle)]
pub extern "C" fn em_expect_foreign(
    object: *mut em_object,
    address: *const c_void,
    size: usize,
) -> em_status {
    failure::status(|| share(object)?.expect_foreign(address as usize, size))
}

#[unsafe(no_mangle)]
pub extern "C" fn em_register_code(object: *mut em_object) -> em_status {
    failure::status(|| match shared(object)? {
        Some(shared) => Ok(shared.register_code()?),
        None => take(object)?.object()?.register_code(),
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn em_forget_code(object: *mut em_object) -> em_status {
    failure::status(|| match shared(object)? {
        Some(shared) => Ok(shared.forget_code()?),
        None => take(object)?.object()?.forget_code(),
    })
}
