//! The part of the object file's format that a heap uses: pages, regions, chunks and their
//! metadata, and the root's entry in the superblock.
//!
//! The crate `evermap` adds what only stores use: the superblock, page checksums, code records and
//! logs. `docs/format.md` draws the file byte by byte. A change here changes the format: it needs a
//! feature bit or a new version, and files of released formats, which the tests keep, must still
//! open.

use bytemuck::{Pod, Zeroable};

/// Bytes of a page of the format, independent of the kernel's page size.
pub const PAGE_BYTES: u64 = 4096;
/// Bytes of a line, the granularity at which a commit logs changes. One cache line.
pub const LINE_BYTES: usize = 64;
/// Bytes of a chunk, the unit in which the allocator hands out address space.
pub const CHUNK_BYTES: u64 = 64 * 1024;
/// Smallest block, and the alignment of every block.
pub const BLOCK_BYTES_MIN: usize = 16;

/// Maximum number of regions of an object. Each new region at least doubles the object's capacity,
/// so 32 exceed the whole window.
pub const REGIONS_MAX: usize = 32;
/// Maximum bytes of the root type description in the superblock. A longer description is truncated;
/// its id is not affected.
pub const SCHEMA_BYTES_MAX: usize = 1024;

/// One region: contiguous addresses backed by a contiguous range of the object file.
///
/// Invariants: `base`, `length`, `capacity`, `meta_length` and `file_offset` are page multiples;
/// `base + meta_length` (the first chunk) is a chunk multiple; `meta_length <= length <= capacity`;
/// the next region's `file_offset` is not below `file_offset + capacity`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct RegionRecord {
    /// Address of the region's first byte. Region 0 begins with the superblock.
    pub base: u64,
    /// Bytes of address space that belong to the region.
    pub capacity: u64,
    /// Bytes from `base` that the file holds.
    pub length: u64,
    /// Offset of `base` in the file.
    pub file_offset: u64,
    /// Bytes from `base` to the first chunk: superblock (region 0 only), chunk map, chunk records.
    pub meta_length: u64,
    /// Address of the table of page checksums, at the end of the metadata. 0 if the region has no
    /// page checksums.
    pub checksums: u64,
}
const _: () = assert!(size_of::<RegionRecord>() == 48);

/// The root's entry in the superblock, at [`ROOT_ENTRY_OFFSET`]. A guest reads and sets its
/// object's root there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct RootEntry {
    /// Address of the root, or 0 if there is none.
    pub address: u64,
    /// `size_of` of the root's type.
    pub bytes: u64,
    /// Type id of the root (see `persist::typing`), or another tag.
    pub tag: [u8; 16],
}
const _: () = assert!(size_of::<RootEntry>() == 32);

/// Offset of [`RootEntry`] in the superblock. The crate `evermap` asserts that these offsets are
/// those of the structure.
pub const ROOT_ENTRY_OFFSET: usize = 104;
/// Offset in the superblock of the length of the description of the root's type, a `u16`.
pub const SCHEMA_LENGTH_OFFSET: usize = 170;
/// Offset of the description, of [`SCHEMA_BYTES_MAX`] bytes.
pub const SCHEMA_OFFSET: usize = 2048;

/// Allocator metadata of one chunk. It lies apart from the chunk's data, so that a commit after
/// many allocations dirties few pages.
///
/// A slab has `blocks` blocks of its class's size from the chunk's start. Bit `i` of `bitmap` is
/// set exactly while block `i` is allocated. In a commit, `used` is the number of set bits, and no
/// block at or above `carved` is allocated, or was in an earlier commit. The first chunk of a large
/// block has `large_bytes` and `large_chunks`. The record of any other chunk is all zero or stale.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct ChunkRecord {
    /// Blocks in the slab.
    pub blocks: u32,
    /// Blocks allocated.
    pub used: u32,
    /// Index after the last block that was allocated in any commit.
    pub carved: u32,
    /// Zero.
    pub reserved0: u32,
    /// Requested bytes of a large block.
    pub large_bytes: u64,
    /// Number of chunks of the large block.
    pub large_chunks: u64,
    /// Zero.
    pub reserved1: [u64; 4],
    /// One bit per block, set while the block is allocated.
    pub bitmap: [u64; 64],
}
const _: () = assert!(size_of::<ChunkRecord>() == 576);
const _: () = assert!(CHUNK_BYTES as usize / BLOCK_BYTES_MIN == 64 * 64);

/// Chunk map: the chunk is free. Fresh file pages are zero, so fresh chunks are free.
pub const CHUNK_FREE: u8 = 0;
/// Chunk map: the chunk is free, and its disk blocks were released, or may have been. They must be
/// reserved before the chunk is used.
pub const CHUNK_HOLE: u8 = 0x7d;
/// Chunk map: first chunk of a large block. Slabs use `1 + class`.
pub const CHUNK_LARGE: u8 = 0x7e;
/// Chunk map: later chunk of a large block.
pub const CHUNK_LARGE_BODY: u8 = 0x7f;
/// Chunk map: combined with a slab's class while the slab is not offered for allocation, because
/// less than a useful share of its blocks is free (an eighth, at least one).
pub const CHUNK_FULL: u8 = 0x80;

/// Bytes between a region's first byte and its first chunk, for `chunks` chunks. A page multiple.
pub const fn meta_length(first_region: bool, chunks: u64) -> u64 {
    let head = if first_region { PAGE_BYTES } else { 0 };
    let map = chunks.next_multiple_of(LINE_BYTES as u64);
    let records = chunks * size_of::<ChunkRecord>() as u64;
    (head + map + records).next_multiple_of(PAGE_BYTES)
}
