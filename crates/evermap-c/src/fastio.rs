//! Functions of `fastio.h`: objects by name. Each one is an ordinary open object; this file maps
//! their names.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use evermap_core::{Error, Store};

use crate::abi::arguments::text;
use crate::abi::failure::{self, Failure, Result, outcome};
use crate::abi::status;
use crate::abi::types::{READ, TAG_BYTES, WRITE, em_mode, em_object};
use crate::evermap::heap_calls;
use crate::runtime::env::application_key;
use crate::runtime::fork;
use crate::runtime::handles::{share, take};
use crate::runtime::open::{change, close_exclusive, open};
use crate::runtime::start::store_of_environment;

/// Unit in which the file grows and shrinks.
const PAGE_BYTES: u64 = 4096;

type Names = HashMap<Vec<u8>, u64>;

/// Handles of the mapped objects by name. Locked while an object is mapped or unmapped, so that a
/// name is mapped only once.
static MAPPED: Mutex<Option<Names>> = Mutex::new(None);
/// Counts the changes of [`MAPPED`].
static CHANGES: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Last lookup of this thread: programs name the same object a million times.
    static LAST: RefCell<(u64, Vec<u8>, u64)> = const { RefCell::new((u64::MAX, Vec::new(), 0)) };
}

fn lock() -> MutexGuard<'static, Option<Names>> {
    MAPPED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the store, with the application if one is set.
fn store() -> Result<Store> {
    let store = store_of_environment()?;
    Ok(match application_key()? {
        Some(key) => store.for_application(key),
        None => store,
    })
}

/// Returns true if the handle is still open. A caller of em_object_of may have closed it.
fn is_open(handle: u64) -> bool {
    !matches!(share(handle as *const em_object), Err(f) if f.status == status::CLOSED)
}

/// Returns the mapped object of a name.
///
/// # Safety
/// `name` is null or a text.
unsafe fn mapped(name: *const c_char) -> Result<*mut em_object> {
    if name.is_null() {
        return Err(Failure::argument("the name is NULL"));
    }
    // SAFETY: not null, so the caller guarantees a text.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    let changes = CHANGES.load(Ordering::Acquire);
    let known = LAST.try_with(|last| {
        let last = last.borrow();
        (last.0 == changes && last.1 == name).then_some(last.2)
    });
    if let Ok(Some(handle)) = known {
        return Ok(handle as *mut em_object);
    }
    look_up(name)
}

#[cold]
fn look_up(name: &[u8]) -> Result<*mut em_object> {
    fork::check()?;
    let mut names = lock();
    let handle = names.get_or_insert_default().get(name).copied().filter(|&h| is_open(h));
    let Some(handle) = handle else {
        let name = String::from_utf8_lossy(name);
        let message = format!("object `{name}` is not mapped; call p_map first");
        return Err(Failure::new(status::CLOSED, message));
    };
    // Under the lock, so that the count matches the result.
    let changes = CHANGES.load(Ordering::Acquire);
    let _ = LAST.try_with(|last| *last.borrow_mut() = (changes, name.to_vec(), handle));
    Ok(handle as *mut em_object)
}

#[unsafe(no_mangle)]
pub extern "C" fn p_reserve() -> c_int {
    outcome(|| store().map(drop))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn p_create(name: *const c_char) -> c_int {
    // SAFETY: the caller passes null or a text.
    outcome(|| Ok(store()?.create_raw(unsafe { text(name, "the name") }?)?))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn p_delete(name: *const c_char) -> c_int {
    outcome(|| {
        // SAFETY: the caller passes null or a text.
        let (store, name) = (store()?, unsafe { text(name, "the name") }?);
        // An object that cannot be read for another reason can still be removed.
        if let Err(error @ Error::OtherApplication { .. }) = store.read_raw(name) {
            return Err(error.into());
        }
        Ok(store.remove(name)?)
    })
}

/// Maps an object in the first possible mode, and returns its first address.
fn map(name: &str, modes: &[em_mode]) -> Result<*mut c_void> {
    let store = store()?;
    let mut mapped = lock();
    let names = mapped.get_or_insert_default();
    let first = |handle: u64| {
        let regions = share(handle as *const em_object)?.regions();
        Ok(regions.first().map_or(null_mut(), |&(base, _)| base as *mut c_void))
    };
    if let Some(handle) = names.get(name.as_bytes()).copied().filter(|&h| is_open(h)) {
        return first(handle);
    }
    let mut result = Err(Failure::argument("no mode"));
    for &mode in modes {
        result = open(store.clone(), name, mode, None);
        match &result {
            Err(failure) if [status::BUSY, status::NOT_PERMITTED].contains(&failure.status) => {}
            _ => break,
        }
    }
    let handle = result? as u64;
    names.insert(name.as_bytes().to_vec(), handle);
    CHANGES.fetch_add(1, Ordering::Release);
    first(handle)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn p_map(name: *const c_char) -> *mut c_void {
    // SAFETY: the caller passes null or a text.
    failure::value(null_mut(), || map(unsafe { text(name, "the name") }?, &[WRITE, READ]))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn p_map_readonly(name: *const c_char) -> *mut c_void {
    // SAFETY: the caller passes null or a text.
    failure::value(null_mut(), || map(unsafe { text(name, "the name") }?, &[READ]))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn p_unmap(name: *const c_char) -> c_int {
    outcome(|| {
        // SAFETY: the caller passes null or a text.
        let object = unsafe { mapped(name) }?;
        let mut names = lock();
        let mut exclusive = take(object)?;
        if exclusive.object()?.is_writing() {
            exclusive.object()?.commit()?;
        }
        if let Some(names) = names.as_mut() {
            names.retain(|_, handle| *handle != object as u64);
        }
        CHANGES.fetch_add(1, Ordering::Release);
        close_exclusive(exclusive)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn p_commit(name: *const c_char) -> c_int {
    // SAFETY: the caller passes null or a text.
    outcome(|| take(unsafe { mapped(name) }?)?.object()?.commit().map(drop))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn p_extend(name: *const c_char, bytes: usize) -> c_int {
    // SAFETY: the caller passes null or a text.
    outcome(|| change(unsafe { mapped(name) }?, |object| object.reserve(bytes as u64)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn p_reduce(name: *const c_char, bytes: usize) -> c_int {
    outcome(|| {
        let whole = bytes as u64 / PAGE_BYTES * PAGE_BYTES;
        // SAFETY: the caller passes null or a text.
        let given = change(unsafe { mapped(name) }?, |object| object.release(whole))?;
        if given == whole {
            return Ok(());
        }
        let message = format!(
            "{given} bytes at the object's end were unused and given back, {whole} were asked for"
        );
        Err(Failure::new(status::OUT_OF_BOUNDS, message))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn p_malloc(name: *const c_char, size: usize) -> *mut c_void {
    failure::value(null_mut(), || {
        // SAFETY: the caller passes null or a text.
        heap_calls::allocate(unsafe { mapped(name) }?, size)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn p_free(name: *const c_char, node: *mut c_void) {
    // SAFETY: the caller passes null or a text.
    let freed = failure::attempt(|| heap_calls::free(unsafe { mapped(name) }?, node));
    if let Err(failure) = freed {
        failure::abort(&format!("p_free of {node:p}"), &failure);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn get_prime_node(name: *const c_char) -> *mut c_void {
    failure::value(null_mut(), || {
        // SAFETY: the caller passes null or a text.
        Ok(share(unsafe { mapped(name) }?)?.root_address()? as *mut c_void)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn set_prime_node(name: *const c_char, node: *mut c_void) -> c_int {
    outcome(|| {
        // SAFETY: the caller passes null or a text.
        let object = share(unsafe { mapped(name) }?)?;
        let heap = object.heap()?;
        let bytes = NonNull::new(node.cast()).map_or(0, |block| heap.usable_size(block));
        // SAFETY: the tag does not belong to a Rust type.
        unsafe { object.set_root(node as usize, bytes as u64, [0; TAG_BYTES], "") }
    })
}
