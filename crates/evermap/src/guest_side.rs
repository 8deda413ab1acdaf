//! What the crate `evermap-guest` is built on. Not public API: it may change with any version,
//! together with that crate.
//!
//! A guest has no store: its host maps objects into its memory. So it makes a heap over mapped
//! regions itself, keeps the root where the superblock has it, and writes down what its threads keep
//! to themselves before the host commits.

use std::ptr::NonNull;
use std::sync::Arc;

pub use crate::alloc::Ground;
pub use crate::format::{CHUNK_BYTES, REGIONS_MAX, RegionRecord};

use crate::alloc::Heap;
use crate::error::Result;
use crate::format::{SCHEMA_BYTES_MAX, Superblock};
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

/// What a superblock says of the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootRecord {
    /// Address; 0 for none.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    /// Id of its type, or another tag.
    pub tag: [u8; 16],
    /// Description that belongs to the tag.
    pub description: String,
}

/// Reads the root from the superblock that is mapped at an address.
///
/// # Safety
/// A superblock's page is mapped there, and nobody writes its root meanwhile.
pub unsafe fn read_root(superblock: *const u8) -> RootRecord {
    let superblock = superblock.cast::<Superblock>();
    // SAFETY: the caller's promise; all fields are plain numbers.
    unsafe {
        let length = usize::from((&raw const (*superblock).schema_length).read());
        let schema = (&raw const (*superblock).schema).read();
        RootRecord {
            address: (&raw const (*superblock).root_address).read(),
            bytes: (&raw const (*superblock).root_bytes).read(),
            tag: (&raw const (*superblock).root_type_id).read(),
            description: String::from_utf8_lossy(&schema[..length.min(SCHEMA_BYTES_MAX)]).into(),
        }
    }
}

/// Writes the root where the host takes it from at the next commit; a long description is cut.
///
/// # Safety
/// As [`read_root`], and nobody reads it either.
pub unsafe fn write_root(superblock: *mut u8, root: &RootRecord) {
    let superblock = superblock.cast::<Superblock>();
    let mut length = root.description.len().min(SCHEMA_BYTES_MAX);
    while !root.description.is_char_boundary(length) {
        length -= 1;
    }
    let mut schema = [0; SCHEMA_BYTES_MAX];
    schema[..length].copy_from_slice(&root.description.as_bytes()[..length]);
    // SAFETY: the caller's promise.
    unsafe {
        (&raw mut (*superblock).root_address).write(root.address);
        (&raw mut (*superblock).root_bytes).write(root.bytes);
        (&raw mut (*superblock).root_type_id).write(root.tag);
        (&raw mut (*superblock).schema_length).write(length as u16);
        (&raw mut (*superblock).schema).write(schema);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_is_read_as_it_was_written_and_nothing_else_changes() {
        let mut page: Superblock = bytemuck::Zeroable::zeroed();
        page.commit_sequence = 7;
        page.regions[0].base = 9;
        let (tag, description) = ([3; 16], "Notes{count@0:u64}#8/8".to_string());
        let root = RootRecord { address: 0x1001_0000, bytes: 8, tag, description };
        // SAFETY: a superblock of our own.
        let read = unsafe {
            write_root((&raw mut page).cast(), &root);
            read_root((&raw const page).cast())
        };
        assert_eq!(read, root);
        assert_eq!((page.root_address, page.root_bytes), (0x1001_0000, 8));
        assert_eq!((page.commit_sequence, page.regions[0].base), (7, 9));
    }

    #[test]
    fn a_description_is_cut_between_characters_and_an_impossible_length_is_no_more_than_there_is() {
        let mut page: Superblock = bytemuck::Zeroable::zeroed();
        let description = "x".to_string() + &"\u{e4}".repeat(600);
        let root = RootRecord { address: 1, bytes: 1, tag: [0; 16], description };
        // SAFETY: a superblock of our own.
        unsafe { write_root((&raw mut page).cast(), &root) };
        assert_eq!(page.schema_length, 1023);
        page.schema_length = u16::MAX;
        // SAFETY: as above.
        let read = unsafe { read_root((&raw const page).cast()) };
        assert!(read.description.starts_with("x\u{e4}"));
    }
}
