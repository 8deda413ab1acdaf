//! The root's entry in a mapped superblock: the guest sets its object's root there, and the host
//! reads it at the next commit.

use evermap_heap::format::{
    ROOT_ENTRY_OFFSET, RootEntry, SCHEMA_BYTES_MAX, SCHEMA_LENGTH_OFFSET, SCHEMA_OFFSET,
};

use crate::root::RawRoot;

/// Reads the root from the superblock that is mapped at an address.
///
/// # Safety
/// A superblock page is mapped there, and its root is not changed during the call.
pub(crate) unsafe fn read_root(superblock: *const u8) -> RawRoot {
    // SAFETY: the caller guarantees a mapped superblock page; all fields are plain numbers, and
    // their offsets are multiples of their alignment.
    let (entry, length, schema) = unsafe {
        (
            superblock.add(ROOT_ENTRY_OFFSET).cast::<RootEntry>().read(),
            superblock.add(SCHEMA_LENGTH_OFFSET).cast::<u16>().read(),
            superblock.add(SCHEMA_OFFSET).cast::<[u8; SCHEMA_BYTES_MAX]>().read(),
        )
    };
    let description = &schema[..usize::from(length).min(SCHEMA_BYTES_MAX)];
    RawRoot {
        address: std::ptr::with_exposed_provenance_mut(entry.address as usize),
        bytes: entry.bytes,
        tag: entry.tag,
        description: String::from_utf8_lossy(description).into(),
    }
}

/// Writes the root, which the host reads at the next commit. A long description is truncated.
///
/// # Safety
/// A superblock page is mapped writable there. Its root is not read or changed by other code during
/// the call.
pub(crate) unsafe fn write_root(superblock: *mut u8, root: &RawRoot) {
    let address = root.address.expose_provenance() as u64;
    let entry = RootEntry { address, bytes: root.bytes, tag: root.tag };
    let mut length = root.description.len().min(SCHEMA_BYTES_MAX);
    while !root.description.is_char_boundary(length) {
        length -= 1;
    }
    let mut schema = [0; SCHEMA_BYTES_MAX];
    schema[..length].copy_from_slice(&root.description.as_bytes()[..length]);
    // SAFETY: the caller guarantees a writable superblock page that no other code accesses. The
    // offsets are multiples of the fields' alignment.
    unsafe {
        superblock.add(ROOT_ENTRY_OFFSET).cast::<RootEntry>().write(entry);
        superblock.add(SCHEMA_LENGTH_OFFSET).cast::<u16>().write(length as u16);
        superblock.add(SCHEMA_OFFSET).cast::<[u8; SCHEMA_BYTES_MAX]>().write(schema);
    }
}

#[cfg(test)]
mod tests {
    use evermap_heap::format::PAGE_BYTES;

    use super::*;

    /// A superblock's page, aligned like a mapped one.
    #[repr(C, align(4096))]
    struct Page([u8; PAGE_BYTES as usize]);

    fn root(address: usize, description: String) -> RawRoot {
        let address = std::ptr::without_provenance_mut(address);
        RawRoot { address, bytes: 8, tag: [3; 16], description }
    }

    #[test]
    fn a_written_root_is_read_back_and_nothing_else_changes() {
        let mut page = Page([7; PAGE_BYTES as usize]);
        let root = root(0x1001_0000, "Notes{count@0:u64}#8/8".to_string());
        // SAFETY: the page is a local variable.
        let read = unsafe {
            write_root(page.0.as_mut_ptr(), &root);
            read_root(page.0.as_ptr())
        };
        assert_eq!(read, root);
        let written = [
            ROOT_ENTRY_OFFSET..ROOT_ENTRY_OFFSET + size_of::<RootEntry>(),
            SCHEMA_LENGTH_OFFSET..SCHEMA_LENGTH_OFFSET + 2,
            SCHEMA_OFFSET..SCHEMA_OFFSET + SCHEMA_BYTES_MAX,
        ];
        for (at, byte) in page.0.iter().enumerate() {
            assert!(*byte == 7 || written.iter().any(|range| range.contains(&at)), "byte {at}");
        }
    }

    #[test]
    fn a_description_is_truncated_between_characters_and_its_length_is_clamped() {
        let mut page = Page([0; PAGE_BYTES as usize]);
        let root = root(16, "x".to_string() + &"\u{e4}".repeat(600));
        // SAFETY: the page is a local variable.
        let read = unsafe {
            write_root(page.0.as_mut_ptr(), &root);
            read_root(page.0.as_ptr())
        };
        assert_eq!(read.description.len(), 1023);
        page.0[SCHEMA_LENGTH_OFFSET..][..2].fill(0xff);
        // SAFETY: the page is a local variable.
        let read = unsafe { read_root(page.0.as_ptr()) };
        assert!(read.description.starts_with("x\u{e4}"));
    }
}
