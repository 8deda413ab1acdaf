//! Sizes of regions: metadata, addresses, and the size of the next one.
//!
//! These numbers decide where the first chunk of a region lies, in memory and in the file. Regions
//! of existing files keep their records, so only new regions follow a change here.

use crate::format::{
    CHUNK_BYTES, HUGE_BYTES, LARGE_REGION_BYTES, PAGE_BYTES, RegionRecord, meta_length,
    meta_length_with_checksums,
};

/// Size of further regions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegionPlan {
    /// Unit in which addresses are leased.
    pub(super) granule_bytes: u64,
    /// While there are few chunks, a further region has this many times the existing ones.
    pub(super) factor: u64,
}

impl RegionPlan {
    /// Few regions open quickly, and arenas have enough addresses.
    pub(crate) const NATIVE: RegionPlan = RegionPlan { granule_bytes: CHUNK_BYTES, factor: 4 };
    /// A guest's window is a GiB: the object doubles, in granules of 4 MiB.
    pub(crate) const GUEST: RegionPlan = RegionPlan { granule_bytes: 4 << 20, factor: 1 };
}

/// Bytes of addresses before a region's first chunk, chunk-aligned.
pub(super) fn lead_bytes(meta: u64) -> u64 {
    meta.next_multiple_of(CHUNK_BYTES)
}

/// Layout of a region.
pub(super) struct RegionShape {
    pub(super) chunks: u64,
    /// Bytes before the first chunk.
    pub(super) meta: u64,
    /// Bytes of `meta` that are the table of page checksums.
    pub(super) table: u64,
    /// Alignment of its offset in the file.
    pub(super) align: u64,
}

impl RegionShape {
    pub(super) fn of(first: bool, chunks: u64, checksums: bool) -> RegionShape {
        let (meta, table) = match checksums {
            true => meta_length_with_checksums(first, chunks),
            false => (meta_length(first, chunks), 0),
        };
        // A large region is aligned like a huge page, here and in the file, up to its first chunk.
        let (meta, align) = match chunks * CHUNK_BYTES >= LARGE_REGION_BYTES {
            true => (meta.next_multiple_of(CHUNK_BYTES), HUGE_BYTES),
            false => (meta, PAGE_BYTES),
        };
        RegionShape { chunks, meta, table, align }
    }

    pub(super) fn lease_bytes(&self) -> u64 {
        lead_bytes(self.meta) + self.chunks * CHUNK_BYTES
    }
}

/// The chunk-aligned addresses that were leased for a region.
pub(crate) fn lease_of(record: &RegionRecord) -> (u64, u64) {
    let lead = lead_bytes(record.meta_length);
    (record.base + record.meta_length - lead, record.capacity - record.meta_length + lead)
}
