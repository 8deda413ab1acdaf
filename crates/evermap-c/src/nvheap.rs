//! Functions of `nvheap.h`: one heap per application. The heap is an ordinary open object, and its
//! names are in the [`directory`] that is its root. One lock serializes all calls.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

use evermap_core::{ApplicationKey, Error};

use crate::env::{application, program_name};
use crate::failure::{self, Failure, Result};
use crate::handles::{Shared, share, take};
use crate::object_calls::open;
use crate::reserve::store_of_environment;
use crate::types::{READ, WRITE, em_object};
use crate::{directory, fork, heap_calls, status};

const NAME_BYTES_MAX: usize = 255;

/// Handle of the heap once it is open, else 0.
static HEAP: Mutex<u64> = Mutex::new(0);

/// Reason why the heap was opened for reading. Valid while it is open.
static WHY_READ_ONLY: Mutex<String> = Mutex::new(String::new());

/// Opens the application's heap. Creates it if it does not exist.
fn open_heap() -> Result<*mut em_object> {
    let application = application()?.unwrap_or_else(program_name);
    let store = store_of_environment()?.for_application(ApplicationKey::named(&application));
    let name = format!("nvheap:{application}");
    if !store.contains(&name)? {
        match store.create_raw(&name) {
            // Another process may have created it first.
            Ok(()) | Err(Error::AlreadyExists { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    match open(store.clone(), &name, WRITE, None) {
        Err(failure) if [status::BUSY, status::NOT_PERMITTED].contains(&failure.status) => {
            let opened = open(store, &name, READ, None)?;
            *WHY_READ_ONLY.lock().unwrap_or_else(PoisonError::into_inner) = failure.message.clone();
            Ok(opened)
        }
        other => other,
    }
}

/// Adds the reason for a read-only heap to the failure of a writing call.
fn with_reason(failure: Failure) -> Failure {
    if failure.status != status::READ_ONLY {
        return failure;
    }
    let why = WHY_READ_ONLY.lock().unwrap_or_else(PoisonError::into_inner);
    let message = format!(
        "the heap is open for reading, because it could not be opened for writing: {why}; then close it (em_object_close(em_object_of(block))), and the next call opens it again"
    );
    Failure::new(status::READ_ONLY, message)
}

/// Runs a call with the heap, one at a time.
fn with_heap<T>(call: impl FnOnce(*mut em_object) -> Result<T>) -> Result<T> {
    fork::check()?;
    let mut heap = HEAP.lock().unwrap_or_else(PoisonError::into_inner);
    let is_open = |handle: u64| match share(handle as *const em_object) {
        Ok(_) => true,
        // A caller of em_object_of may have closed the object.
        Err(failure) => failure.status != status::CLOSED,
    };
    if !is_open(*heap) {
        *heap = open_heap()? as u64;
    }
    call(*heap as *mut em_object).map_err(with_reason)
}

/// # Safety
/// `name` is null or a text.
unsafe fn name_of<'a>(name: *const c_char) -> Result<&'a [u8]> {
    if name.is_null() {
        return Err(Failure::argument("the name is NULL"));
    }
    // SAFETY: not null, so the caller guarantees a text.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        let message = format!("a name has 1 to {NAME_BYTES_MAX} bytes, this one {}", name.len());
        return Err(Failure::new(status::INVALID_NAME, message));
    }
    Ok(name)
}

fn not_found(object: &Shared, name: &[u8]) -> Failure {
    let name = String::from_utf8_lossy(name);
    let message = format!("no block `{name}` in object `{}`", object.name());
    Failure::new(status::NOT_FOUND, message)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmalloc(name: *const c_char, size: usize) -> *mut c_void {
    failure::value(null_mut(), || {
        with_heap(|heap| {
            if name.is_null() {
                return heap_calls::allocate(heap, size);
            }
            // SAFETY: the caller passes null or a text.
            let name = unsafe { name_of(name) }?;
            let object = share(heap)?;
            // SAFETY: the lock is held.
            if unsafe { directory::find(&object, name) }?.is_some() {
                let name = String::from_utf8_lossy(name);
                let message = format!("block `{name}` exists in object `{}`", object.name());
                return Err(Failure::new(status::ALREADY_EXISTS, message));
            }
            let block = object.heap()?.allocate(size, heap_calls::ALIGNMENT)?;
            // SAFETY: the lock is held, and the name is not in the table.
            let named = unsafe { directory::insert(&object, name, block.as_ptr(), size as u64) };
            if let Err(failure) = named {
                // SAFETY: the block was just allocated and has no other user.
                unsafe { object.heap()?.try_free(block) }?;
                return Err(failure);
            }
            Ok(block.as_ptr().cast())
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvread(name: *const c_char, size: *mut usize) -> *mut c_void {
    failure::value(null_mut(), || {
        // SAFETY: the caller passes null or a text.
        let name = unsafe { name_of(name) }?;
        with_heap(|heap| {
            let object = share(heap)?;
            // SAFETY: the lock is held.
            let Some(entry) = unsafe { directory::find(&object, name) }? else {
                return Err(not_found(&object, name));
            };
            // SAFETY: an entry of the table, under the lock; the caller passes null or a writable
            // `size`.
            unsafe {
                if let Some(size) = size.as_mut() {
                    *size = entry.as_ref().size as usize;
                }
                Ok(entry.as_ref().block.cast())
            }
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfree(name: *const c_char) -> c_int {
    let freed = failure::status(|| {
        // SAFETY: the caller passes null or a text.
        let name = unsafe { name_of(name) }?;
        with_heap(|heap| {
            let block = {
                let object = share(heap)?;
                // SAFETY: the lock is held.
                unsafe { directory::remove(&object, name) }?
                    .ok_or_else(|| not_found(&object, name))?
            };
            heap_calls::free(heap, block.cast())
        })
    });
    if freed == status::OK { 0 } else { -1 }
}

#[unsafe(no_mangle)]
pub extern "C" fn nvcommit() -> c_int {
    let committed = failure::status(|| with_heap(|heap| take(heap)?.object()?.commit().map(drop)));
    if committed == status::OK { 0 } else { -1 }
}
