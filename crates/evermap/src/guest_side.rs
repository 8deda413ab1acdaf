//! What the crate `evermap-guest` is built on. Not public API: it may change with any version,
//! together with that crate.
//!
//! A guest has no store: its host maps objects into its memory. So it makes a heap over mapped
//! regions itself, keeps the root where the superblock has it, and writes down what its threads keep
//! to themselves before the host commits.

use std::ptr::NonNull;
use std::sync::Arc;

pub use crate::alloc::Ground;
pub use crate::format::{
    CHUNK_BYTES, PAGE_BYTES, REGIONS_MAX, RegionRecord, SCHEMA_BYTES_MAX, Superblock,
};

use crate::alloc::Heap;
use crate::error::Result;
use crate::persist::{Build, Mut, Persist, build_block, release_value};

/// A heap over mapped regions, which grows by `ground`.
///
/// # Safety
/// The regions, and those that `ground` adds, are mapped writable at the addresses that their
/// records give, and stay so while the heap lives. They are regions of one object, their metadata
/// as the allocator left it or zero, and the heap's alone.
pub unsafe fn heap_over(ground: Arc<dyn Ground>, records: &[RegionRecord]) -> Heap {
    // SAFETY: the caller's promise.
    unsafe { Heap::new(ground, records) }
}

/// Writes down what threads keep to themselves: to be called before a commit.
pub fn settle(heap: &mut Heap) {
    heap.settle();
}

/// Allocates a block for a root and builds it there.
///
/// # Errors
/// As [`Build::build`].
pub fn build_root<T: Build<S>, S>(heap: &Heap, source: S) -> Result<NonNull<T>> {
    build_block(heap, source)
}

/// Gives back a root that [`build_root`] made, with all it owns.
///
/// # Safety
/// It is valid, of this heap, and nobody uses it any more.
pub unsafe fn release_root<T: Persist>(heap: &Heap, root: NonNull<T>) {
    // SAFETY: the caller's promise.
    unsafe {
        release_value(heap, root);
        heap.free(root.cast());
    }
}

/// A cursor to a root.
///
/// # Safety
/// A valid `T` of the object that `heap` allocates in, which nothing else reaches for as long as
/// `'a`.
pub unsafe fn borrow_root<T>(heap: &Heap, root: NonNull<T>) -> Mut<'_, T> {
    // SAFETY: the caller's promise.
    unsafe { Mut::from_raw(heap, root) }
}
