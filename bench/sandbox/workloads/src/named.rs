//! Named blocks of a heap, which replace files.

use std::mem::MaybeUninit;

use evermap_guest::{Heap, Snapshot};

use crate::error::{Error, Outcome};

/// Replaces the block of this name by a new one with undefined contents. Avoids the unneeded
/// zeroing of `allocate_named`.
pub fn replace<'h>(
    heap: &'h mut Heap,
    name: &str,
    bytes: usize,
) -> Outcome<&'h mut [MaybeUninit<u8>]> {
    heap.free_named(name)?;
    let block = heap.allocate_named_raw(name.as_bytes(), bytes)?;
    // SAFETY: the block is new and has this size, and no other reference to it exists while the
    // heap is borrowed exclusively. `MaybeUninit` allows any contents.
    Ok(unsafe { std::slice::from_raw_parts_mut(block.cast().as_ptr(), bytes) })
}

/// Returns the named block for reading; `remedy` is the command that creates it.
pub fn in_snapshot<'s>(
    snapshot: &'s Snapshot,
    name: &str,
    remedy: &'static str,
) -> Outcome<&'s [u8]> {
    snapshot.block(name)?.ok_or_else(|| missing(snapshot.name(), name, remedy))
}

/// Like [`in_snapshot`], for a heap that is open for writing.
pub fn in_heap<'h>(heap: &'h Heap, name: &str, remedy: &'static str) -> Outcome<&'h [u8]> {
    heap.block(name)?.ok_or_else(|| missing(heap.name(), name, remedy))
}

fn missing(heap: &str, name: &str, remedy: &'static str) -> Error {
    Error::NotInHeap { heap: heap.to_string(), what: name.to_string(), remedy }
}
