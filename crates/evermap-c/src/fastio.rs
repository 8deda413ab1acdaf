//! What `fastio.h` says: objects by name. Each is an ordinary open object; this keeps the names.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use evermap_core::{Error, Store};

use crate::arguments::text;
use crate::failure::{self, Failure, Result};
use crate::handles::{share, take};
use crate::object_calls::{change, close_alone, open};
use crate::reserve::store_of_environment;
use crate::surroundings::application_key;
use crate::types::{READ, TAG_BYTES, WRITE, em_mode, em_object};
use crate::{fork, heap_calls, status};

/// What the file is given and takes back.
const PAGE_BYTES: u64 = 4096;

type Names = HashMap<Vec<u8>, u64>;

/// The mapped objects: handle by name. Held while an object is mapped or unmapped, so that one
/// name is mapped once.
static MAPPED: Mutex<Option<Names>> = Mutex::new(None);
/// Counts the changes of [`MAPPED`].
static CHANGES: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// What this thread asked for last: programs name the same object a million times.
    static LAST: RefCell<(u64, Vec<u8>, u64)> = const { RefCell::new((u64::MAX, Vec::new(), 0)) };
}

fn lock() -> MutexGuard<'static, Option<Names>> {
    MAPPED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The store, for the application if there is one.
fn store() -> Result<Store> {
    let store = store_of_environment()?;
    Ok(match application_key()? {
        Some(key) => store.for_application(key),
        None => store,
    })
}

/// Who asked em_object_of for the object may have closed it.
fn is_open(handle: u64) -> bool {
    !matches!(share(handle as *const em_object), Err(f) if f.status == status::CLOSED)
}

/// The mapped object of a name.
///
/// # Safety
/// `name` is null or a text.
unsafe fn mapped(name: *const c_char) -> Result<*mut em_object> {
    if name.is_null() {
        return Err(Failure::argument("the name is NULL"));
    }
    // SAFETY: a text, by the caller's promise.
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
    // Under the lock, so that the count belongs to what was found.
    let changes = CHANGES.load(Ordering::Acquire);
    let _ = LAST.try_with(|last| *last.borrow_mut() = (changes, name.to_vec(), handle));
    Ok(handle as *mut em_object)
}

fn outcome(call: impl FnOnce() -> Result<()>) -> c_int {
    match failure::status(call) {
        status::OK => 0,
        _ => -1,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn p_reserve() -> c_int {
    outcome(|| store().map(drop))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn p_create(name: *const c_char) -> c_int {
    // SAFETY: passed on from the caller.
    outcome(|| Ok(store()?.create_raw(unsafe { text(name, "the name") }?)?))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn p_delete(name: *const c_char) -> c_int {
    outcome(|| {
        // SAFETY: passed on from the caller.
        let (store, name) = (store()?, unsafe { text(name, "the name") }?);
        // Whatever else keeps it from being read, it can be removed.
        if let Err(error @ Error::OtherApplication { .. }) = store.read_raw(name) {
            return Err(error.into());
        }
        Ok(store.remove(name)?)
    })
}

/// Maps an object in the first of these ways that is possible, and gives its first address.
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
    // SAFETY: passed on from the caller.
    failure::value(null_mut(), || map(unsafe { text(name, "the name") }?, &[WRITE, READ]))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn p_map_readonly(name: *const c_char) -> *mut c_void {
    // SAFETY: passed on from the caller.
    failure::value(null_mut(), || map(unsafe { text(name, "the name") }?, &[READ]))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn p_unmap(name: *const c_char) -> c_int {
    outcome(|| {
        // SAFETY: passed on from the caller.
        let object = unsafe { mapped(name) }?;
        let mut names = lock();
        let mut alone = take(object)?;
        if alone.object()?.is_writing() {
            alone.object()?.commit()?;
        }
        if let Some(names) = names.as_mut() {
            names.retain(|_, handle| *handle != object as u64);
        }
        CHANGES.fetch_add(1, Ordering::Release);
        close_alone(alone)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn p_commit(name: *const c_char) -> c_int {
    // SAFETY: passed on from the caller.
    outcome(|| take(unsafe { mapped(name) }?)?.object()?.commit().map(drop))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn p_extend(name: *const c_char, bytes: usize) -> c_int {
    // SAFETY: passed on from the caller.
    outcome(|| change(unsafe { mapped(name) }?, |object| object.reserve(bytes as u64)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn p_reduce(name: *const c_char, bytes: usize) -> c_int {
    outcome(|| {
        let whole = bytes as u64 / PAGE_BYTES * PAGE_BYTES;
        // SAFETY: passed on from the caller.
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
        // SAFETY: passed on from the caller.
        heap_calls::allocate(unsafe { mapped(name) }?, size)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn p_free(name: *const c_char, node: *mut c_void) {
    // SAFETY: passed on from the caller.
    let freed = failure::attempt(|| heap_calls::free(unsafe { mapped(name) }?, node));
    if let Err(failure) = freed {
        failure::abort(&format!("p_free of {node:p}"), &failure);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn get_prime_node(name: *const c_char) -> *mut c_void {
    failure::value(null_mut(), || {
        // SAFETY: passed on from the caller.
        Ok(share(unsafe { mapped(name) }?)?.root_address()? as *mut c_void)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn set_prime_node(name: *const c_char, node: *mut c_void) -> c_int {
    outcome(|| {
        // SAFETY: passed on from the caller.
        let object = share(unsafe { mapped(name) }?)?;
        let heap = object.heap()?;
        let bytes = NonNull::new(node.cast()).map_or(0, |block| heap.usable_size(block));
        // SAFETY: the tag is no Rust type's.
        unsafe { object.set_root(node as usize, bytes as u64, [0; TAG_BYTES], "") }
    })
}
