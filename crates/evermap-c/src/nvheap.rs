//! Functions of `nvheap.h`: one heap per application. The heap is an ordinary open object, and its
//! root is a table of names, see [`evermap_core::__nvheap`]. One lock serializes all calls.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::{Mutex, PoisonError};

use evermap_core::__nvheap::{ALIGNMENT, DESCRIPTION, NAME_BYTES_MAX, Named, NamedMut, Root, TAG};
use evermap_core::__nvheap::{find, insert, remove};
use evermap_core::{ApplicationKey, Error};

use crate::abi::failure::{self, Failure, Result, outcome};
use crate::abi::status;
use crate::abi::types::{READ, WRITE, em_object};
use crate::evermap::heap_calls;
use crate::runtime::env::{application, program_name};
use crate::runtime::fork;
use crate::runtime::handles::{share, take};
use crate::runtime::object::Object;
use crate::runtime::open::open;
use crate::runtime::start::store_of_environment;

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

fn not_found(object: &Object, name: &[u8]) -> Failure {
    let name = String::from_utf8_lossy(name);
    let message = format!("no block `{name}` in object `{}`", object.name());
    Failure::new(status::NOT_FOUND, message)
}

/// An object as the table of names needs it. The heap's lock is held while this value lives.
struct Blocks<'a>(&'a Object);

impl Named for Blocks<'_> {
    type Error = Failure;

    fn root(&self) -> Result<Root> {
        let root = self.0.root()?;
        Ok(Root { address: root.address, tag: root.tag, description: root.description })
    }

    fn place(&self, address: usize, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        let (first, bytes) = (address as u64, bytes.max(1) as u64);
        let has = |&(base, length): &(u64, u64)| {
            first.checked_sub(base).is_some_and(|at| at <= length && length - at >= bytes)
        };
        let sound = address.is_multiple_of(align) && self.0.regions().iter().any(has);
        NonNull::new(address as *mut u8).filter(|_| sound)
    }

    fn other_root(&self, _: &str) -> Failure {
        let message =
            format!("object `{}` is not a heap of nvheap.h: it has another root", self.0.name());
        Failure::new(status::SCHEMA_MISMATCH, message)
    }

    fn damaged(&self) -> Failure {
        let message =
            format!("the table of names in object `{}` is broken; restore a backup", self.0.name());
        Failure::new(status::DAMAGED, message)
    }
}

impl NamedMut for Blocks<'_> {
    fn allocate(&mut self, bytes: usize) -> Result<NonNull<u8>> {
        Ok(self.0.heap()?.allocate(bytes, ALIGNMENT)?)
    }

    unsafe fn free(&mut self, block: NonNull<u8>) -> Result<()> {
        // SAFETY: nothing refers to the block, as the caller guarantees.
        Ok(unsafe { self.0.heap()?.try_free(block) }?)
    }

    fn set_table(&mut self, table: NonNull<u8>, bytes: usize) -> Result<()> {
        // SAFETY: the tag does not belong to a Rust type.
        unsafe { self.0.set_root(table.as_ptr() as usize, bytes as u64, TAG, DESCRIPTION) }
    }
}

evermap_core::__nvheap_functions! {
    nvmalloc = malloc, nvread = read, nvfree = free, nvcommit = commit
}

/// # Safety
/// `name` is null or a text.
unsafe fn malloc(name: *const c_char, size: usize) -> *mut c_void {
    failure::value(null_mut(), || {
        with_heap(|heap| {
            if name.is_null() {
                return heap_calls::allocate(heap, size);
            }
            // SAFETY: the caller passes null or a text.
            let name = unsafe { name_of(name) }?;
            let object = share(heap)?;
            let mut blocks = Blocks(&object);
            if find(&blocks, name)?.is_some() {
                let name = String::from_utf8_lossy(name);
                let message = format!("block `{name}` exists in object `{}`", object.name());
                return Err(Failure::new(status::ALREADY_EXISTS, message));
            }
            let block = blocks.allocate(size)?;
            if let Err(failure) = insert(&mut blocks, name, block, size) {
                // SAFETY: the block was just allocated and has no other user.
                unsafe { blocks.free(block) }?;
                return Err(failure);
            }
            Ok(block.as_ptr().cast())
        })
    })
}

/// # Safety
/// `name` is null or a text, and `size` is null or writable.
unsafe fn read(name: *const c_char, size: *mut usize) -> *mut c_void {
    failure::value(null_mut(), || {
        // SAFETY: the caller passes null or a text.
        let name = unsafe { name_of(name) }?;
        with_heap(|heap| {
            let object = share(heap)?;
            let block = find(&Blocks(&object), name)?.ok_or_else(|| not_found(&object, name))?;
            // SAFETY: the caller passes null or a writable `size`.
            if let Some(size) = unsafe { size.as_mut() } {
                *size = block.len();
            }
            Ok(block.as_ptr().cast())
        })
    })
}

/// # Safety
/// `name` is null or a text.
unsafe fn free(name: *const c_char) -> c_int {
    outcome(|| {
        // SAFETY: the caller passes null or a text.
        let name = unsafe { name_of(name) }?;
        with_heap(|heap| {
            let object = share(heap)?;
            // Fails if the object is open for reading, before the table is changed.
            object.heap()?;
            let mut blocks = Blocks(&object);
            let block = remove(&mut blocks, name)?.ok_or_else(|| not_found(&object, name))?;
            // SAFETY: the caller gives up the block.
            unsafe { blocks.free(block.cast()) }
        })
    })
}

fn commit() -> c_int {
    outcome(|| with_heap(|heap| take(heap)?.object()?.commit().map(drop)))
}
