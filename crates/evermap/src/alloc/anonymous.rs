//! A heap without a file, for [`Scratch`](crate::Scratch) objects: the same allocator over
//! anonymous memory.

use std::sync::{Arc, Mutex, PoisonError};

use super::{Ground, Heap};
use crate::address::AnonymousRange;
use crate::error::Result;
use crate::format::{CHUNK_BYTES, PAGE_BYTES, RegionRecord, meta_length};

/// Chunks of the first region; each further one doubles what there is.
const FIRST_CHUNKS: u64 = 4;

#[derive(Default)]
pub(super) struct AnonymousGround {
    ranges: Mutex<Vec<(AnonymousRange, RegionRecord)>>,
}

impl Ground for AnonymousGround {
    fn extend(&self, region: usize, _data_bytes: u64) -> Result<u64> {
        let ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        let backed = ranges.get(region).map(|(_, record)| record.capacity - record.meta_length);
        Ok(backed.unwrap_or(0))
    }

    fn refill(&self, _region: usize, _offset: u64, _bytes: u64) -> Result<()> {
        Ok(())
    }

    fn add_region(&self, chunks: u64) -> Result<RegionRecord> {
        let mut ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        let have: u64 = ranges.iter().map(|(_, r)| r.capacity / CHUNK_BYTES).sum();
        let chunks = chunks.max(have).max(FIRST_CHUNKS);
        let first = ranges.is_empty();
        let meta = meta_length(first, chunks);
        let lead = meta.next_multiple_of(CHUNK_BYTES);
        let range = AnonymousRange::new(lead + chunks * CHUNK_BYTES)?;
        debug_assert_eq!((lead - meta) % PAGE_BYTES, 0);
        let record = RegionRecord {
            base: range.base() + lead - meta,
            capacity: meta + chunks * CHUNK_BYTES,
            length: meta + chunks * CHUNK_BYTES,
            file_offset: 0,
            meta_length: meta,
            checksums: 0,
        };
        ranges.push((range, record));
        Ok(record)
    }
}

impl Heap {
    /// A heap in anonymous memory; gone when dropped.
    pub(crate) fn anonymous() -> Result<Heap> {
        let ground = Arc::new(AnonymousGround::default());
        let record = ground.add_region(FIRST_CHUNKS)?;
        // SAFETY: the ground's memory is mapped writable, zero, and kept by the heap itself.
        Ok(unsafe { Heap::new(ground, &[record]) })
    }

    /// Blocks that are allocated.
    #[cfg(test)]
    pub(crate) fn live_blocks(&self) -> usize {
        self.statistics().blocks as usize
    }

    /// Lets this many more allocations succeed and then none.
    #[cfg(test)]
    pub(crate) fn fail_after(&self, successes: usize) {
        self.set_fail_after(Some(successes));
    }

    /// Ends what `fail_after` began.
    #[cfg(test)]
    pub(crate) fn never_fail(&self) {
        self.set_fail_after(None);
    }

    #[cfg(test)]
    fn set_fail_after(&self, successes: Option<usize>) {
        *self.fail_after.lock().unwrap_or_else(PoisonError::into_inner) = successes;
    }
}
