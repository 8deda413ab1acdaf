//! Functions of `evermap.h` for shared objects. A thread that waits for an object's lock holds no
//! reader slot: the thread that it waits for must be able to make any call.

use evermap_core::RawShared;

use crate::abi::failure::{self, Failure, Result};
use crate::abi::types::{em_object, em_status};
use crate::runtime::handles::{look, share};

/// Runs a call that may wait.
fn waiting(
    object: *mut em_object,
    call: impl FnOnce(&RawShared) -> evermap_core::Result<()>,
) -> Result<()> {
    let shared = share(object)?.shared()?.clone();
    Ok(call(&shared)?)
}

#[unsafe(no_mangle)]
pub extern "C" fn em_read_lock(object: *mut em_object) -> em_status {
    failure::status(|| {
        // Without a writer the lock is free. A forked child never waits: it is refused.
        if look(object)?.shared()?.try_begin_read()? {
            return Ok(());
        }
        waiting(object, RawShared::begin_read)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn em_read_unlock(object: *mut em_object) -> em_status {
    failure::status(|| Ok(look(object)?.shared()?.end_read()?))
}

#[unsafe(no_mangle)]
pub extern "C" fn em_write_lock(object: *mut em_object) -> em_status {
    failure::status(|| waiting(object, RawShared::begin_write))
}

#[unsafe(no_mangle)]
pub extern "C" fn em_write_unlock(object: *mut em_object) -> em_status {
    failure::status(|| {
        let object = share(object)?;
        let shared = object.shared()?;
        match shared.has_changes()? {
            true => Err(Failure::uncommitted(shared.name())),
            false => Ok(shared.end_write()?),
        }
    })
}
