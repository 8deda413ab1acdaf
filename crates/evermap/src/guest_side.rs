//! Interface for the crate `evermap-guest`. Not public API: it may change with any version,
//! together with that crate.
//!
//! A guest has no store: its host maps objects into its memory. So the guest creates a heap over
//! mapped regions, keeps the root in the superblock, and flushes thread-private allocator state
//! before the host commits.

use std::ptr::NonNull;
use std::sync::Arc;

pub use crate::alloc::ChunkSource;
pub use crate::format::{CHUNK_BYTES, REGIONS_MAX, RegionRecord};

use crate::alloc::Heap;
use crate::error::Result;
use crate::format::{SCHEMA_BYTES_MAX, Superblock};
use crate::persist::{Build, Mut, Persist, build_block, release_value};

/// Creates a heap over mapped regions, which grows through `source`.
///
/// # Safety
/// The regions, and those that `source` adds, are mapped writable at the addresses in their
/// records, and stay so while the heap lives. They are regions of one object. Their metadata is
/// zero or as the allocator left it, and only this heap changes it.
pub unsafe fn heap_over(source: Arc<dyn ChunkSource>, records: &[RegionRecord]) -> Heap {
    // SAFETY: the caller guarantees that the regions are mapped writable and are the heap's alone.
    unsafe { Heap::new(source, records) }
}

/// Flushes thread-private allocator state to the object. Call it before a commit.
pub fn flush_thread_caches(heap: &mut Heap) {
    heap.flush_thread_caches();
}

/// Allocates a block for a root and builds it there.
///
/// # Errors
/// Same errors as [`Build::build`].
pub fn build_root<T: Build<S>, S>(heap: &Heap, source: S) -> Result<NonNull<T>> {
    build_block(heap, source)
}

/// Frees a root that [`build_root`] created, with everything it owns.
///
/// # Safety
/// The root is valid and belongs to this heap. It is not used afterwards.
pub unsafe fn release_root<T: Persist>(heap: &Heap, root: NonNull<T>) {
    // SAFETY: the caller guarantees a valid root of this heap without other users.
    unsafe {
        release_value(heap, root);
        heap.free(root.cast());
    }
}

/// Returns a cursor to a root.
///
/// # Safety
/// `root` points to a valid `T` of the object that `heap` allocates in. Nothing else accesses the
/// value during `'a`.
pub unsafe fn borrow_root<T>(heap: &Heap, root: NonNull<T>) -> Mut<'_, T> {
    // SAFETY: the caller guarantees a valid root that nothing else accesses during `'a`.
    unsafe { Mut::from_raw(heap, root) }
}

/// Root entry of a superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootRecord {
    /// Address, or 0 if there is no root.
    pub address: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Type id, or another tag.
    pub tag: [u8; 16],
    /// Description of the type.
    pub description: String,
}

/// Reads the root from the superblock that is mapped at an address.
///
/// # Safety
/// A superblock page is mapped there, and its root is not changed during the call.
pub unsafe fn read_root(superblock: *const u8) -> RootRecord {
    let superblock = superblock.cast::<Superblock>();
    // SAFETY: the caller guarantees a mapped superblock page; all fields are plain numbers.
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

/// Writes the root, which the host reads at the next commit. A long description is truncated.
///
/// # Safety
/// A superblock page is mapped writable there. Its root is not read or changed by other code during
/// the call.
pub unsafe fn write_root(superblock: *mut u8, root: &RootRecord) {
    let superblock = superblock.cast::<Superblock>();
    let mut length = root.description.len().min(SCHEMA_BYTES_MAX);
    while !root.description.is_char_boundary(length) {
        length -= 1;
    }
    let mut schema = [0; SCHEMA_BYTES_MAX];
    schema[..length].copy_from_slice(&root.description.as_bytes()[..length]);
    // SAFETY: the caller guarantees a writable superblock page that no other code accesses.
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
    fn a_written_root_is_read_back_and_nothing_else_changes() {
        let mut page: Superblock = bytemuck::Zeroable::zeroed();
        page.commit_sequence = 7;
        page.regions[0].base = 9;
        let (tag, description) = ([3; 16], "Notes{count@0:u64}#8/8".to_string());
        let root = RootRecord { address: 0x1001_0000, bytes: 8, tag, description };
        // SAFETY: the superblock is a local variable.
        let read = unsafe {
            write_root((&raw mut page).cast(), &root);
            read_root((&raw const page).cast())
        };
        assert_eq!(read, root);
        assert_eq!((page.root_address, page.root_bytes), (0x1001_0000, 8));
        assert_eq!((page.commit_sequence, page.regions[0].base), (7, 9));
    }

    #[test]
    fn a_description_is_truncated_between_characters_and_its_length_is_clamped() {
        let mut page: Superblock = bytemuck::Zeroable::zeroed();
        let description = "x".to_string() + &"\u{e4}".repeat(600);
        let root = RootRecord { address: 1, bytes: 1, tag: [0; 16], description };
        // SAFETY: the superblock is a local variable.
        unsafe { write_root((&raw mut page).cast(), &root) };
        assert_eq!(page.schema_length, 1023);
        page.schema_length = u16::MAX;
        // SAFETY: the superblock is a local variable.
        let read = unsafe { read_root((&raw const page).cast()) };
        assert!(read.description.starts_with("x\u{e4}"));
    }
}
