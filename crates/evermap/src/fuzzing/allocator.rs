//! Fuzz target: the allocator over arbitrary metadata.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use evermap_heap::anonymous::AnonymousRange;
use evermap_heap::{HeapError, Result};

use crate::alloc::{ChunkSource, Heap};
use crate::format::{CHUNK_BYTES, PAGE_BYTES, RegionRecord, meta_length};

/// Chunks of the only region.
const CHUNKS: u64 = 12;

/// A region in memory, partly backed by the file.
struct OneRegion {
    backed: Mutex<u64>,
}

impl ChunkSource for OneRegion {
    fn extend(&self, region: usize, data_bytes: u64) -> Result<u64> {
        assert!(region == 0 && data_bytes <= CHUNKS * CHUNK_BYTES, "beyond the region");
        let mut backed = self.backed.lock().unwrap_or_else(PoisonError::into_inner);
        *backed = data_bytes.next_multiple_of(PAGE_BYTES).max(*backed);
        Ok(*backed)
    }

    fn refill(&self, _region: usize, _offset: u64, _bytes: u64) -> Result<()> {
        Ok(())
    }

    fn add_region(&self, _chunks: u64) -> Result<RegionRecord> {
        let what = "a heap of one region".to_string();
        Err(HeapError::OutOfAddresses { what, bytes: 0, why: "it is the only one".to_string() })
    }
}

/// Allocates and frees in a heap whose chunk map and records come from the input.
///
/// Blocks must always lie in the part that the file backs: an access to the rest would raise a
/// signal. Input: backed pages; operations, three bytes each, up to a byte of 0xff; metadata.
pub fn allocator(input: &[u8]) {
    let Some((&[backed_pages], rest)) = input.split_first_chunk() else { return };
    let end = rest.chunks(3).position(|o| o.first() == Some(&0xff)).map_or(rest.len(), |n| n * 3);
    let (operations, metadata) = rest.split_at(end.min(rest.len()));
    let meta = meta_length(true, CHUNKS);
    let lead = meta.next_multiple_of(CHUNK_BYTES);
    let Ok(range) = AnonymousRange::new(lead + CHUNKS * CHUNK_BYTES) else { return };
    let base = range.base() + lead - meta;
    let backed = (u64::from(backed_pages) * PAGE_BYTES).min(CHUNKS * CHUNK_BYTES);
    let record = RegionRecord {
        base,
        capacity: meta + CHUNKS * CHUNK_BYTES,
        length: meta + backed,
        file_offset: 0,
        meta_length: meta,
        checksums: 0,
    };
    let metadata = metadata.get(1..).unwrap_or_default();
    let length = metadata.len().min((meta - PAGE_BYTES) as usize);
    // SAFETY: the range is writable and has no other user; the metadata starts after the
    // superblock's page and `length` ends inside it.
    unsafe {
        let to = (base + PAGE_BYTES) as *mut u8;
        to.copy_from_nonoverlapping(metadata.as_ptr(), length);
    }
    let source = Arc::new(OneRegion { backed: Mutex::new(backed) });
    // SAFETY: the region lives as long as `range`, which is dropped after the heap.
    let mut heap = unsafe { Heap::new(source, &[record]) };
    operate(&heap, base + meta, operations);
    let _ = heap.statistics();
    assert!(heap.flush_and_measure().iter().all(|used| *used <= CHUNKS * CHUNK_BYTES));
    drop(heap);
    drop(range);
}

fn operate(heap: &Heap, data: u64, operations: &[u8]) {
    for operation in operations.chunks_exact(3) {
        let number = u64::from(operation[1]) | u64::from(operation[2]) << 8;
        match operation[0] % 3 {
            0 => {
                let size = number as usize * 3 + 1;
                if let Ok(block) = heap.allocate(size, 16) {
                    let address = block.as_ptr() as usize;
                    assert!(heap.contains(address, size), "a block beyond what the file backs");
                }
            }
            1 => {
                let address = data.wrapping_add(number * 16);
                if let Some(block) = NonNull::new(address as *mut u8) {
                    // SAFETY: the blocks hold no values.
                    let _ = unsafe { heap.try_free(block) };
                }
            }
            _ => {
                let address = data.wrapping_add(number * 16);
                if let Some(block) = NonNull::new(address as *mut u8) {
                    let usable = heap.usable_size(block);
                    assert!(usable as u64 <= CHUNKS * CHUNK_BYTES, "a block larger than the heap");
                }
            }
        }
    }
}
