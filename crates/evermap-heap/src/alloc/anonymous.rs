//! Heap in anonymous memory, for [`Scratch`](crate::Scratch) objects: the allocator of objects
//! without a file behind it.

use std::sync::{Arc, Mutex, PoisonError};

use super::{ChunkSource, Heap};
use crate::anonymous::AnonymousRange;
use crate::error::Result;
use crate::format::{CHUNK_BYTES, PAGE_BYTES, RegionRecord, meta_length};

/// Chunks of the first region. Each further region doubles the total.
const FIRST_CHUNKS: u64 = 4;

#[derive(Default)]
pub(super) struct AnonymousSource {
    ranges: Mutex<Vec<(AnonymousRange, RegionRecord)>>,
}

impl ChunkSource for AnonymousSource {
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
    /// Creates a heap in anonymous memory, which is freed when the heap is dropped.
    pub(crate) fn anonymous() -> Result<Heap> {
        let source = Arc::new(AnonymousSource::default());
        let record = source.add_region(FIRST_CHUNKS)?;
        // SAFETY: the chunk source maps the memory writable and zero, and the heap keeps the
        // source.
        Ok(unsafe { Heap::new(source, &[record]) })
    }

    /// Number of allocated blocks.
    #[cfg(test)]
    pub(crate) fn live_blocks(&self) -> usize {
        self.statistics().blocks as usize
    }

    /// Lets `successes` more allocations succeed; all later ones fail.
    #[cfg(test)]
    pub(crate) fn fail_after(&self, successes: usize) {
        self.set_fail_after(Some(successes));
    }

    /// Ends the failures that `fail_after` set up.
    #[cfg(test)]
    pub(crate) fn never_fail(&self) {
        self.set_fail_after(None);
    }

    #[cfg(test)]
    fn set_fail_after(&self, successes: Option<usize>) {
        *self.fail_after.lock().unwrap_or_else(PoisonError::into_inner) = successes;
    }
}
