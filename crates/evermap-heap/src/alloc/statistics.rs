//! Allocation counts of an object, computed from its allocator metadata.

use super::classes::{CLASSES, block_bytes};
use super::region::Region;
use crate::format::{
    CHUNK_BYTES, CHUNK_FREE, CHUNK_FULL, CHUNK_HOLE, CHUNK_LARGE, CHUNK_LARGE_BODY, RegionRecord,
};

/// Counts of one size class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassStatistics {
    /// Bytes of one block.
    pub block_bytes: u64,
    /// Slabs of 64 KiB that serve the class.
    pub slabs: u64,
    /// Blocks allocated.
    pub blocks: u64,
}

/// Allocation counts of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeapStatistics {
    /// Regions the object has.
    pub regions: u64,
    /// Bytes of address space that its chunks have.
    pub capacity_bytes: u64,
    /// Bytes of chunks that the file backs.
    pub backed_bytes: u64,
    /// Blocks allocated, small and large.
    pub blocks: u64,
    /// Bytes of allocated blocks, rounded up to the size each one occupies.
    pub allocated_bytes: u64,
    /// Number of large blocks.
    pub large_blocks: u64,
    /// Bytes requested for large blocks.
    pub large_bytes: u64,
    /// Chunks that hold nothing.
    pub free_chunks: u64,
    /// Free chunks whose disk space was released.
    pub holes: u64,
    /// Size classes with at least one slab.
    pub classes: Vec<ClassStatistics>,
}

impl HeapStatistics {
    /// Counts blocks. `allocated` returns the current number of blocks of the slab around an
    /// address, if it differs from the slab's record.
    pub(super) fn collect(
        regions: &[Region],
        allocated: impl Fn(u64) -> Option<u32>,
    ) -> HeapStatistics {
        let mut classes = [ClassStatistics::default(); CLASSES];
        let mut total = HeapStatistics { regions: regions.len() as u64, ..Default::default() };
        for region in regions {
            total.capacity_bytes += region.chunks() as u64 * CHUNK_BYTES;
            total.backed_bytes += region.backed();
            for (chunk, &state) in region.map().iter().enumerate() {
                match state & !CHUNK_FULL {
                    CHUNK_FREE => total.free_chunks += 1,
                    CHUNK_HOLE => {
                        total.free_chunks += 1;
                        total.holes += 1;
                    }
                    CHUNK_LARGE => {
                        let record = region.record(chunk);
                        total.large_blocks += 1;
                        // Metadata may be damaged: a sum may be wrong, but must not overflow.
                        total.large_bytes = total.large_bytes.saturating_add(record.large_bytes());
                        let bytes = record.large_chunks().saturating_mul(CHUNK_BYTES);
                        total.allocated_bytes = total.allocated_bytes.saturating_add(bytes);
                    }
                    CHUNK_LARGE_BODY => {}
                    class => {
                        if let Some(counts) = classes.get_mut(class as usize - 1) {
                            counts.slabs += 1;
                            let now = allocated(region.chunk_address(chunk));
                            let blocks = now.unwrap_or_else(|| region.record(chunk).used());
                            counts.blocks += u64::from(blocks);
                        }
                    }
                }
            }
        }
        total.blocks = total.large_blocks;
        for (class, counts) in classes.iter_mut().enumerate() {
            counts.block_bytes = block_bytes(class) as u64;
            total.blocks += counts.blocks;
            let bytes = counts.blocks.saturating_mul(counts.block_bytes);
            total.allocated_bytes = total.allocated_bytes.saturating_add(bytes);
        }
        total.classes = classes.into_iter().filter(|c| c.slabs > 0).collect();
        total
    }
}

/// Counts the allocated blocks of regions that are mapped, at least for reading.
///
/// # Safety
/// The regions are mapped as their records say, and their metadata does not change during the call.
pub unsafe fn statistics_of(records: &[RegionRecord]) -> HeapStatistics {
    let regions: Vec<Region> = records
        .iter()
        .enumerate()
        // SAFETY: the caller guarantees that the regions are mapped; counting only reads.
        .map(|(index, record)| unsafe { Region::new(record, index == 0) })
        .collect();
    HeapStatistics::collect(&regions, |_| None)
}
