//! Heap functions of `evermap.h`. Each one looks up a handle and calls the Rust heap.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};

use evermap_core::HeapError;

use crate::abi::failure::{self, Result};
use crate::abi::types::{em_object, em_status};
use crate::runtime::handles::{on_heap_quickly, share};

/// Alignment that `malloc` guarantees on the platforms that Evermap supports.
pub const ALIGNMENT: usize = 16;

/// Allocates from the calling thread's own blocks, if it has one of the size.
#[inline(always)]
fn allocate_quickly(object: *mut em_object, size: usize) -> Option<*mut c_void> {
    let block = on_heap_quickly(object, |heap| heap.allocate_quickly(size, ALIGNMENT))?;
    Some(block.as_ptr().cast())
}

/// Frees a block of the calling thread's own slabs. Returns false if another call must free it.
#[inline(always)]
fn free_quickly(object: *mut em_object, pointer: *mut c_void) -> bool {
    let Some(block) = NonNull::new(pointer.cast::<u8>()) else { return false };
    // SAFETY: the caller gives up its block; a pointer that is not a block is refused here.
    on_heap_quickly(object, |heap| unsafe { heap.free_quickly(block) }.then_some(())).is_some()
}

pub fn allocate(object: *mut em_object, size: usize) -> Result<*mut c_void> {
    share(object)?.on_heap(|heap| Ok(heap.allocate(size, ALIGNMENT)?.as_ptr().cast()))
}

#[unsafe(no_mangle)]
pub extern "C" fn em_malloc(object: *mut em_object, size: usize) -> *mut c_void {
    match allocate_quickly(object, size) {
        Some(block) => block,
        None => allocate_slowly(object, size),
    }
}

#[inline(never)]
extern "C" fn allocate_slowly(object: *mut em_object, size: usize) -> *mut c_void {
    failure::value(null_mut(), || allocate(object, size))
}

#[unsafe(no_mangle)]
pub extern "C" fn em_aligned_alloc(
    object: *mut em_object,
    alignment: usize,
    size: usize,
) -> *mut c_void {
    failure::value(null_mut(), || {
        share(object)?.on_heap(|heap| Ok(heap.allocate(size, alignment)?.as_ptr().cast()))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn em_calloc(object: *mut em_object, count: usize, size: usize) -> *mut c_void {
    failure::value(null_mut(), || {
        // An overflow exceeds the size that any heap can provide, so the heap reports the error.
        let bytes = count.saturating_mul(size);
        share(object)?.on_heap(|heap| Ok(heap.allocate_zeroed(bytes, ALIGNMENT)?.as_ptr().cast()))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn em_realloc(
    object: *mut em_object,
    pointer: *mut c_void,
    size: usize,
) -> *mut c_void {
    let Some(block) = NonNull::new(pointer.cast::<u8>()) else { return em_malloc(object, size) };
    failure::value(null_mut(), || {
        // SAFETY: the caller gives up its block; a pointer that is not a block is refused here.
        share(object)?.on_heap(|heap| match unsafe { heap.reallocate(block, size, ALIGNMENT) } {
            Ok(block) => Ok(block.as_ptr().cast()),
            Err(error @ HeapError::InvalidFree { .. }) => {
                failure::abort("em_realloc", &error.into())
            }
            Err(error) => Err(error.into()),
        })
    })
}

pub fn free(object: *mut em_object, pointer: *mut c_void) -> Result<()> {
    match NonNull::new(pointer.cast::<u8>()) {
        // SAFETY: the caller gives up its block; a pointer that is not a block is refused here.
        Some(block) => share(object)?.on_heap(|heap| Ok(unsafe { heap.try_free(block) }?)),
        None => Ok(()),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn em_free(object: *mut em_object, pointer: *mut c_void) {
    if !free_quickly(object, pointer) {
        free_slowly(object, pointer);
    }
}

#[inline(never)]
extern "C" fn free_slowly(object: *mut em_object, pointer: *mut c_void) {
    if let Err(failure) = failure::attempt(|| free(object, pointer)) {
        failure::abort(&format!("em_free of {pointer:p}"), &failure);
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn em_try_free(object: *mut em_object, pointer: *mut c_void) -> em_status {
    failure::status(|| free(object, pointer))
}

#[unsafe(no_mangle)]
pub extern "C" fn em_usable_size(object: *mut em_object, pointer: *const c_void) -> usize {
    let Some(block) = NonNull::new(pointer.cast_mut().cast::<u8>()) else { return 0 };
    failure::value(0, || share(object)?.usable_size(block))
}
