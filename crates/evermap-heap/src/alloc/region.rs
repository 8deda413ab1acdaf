//! Metadata of one region in memory: chunk map and chunk records.
//!
//! This file owns the raw accesses to allocator metadata. The chunk map, and all of a record except
//! its bitmap, belong to the thread that holds the heap's lock or has the heap exclusively. A
//! bitmap belongs to its slab's owner and is accessed through atomics. Indices are checked against
//! the region's chunk count, so damaged metadata leads to a wrong answer or an error, but never
//! outside the region.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::format::{CHUNK_BYTES, ChunkRecord, LINE_BYTES, PAGE_BYTES, RegionRecord, meta_length};

/// Words of a record's bitmap.
pub(super) const WORDS: usize = 64;

/// A region that the heap allocates from.
#[derive(Debug)]
pub(super) struct Region {
    /// Address of chunk 0.
    data: u64,
    /// Chunks the region has addresses for.
    chunks: usize,
    map: *mut u8,
    records: *mut ChunkRecord,
    /// Bytes backed by the file, from the first chunk.
    backed: u64,
}

// SAFETY: the pointers lead into the object's mapping, which outlives the heap. The heap's lock, or
// exclusive access to the heap, orders the accesses; bitmaps are accessed through atomics.
unsafe impl Send for Region {}

/// One chunk's record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record(*mut ChunkRecord);

macro_rules! fields {
    ($($field:ident, $set:ident: $type:ty;)*) => {$(
        pub(super) fn $field(self) -> $type {
            // SAFETY: the record is mapped; the caller holds the heap's lock, which
            // guards the field.
            unsafe { (&raw const (*self.0).$field).read() }
        }

        pub(super) fn $set(self, value: $type) {
            // Write only on a change: a write dirties the page.
            if self.$field() != value {
                // SAFETY: the record is mapped; the caller holds the heap's lock, which
                // guards the field.
                unsafe { (&raw mut (*self.0).$field).write(value) };
            }
        }
    )*};
}

impl Record {
    fields! {
        blocks, set_blocks: u32;
        used, set_used: u32;
        carved, set_carved: u32;
        large_bytes, set_large_bytes: u64;
        large_chunks, set_large_chunks: u64;
    }

    /// Returns true if the bitmap says that the block with this index is allocated. The index is
    /// below the number of the bitmap's bits.
    pub(super) fn is_set(self, index: usize) -> bool {
        self.word(index / 64).load(Ordering::Relaxed) >> (index % 64) & 1 == 1
    }

    /// Sets all words of the bitmap that are not zero to zero.
    pub(super) fn clear_bitmap(self) {
        for at in 0..WORDS {
            // A store dirties the page.
            if self.word(at).load(Ordering::Relaxed) != 0 {
                self.word(at).store(0, Ordering::Relaxed);
            }
        }
    }

    fn word<'a>(self, at: usize) -> &'a AtomicU64 {
        // SAFETY: the record is mapped while its region is; the index is below the number of words,
        // which are accessed through atomics only.
        unsafe { AtomicU64::from_ptr(self.bitmap().add(at % WORDS)) }
    }

    /// Returns a pointer to the words of the bitmap.
    pub(super) fn bitmap(self) -> *mut u64 {
        // SAFETY: the record is mapped; this computes an address and reads nothing.
        unsafe { (&raw mut (*self.0).bitmap).cast() }
    }
}

impl Region {
    /// Creates the allocator's view of a mapped region.
    ///
    /// # Safety
    /// The region's metadata is mapped writable at `record.base` for as long as the value lives,
    /// and only the heap accesses it. `record` satisfies the invariants of [`RegionRecord`].
    pub(super) unsafe fn new(record: &RegionRecord, first: bool) -> Region {
        let chunks = (record.capacity - record.meta_length) / CHUNK_BYTES;
        debug_assert!(meta_length(first, chunks) <= record.meta_length);
        let map = record.base + if first { PAGE_BYTES } else { 0 };
        let records = map + chunks.next_multiple_of(LINE_BYTES as u64);
        Region {
            data: record.base + record.meta_length,
            chunks: chunks as usize,
            map: map as *mut u8,
            records: records as *mut ChunkRecord,
            backed: record.length - record.meta_length,
        }
    }

    pub(super) fn chunks(&self) -> usize {
        self.chunks
    }

    pub(super) fn backed(&self) -> u64 {
        self.backed
    }

    pub(super) fn set_backed(&mut self, bytes: u64) {
        self.backed = bytes;
    }

    pub(super) fn chunk_address(&self, chunk: usize) -> u64 {
        self.data + chunk as u64 * CHUNK_BYTES
    }

    /// Returns the chunk that holds `address`.
    pub(super) fn chunk_at(&self, address: u64) -> Option<usize> {
        let chunk = address.checked_sub(self.data)? / CHUNK_BYTES;
        ((chunk as usize) < self.chunks).then_some(chunk as usize)
    }

    /// Returns the chunk map, one byte per chunk.
    pub(super) fn map(&self) -> &[u8] {
        // SAFETY: the caller of `new` guaranteed a mapped chunk map of this length; `&self` under
        // the heap's lock excludes writers.
        unsafe { std::slice::from_raw_parts(self.map, self.chunks) }
    }

    pub(super) fn set_map(&mut self, chunk: usize, count: usize, value: u8) {
        assert!(chunk + count <= self.chunks);
        // SAFETY: inside the chunk map, asserted above; `&mut self` is exclusive.
        unsafe { std::ptr::write_bytes(self.map.add(chunk), value, count) };
    }

    pub(super) fn record(&self, chunk: usize) -> Record {
        assert!(chunk < self.chunks);
        // SAFETY: inside the record table, asserted above.
        Record(unsafe { self.records.add(chunk) })
    }
}
