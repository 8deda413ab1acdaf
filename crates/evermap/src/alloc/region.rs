//! One region's metadata as it lies in memory: chunk map and chunk records.
//!
//! This file owns the raw accesses to allocator metadata. The heap's lock makes them exclusive;
//! indices are checked against the region's chunk count, so damaged metadata leads to a wrong
//! answer or an error but never outside the region.

use super::holes::is_free;
use crate::format::{
    CHUNK_BYTES, CHUNK_FREE, CHUNK_HOLE, ChunkRecord, LINE_BYTES, PAGE_BYTES, RegionRecord,
    meta_length,
};

/// A region that the heap allocates from.
#[derive(Debug)]
pub(super) struct Region {
    /// Address of chunk 0.
    data: u64,
    /// Chunks the region has addresses for.
    chunks: usize,
    map: *mut u8,
    records: *mut ChunkRecord,
    /// Bytes from the first chunk that the file holds.
    backed: u64,
}

// SAFETY: the pointers lead into the object's mapping, which outlives the heap; all access goes
// through the heap's lock.
unsafe impl Send for Region {}

impl Region {
    /// The allocator's view of a mapped region.
    ///
    /// # Safety
    /// The region's metadata is mapped writable at `record.base` for as long as the value lives
    /// and nobody else touches it. `record` satisfies the invariants of [`RegionRecord`].
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

    /// The chunk that holds `address`.
    pub(super) fn chunk_at(&self, address: u64) -> Option<usize> {
        let chunk = address.checked_sub(self.data)? / CHUNK_BYTES;
        ((chunk as usize) < self.chunks).then_some(chunk as usize)
    }

    /// The chunk map, one byte a chunk.
    pub(super) fn map(&self) -> &[u8] {
        // SAFETY: `new` was promised a mapped chunk map of this length; `&self` under the heap's
        // lock excludes writers.
        unsafe { std::slice::from_raw_parts(self.map, self.chunks) }
    }

    pub(super) fn set_map(&mut self, chunk: usize, count: usize, value: u8) {
        assert!(chunk + count <= self.chunks);
        // SAFETY: inside the chunk map, asserted above; `&mut self` is exclusive.
        unsafe { std::ptr::write_bytes(self.map.add(chunk), value, count) };
    }

    pub(super) fn record(&self, chunk: usize) -> &ChunkRecord {
        assert!(chunk < self.chunks);
        // SAFETY: inside the record table, asserted above; any bit pattern is a valid record.
        unsafe { &*self.records.add(chunk) }
    }

    pub(super) fn record_mut(&mut self, chunk: usize) -> &mut ChunkRecord {
        assert!(chunk < self.chunks);
        // SAFETY: as `record`, and `&mut self` is exclusive.
        unsafe { &mut *self.records.add(chunk) }
    }

    /// First chunk at or after `from` that begins `count` free ones at a multiple of
    /// `align_bytes`. Scans one byte a chunk: 16 KiB a GiB.
    pub(super) fn find_free(&self, from: usize, count: usize, align_bytes: u64) -> Option<usize> {
        let map = self.map();
        let mut at = from;
        while at + count <= map.len() {
            at += memchr::memchr2(CHUNK_FREE, CHUNK_HOLE, &map[at..])?;
            let misfit = self.chunk_address(at) % align_bytes;
            if misfit != 0 {
                at += ((align_bytes - misfit) / CHUNK_BYTES).max(1) as usize;
                continue;
            }
            let window = map.get(at..at + count)?;
            match window.iter().rposition(|&state| !is_free(state)) {
                None => return Some(at),
                Some(taken) => at += taken + 1,
            }
        }
        None
    }
}
