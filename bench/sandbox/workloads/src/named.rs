//! Named blocks of a heap: what a file is elsewhere.

use std::mem::MaybeUninit;

use evermap_guest::{Heap, Snapshot};

use crate::error::{Error, Outcome};

/// A new block of this name, instead of one that may be there. Its contents are anything: the zeros
/// that `allocate_named` gives would be written for nothing.
pub fn replace<'h>(
    heap: &'h mut Heap,
    name: &str,
    bytes: usize,
) -> Outcome<&'h mut [MaybeUninit<u8>]> {
    heap.free_named(name)?;
    let block = heap.allocate_named_raw(name.as_bytes(), bytes)?;
    // SAFETY: the block is new and so large, and nobody else reaches it while the heap is borrowed
    // exclusively. What it holds doesn't matter to `MaybeUninit`.
    Ok(unsafe { std::slice::from_raw_parts_mut(block.cast().as_ptr(), bytes) })
}

/// The block of a name, for reading; `remedy` says what makes it.
pub fn in_snapshot<'s>(
    snapshot: &'s Snapshot,
    name: &str,
    remedy: &'static str,
) -> Outcome<&'s [u8]> {
    snapshot.block(name)?.ok_or_else(|| missing(snapshot.name(), name, remedy))
}

/// As [`in_snapshot`], of a heap that is open for writing.
pub fn in_heap<'h>(heap: &'h Heap, name: &str, remedy: &'static str) -> Outcome<&'h [u8]> {
    heap.block(name)?.ok_or_else(|| missing(heap.name(), name, remedy))
}

fn missing(heap: &str, name: &str, remedy: &'static str) -> Error {
    Error::NotInHeap { heap: heap.to_string(), what: name.to_string(), remedy }
}
