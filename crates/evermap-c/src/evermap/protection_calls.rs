//! Write protection functions of `evermap.h`, which documents them. `share` returns the object of
//! a handle; other threads can use the object during the call.

use evermap_core::Protection;

use crate::abi::failure;
use crate::abi::types::{em_object, em_status};
use crate::runtime::handles::share;

#[unsafe(no_mangle)]
pub extern "C" fn em_write_begin(object: *mut em_object) -> em_status {
    failure::status(|| share(object)?.begin_write())
}

#[unsafe(no_mangle)]
pub extern "C" fn em_write_end(object: *mut em_object) -> em_status {
    failure::status(|| share(object)?.end_write())
}

#[unsafe(no_mangle)]
pub extern "C" fn em_prepare_keys() -> bool {
    failure::attempt(|| Ok(Protection::prepare_keys())).unwrap_or(false)
}
