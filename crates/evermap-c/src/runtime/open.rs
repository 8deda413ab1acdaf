//! Opens and closes objects: a handle and the object's addresses are registered together.

use evermap_core::{Protection, RawShared, Reads, ShareOptions, Store, WriteOptions};

use crate::abi::failure::{Failure, Result};
use crate::abi::types::{READ, SHARE, WRITE, em_mode, em_object};
use crate::runtime::handles::{Exclusive, share, take};
use crate::runtime::object::Object;
use crate::runtime::{addresses, foreign_reports, handles};

/// Converted `em_write_options`.
pub struct WriterOptions {
    pub write: WriteOptions,
    pub protection: Protection,
    pub reads: Reads,
}

/// Opens an object and returns its handle.
pub fn open(
    store: Store,
    name: &str,
    mode: em_mode,
    options: Option<&WriterOptions>,
) -> Result<*mut em_object> {
    let object = match (mode, options) {
        (READ, _) => {
            let snapshot = store.read_raw(name)?;
            Object::reading(store, snapshot)
        }
        (WRITE, None) => {
            let session = store.write_raw(name)?;
            Object::writing(store, session)
        }
        (WRITE, Some(options)) => {
            let session = store.write_raw_with(name, &options.write)?;
            match options.protection {
                Protection::Off => Object::writing(store, session),
                protection => Object::protected(store, session.protect(protection)?),
            }
        }
        (SHARE, given) => {
            let options = match given {
                None => ShareOptions::new(),
                Some(WriterOptions { protection: Protection::Off, write, reads }) => {
                    ShareOptions::new().write_options(write.clone()).reads(*reads)
                }
                Some(_) => {
                    return Err(Failure::argument(
                        "EM_SHARE cannot be combined with an em_protection",
                    ));
                }
            };
            let shared = store.share_raw(name, &options)?;
            Object::sharing(store, shared)
        }
        (other, _) => return Err(Failure::argument(format!("{other} is not an em_mode"))),
    };
    let (writing, regions) = (object.is_writing(), object.regions());
    let handle = handles::insert(object)?;
    addresses::add(handle, writing, &regions);
    Ok(handle as *mut em_object)
}

/// Closes an object that [`open`] opened, unless that would lose changes or threads have it locked.
pub fn close(object: *const em_object) -> Result<()> {
    let mut exclusive = take(object)?;
    exclusive.object()?.check_ended()?;
    close_exclusive(exclusive)
}

/// Closes an object in exclusive use. Drops changes that are not committed.
pub fn close_exclusive(exclusive: Exclusive) -> Result<()> {
    addresses::remove(exclusive.number());
    exclusive.close()?.close()
}

/// Returns an object that is open for sharing, for calls that must not block other threads.
pub fn shared(object: *const em_object) -> Result<Option<RawShared>> {
    Ok(share(object)?.as_shared().cloned())
}

/// Runs a call of the thread that writes a shared object. The call may commit and may change the
/// addresses of the object. Reports the foreign pointers that a commit found.
///
/// No reader slot is in use while the program's callback runs, because the callback may call the
/// library.
pub fn change_shared<T>(
    object: *const em_object,
    shared: &RawShared,
    call: impl FnOnce(&RawShared) -> evermap_core::Result<T>,
) -> Result<T> {
    let result = call(shared);
    // Fails only in a thread that does not write the object, which may be closed then.
    if let Ok(pointers) = shared.foreign_pointers() {
        addresses::change(object as u64, &shared.regions());
        // The handle cannot be used for a moment while another thread fails to close it.
        let before = share(object).map_or(0, |object| object.count_foreign(pointers.len()));
        foreign_reports::report(shared.name(), before, &pointers);
    }
    Ok(result?)
}

/// Runs a call that may change the addresses of the object.
pub fn change<T>(
    object: *const em_object,
    call: impl FnOnce(&mut Object) -> Result<T>,
) -> Result<T> {
    let mut exclusive = take(object)?;
    let result = call(exclusive.object()?);
    let regions = exclusive.object()?.regions();
    addresses::change(exclusive.number(), &regions);
    result
}
