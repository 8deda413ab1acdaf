//! Allocators: an object's heap, glibc's `malloc`, mimalloc.

use std::ptr::{NonNull, null_mut};

use evermap::Heap;

use crate::tree::{Allocate, Allocator};

/// Heap of an object.
pub struct Evermap<'a>(pub &'a Heap);

impl Allocator for Evermap<'_> {
    type Thread<'a>
        = &'a Heap
    where
        Self: 'a;

    fn thread(&self) -> &Heap {
        self.0
    }
}

impl Allocate for &Heap {
    fn allocate(&mut self, bytes: usize) -> *mut u8 {
        Heap::allocate(self, bytes, 8).map_or(null_mut(), NonNull::as_ptr)
    }

    unsafe fn free(&mut self, block: *mut u8) {
        if let Some(block) = NonNull::new(block) {
            // SAFETY: the caller passes a live block of this heap.
            unsafe { Heap::free(self, block) }
        }
    }
}

/// Allocator of the C library.
#[derive(Clone, Copy)]
pub struct Glibc;

impl Allocator for Glibc {
    type Thread<'a> = Glibc;

    fn thread(&self) -> Glibc {
        Glibc
    }
}

impl Allocate for Glibc {
    fn allocate(&mut self, bytes: usize) -> *mut u8 {
        // SAFETY: `malloc` accepts any size.
        unsafe { libc::malloc(bytes).cast() }
    }

    unsafe fn free(&mut self, block: *mut u8) {
        // SAFETY: the caller passes a live block of this allocator.
        unsafe { libc::free(block.cast()) }
    }
}

/// mimalloc, as its crate builds it.
#[derive(Clone, Copy)]
pub struct Mimalloc;

impl Allocator for Mimalloc {
    type Thread<'a> = Mimalloc;

    fn thread(&self) -> Mimalloc {
        Mimalloc
    }
}

impl Allocate for Mimalloc {
    fn allocate(&mut self, bytes: usize) -> *mut u8 {
        // SAFETY: `mi_malloc` accepts any size.
        unsafe { libmimalloc_sys::mi_malloc(bytes).cast() }
    }

    unsafe fn free(&mut self, block: *mut u8) {
        // SAFETY: the caller passes a live block of this allocator.
        unsafe { libmimalloc_sys::mi_free(block.cast()) }
    }
}
