//! The allocator that lives in an object.
//!
//! What it knows is as durable as the data, because a commit covers both: no logging, no flush, no
//! fence an allocation. Address space is handed out in 64 KiB chunks. A chunk is a slab of blocks
//! of one class, or a part of a large block, or free; one byte a chunk says which (the chunk map),
//! and one record a chunk holds the slab's bitmap. Both lie apart from the data, so allocating and
//! freeing thousands of scattered blocks dirties a handful of pages and never a block that is
//! free. A bitmap instead of a list threaded through the blocks also tells a block freed twice from
//! one freed once, and can be checked without following a pointer.
//!
//! Everything else (where to look next) is volatile and rebuilt at open for nothing.

mod anonymous;
mod classes;
mod holes;
mod region;
mod statistics;

#[cfg(test)]
mod tests;

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::error;

use crate::error::{Error, Result};
use crate::format::{
    BLOCK_BYTES_MIN, CHUNK_BYTES, CHUNK_FREE, CHUNK_FULL, CHUNK_HOLE, CHUNK_LARGE,
    CHUNK_LARGE_BODY, PAGE_BYTES, RegionRecord,
};
use classes::class_of;
pub(crate) use classes::{CLASSES, block_bytes, blocks_per_slab};
pub(crate) use holes::is_free;
use region::Region;
pub(crate) use statistics::statistics_of;
pub use statistics::{ClassStatistics, HeapStatistics};

/// Largest single block: half the address space of x86-64 programs, so that sums do not overflow.
const ALLOCATION_BYTES_MAX: usize = 1 << 46;

/// Where a heap gets more room from: the object that it lives in.
pub(crate) trait Ground: Send + Sync {
    /// Backs a region with the file up to at least `data_bytes` from its first chunk; gives the
    /// bytes that are backed then.
    fn extend(&self, region: usize, data_bytes: u64) -> Result<u64>;
    /// Reserves the file's blocks of a range of a region again, from its first chunk.
    fn refill(&self, region: usize, offset: u64, bytes: u64) -> Result<()>;
    /// Adds a region of at least `chunks` chunks.
    fn add_region(&self, chunks: u64) -> Result<RegionRecord>;
}

/// The allocator of one object during one writer's session. Thread-safe.
///
/// Blocks are aligned to at least 16 bytes. An allocation costs a lock and a bitmap search; it
/// touches the disk only when the object has to grow.
pub struct Heap {
    ground: Arc<dyn Ground>,
    state: Mutex<State>,
    /// For tests of what happens when the object cannot grow.
    #[cfg(test)]
    fail_after: Mutex<Option<usize>>,
}

#[derive(Debug)]
struct State {
    regions: Vec<Region>,
    /// Slab of each class that was allocated from last: region and chunk.
    current: [Option<(usize, usize)>; CLASSES],
    /// Below this chunk of a region nothing is free.
    free_from: Vec<usize>,
}

/// A block found by its address.
enum Block {
    Small { region: usize, chunk: usize, class: usize, index: u32 },
    Large { region: usize, chunk: usize, chunks: usize, bytes: u64 },
}

impl std::fmt::Debug for Heap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Heap").field("regions", &self.lock().regions.len()).finish()
    }
}

impl Heap {
    /// A heap over mapped regions.
    ///
    /// # Safety
    /// The regions are mapped writable and stay so while the heap lives; their metadata is the
    /// heap's alone.
    pub(crate) unsafe fn new(ground: Arc<dyn Ground>, records: &[RegionRecord]) -> Heap {
        // SAFETY: passed on from the caller.
        let state = unsafe { State::new(records) };
        Heap {
            ground,
            state: Mutex::new(state),
            #[cfg(test)]
            fail_after: Mutex::default(),
        }
    }

    /// Forgets what is volatile, after the regions went back to the last commit.
    ///
    /// # Safety
    /// As [`Heap::new`].
    pub(crate) unsafe fn reload(&self, records: &[RegionRecord]) {
        // SAFETY: passed on from the caller.
        *self.lock() = unsafe { State::new(records) };
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allocates `size` bytes at a multiple of `align`; their contents are unspecified.
    ///
    /// # Errors
    /// `BadAllocation` for sizes and alignments no object can meet, `DiskFull` and
    /// `OutOfAddresses` when the object cannot grow; the heap is unchanged then.
    pub fn allocate(&self, size: usize, align: usize) -> Result<NonNull<u8>> {
        check_request(size, align)?;
        #[cfg(test)]
        self.count_down()?;
        self.allocate_block(size, align)
    }

    fn allocate_block(&self, size: usize, align: usize) -> Result<NonNull<u8>> {
        let mut state = self.lock();
        let address = match class_of(size, align) {
            Some(class) => state.allocate_small(&*self.ground, class)?,
            None => state.allocate_large(&*self.ground, size, align)?,
        };
        NonNull::new(address as *mut u8).ok_or(Error::BadAllocation {
            bytes: size as u64,
            align: align as u64,
            why: "the region begins at address zero",
        })
    }

    /// Allocates `size` zero bytes at a multiple of `align`.
    ///
    /// # Errors
    /// As [`Heap::allocate`].
    pub fn allocate_zeroed(&self, size: usize, align: usize) -> Result<NonNull<u8>> {
        let block = self.allocate(size, align)?;
        // SAFETY: the block was just allocated with at least `size` bytes and nobody else has it.
        unsafe { block.as_ptr().write_bytes(0, size) };
        Ok(block)
    }

    /// Frees a block.
    ///
    /// # Safety
    /// `block` came from this heap's object, was not freed since, and nothing refers to it.
    pub unsafe fn free(&self, block: NonNull<u8>) {
        if let Err(error) = self.try_free(block) {
            // The caller broke the contract: going on would hand the same memory out twice.
            error!(%error, "free");
            eprintln!("evermap: {error}");
            std::process::abort();
        }
    }

    /// Frees a block after checking that it is one.
    ///
    /// # Errors
    /// `InvalidFree` when `block` is not an allocated block of this object: a pointer from
    /// elsewhere, into the middle of a block, or one that was freed already.
    pub fn try_free(&self, block: NonNull<u8>) -> Result<()> {
        self.lock().free(block.as_ptr() as u64)
    }

    /// Changes a block's size, moving it when it must; its first `min(old, new)` bytes are kept.
    ///
    /// # Safety
    /// As [`Heap::free`]; on success `block` is gone unless it is what was returned.
    ///
    /// # Errors
    /// As [`Heap::allocate`]; the block is untouched then.
    pub unsafe fn reallocate(
        &self,
        block: NonNull<u8>,
        new_size: usize,
        align: usize,
    ) -> Result<NonNull<u8>> {
        check_request(new_size, align)?;
        #[cfg(test)]
        self.count_down()?;
        let address = block.as_ptr() as u64;
        let mut state = self.lock();
        if state.resize_in_place(&*self.ground, address, new_size, align)? {
            return Ok(block);
        }
        let old_size = state.usable_size(address)?;
        drop(state);
        let new = self.allocate_block(new_size, align)?;
        // SAFETY: both blocks are allocated, distinct, and hold the bytes copied.
        unsafe { new.as_ptr().copy_from_nonoverlapping(block.as_ptr(), old_size.min(new_size)) };
        // SAFETY: the caller gave the old block up.
        unsafe { self.free(block) };
        Ok(new)
    }

    /// Bytes that may be used of an allocated block; 0 when `block` is not one.
    pub fn usable_size(&self, block: NonNull<u8>) -> usize {
        self.lock().usable_size(block.as_ptr() as u64).unwrap_or(0)
    }

    /// Do `length` bytes from `address` lie in the object's data?
    pub fn contains(&self, address: usize, length: usize) -> bool {
        self.lock().regions.iter().any(|region| {
            let start = region.chunk_address(0);
            let end = start + region.backed();
            address as u64 >= start
                && (address as u64).checked_add(length as u64).is_some_and(|e| e <= end)
        })
    }

    #[cfg(test)]
    fn count_down(&self) -> Result<()> {
        match &mut *self.fail_after.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(0) => Err(Error::BadAllocation { bytes: 0, align: 1, why: "the test says so" }),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Counts what is allocated. Reads the chunk map and the slabs' records.
    pub fn statistics(&self) -> HeapStatistics {
        HeapStatistics::collect(&self.lock().regions)
    }

    /// Gives slabs back that were kept for their class and hold nothing. Then bytes of each
    /// region's data in use, up to the end of the last block.
    pub(crate) fn tidy(&self) -> Vec<u64> {
        let mut state = self.lock();
        for class in 0..CLASSES {
            if let Some((region, chunk)) = state.current[class].take()
                && state.regions[region].record(chunk).used == 0
            {
                state.give_chunks_back(region, chunk, 1);
            }
        }
        state.regions.iter().map(used_data_bytes).collect()
    }
}

impl Heap {
    /// Bytes of free chunks that the file backs and that are no holes, in runs of at least so many.
    pub(crate) fn free_bytes(&self, chunks_min: usize) -> u64 {
        let state = self.lock();
        state.regions.iter().map(|region| holes::free_bytes(region, chunks_min)).sum()
    }

    /// Marks free chunks that the file backs as holes: runs of at least so many chunks. Gives all
    /// holes there are, by address and bytes.
    pub(crate) fn mark_holes(&self, chunks_min: usize) -> Vec<(u64, u64)> {
        let mut state = self.lock();
        state.regions.iter_mut().flat_map(|region| holes::mark(region, chunks_min)).collect()
    }
}

fn check_request(size: usize, align: usize) -> Result<()> {
    let why = if !align.is_power_of_two() {
        "the alignment is not a power of two"
    } else if size > ALLOCATION_BYTES_MAX || align > ALLOCATION_BYTES_MAX {
        "it is larger than any object can be"
    } else {
        return Ok(());
    };
    Err(Error::BadAllocation { bytes: size as u64, align: align as u64, why })
}

/// End of the last block of a region, a page multiple, from its first chunk.
fn used_data_bytes(region: &Region) -> u64 {
    let Some(last) = region.map().iter().rposition(|&state| !is_free(state)) else {
        return 0;
    };
    let state = region.map()[last];
    let bytes = match state & !CHUNK_FULL {
        CHUNK_LARGE | CHUNK_LARGE_BODY => {
            let first =
                region.map()[..=last].iter().rposition(|&s| s == CHUNK_LARGE).unwrap_or(last);
            (first as u64 * CHUNK_BYTES).saturating_add(region.record(first).large_bytes)
        }
        class if (1..=CLASSES as u8).contains(&class) => {
            let carved = u64::from(region.record(last).carved);
            last as u64 * CHUNK_BYTES + carved * block_bytes(class as usize - 1) as u64
        }
        _ => (last as u64 + 1) * CHUNK_BYTES,
    };
    // Damaged metadata can say anything; it never means more than there is.
    bytes.checked_next_multiple_of(PAGE_BYTES).unwrap_or(u64::MAX).min(region.backed())
}

impl State {
    /// # Safety
    /// As [`Heap::new`].
    unsafe fn new(records: &[RegionRecord]) -> State {
        let regions: Vec<Region> = records
            .iter()
            .enumerate()
            // SAFETY: passed on from the caller.
            .map(|(i, record)| unsafe { Region::new(record, i == 0) })
            .collect();
        let free_from = vec![0; regions.len()];
        State { regions, current: [None; CLASSES], free_from }
    }

    fn allocate_small(&mut self, ground: &dyn Ground, class: usize) -> Result<u64> {
        let size = block_bytes(class) as u64;
        loop {
            let (region, chunk) = match self.current[class] {
                Some(current) => current,
                None => self.next_slab(ground, class)?,
            };
            let slab = self.regions[region].record_mut(chunk);
            let blocks = slab.blocks.min(blocks_per_slab(class));
            let word = slab.bitmap.iter().position(|&word| word != u64::MAX).unwrap_or(0);
            let index = word as u32 * 64 + slab.bitmap[word].trailing_ones();
            if index >= blocks {
                // Only damaged metadata says "free blocks" without having one.
                self.current[class] = None;
                self.regions[region].set_map(chunk, 1, CHUNK_FULL | (1 + class as u8));
                continue;
            }
            // The file backs a slab as far as its blocks were ever handed out; the record, which
            // may be damaged, is not asked how far that is.
            let end = chunk as u64 * CHUNK_BYTES + (u64::from(index) + 1) * size;
            self.back(ground, region, end)?;
            let slab = self.regions[region].record_mut(chunk);
            slab.bitmap[word] |= 1 << (index % 64);
            slab.used = slab.used.saturating_add(1);
            slab.carved = slab.carved.max(index + 1);
            if slab.used >= blocks {
                self.current[class] = None;
                self.regions[region].set_map(chunk, 1, CHUNK_FULL | (1 + class as u8));
            } else {
                self.current[class] = Some((region, chunk));
            }
            return Ok(self.regions[region].chunk_address(chunk) + u64::from(index) * size);
        }
    }

    /// A slab of `class` with a free block: one that is there, else a fresh one.
    fn next_slab(&mut self, ground: &dyn Ground, class: usize) -> Result<(usize, usize)> {
        let state = 1 + class as u8;
        for (index, region) in self.regions.iter().enumerate() {
            if let Some(chunk) = memchr::memchr(state, region.map()) {
                return Ok((index, chunk));
            }
        }
        let (region, chunk) = self.take_chunks(ground, 1, 0, CHUNK_BYTES)?;
        let slab = self.regions[region].record_mut(chunk);
        *slab = bytemuck::Zeroable::zeroed();
        slab.blocks = blocks_per_slab(class);
        self.regions[region].set_map(chunk, 1, state);
        Ok((region, chunk))
    }

    fn allocate_large(&mut self, ground: &dyn Ground, size: usize, align: usize) -> Result<u64> {
        let chunks = (size as u64).div_ceil(CHUNK_BYTES) as usize;
        let align = (align as u64).max(CHUNK_BYTES);
        let (region, chunk) = self.take_chunks(ground, chunks, size as u64, align)?;
        let region = &mut self.regions[region];
        region.set_map(chunk, 1, CHUNK_LARGE);
        region.set_map(chunk + 1, chunks - 1, CHUNK_LARGE_BODY);
        let record = region.record_mut(chunk);
        record.large_bytes = size as u64;
        record.large_chunks = chunks as u64;
        Ok(region.chunk_address(chunk))
    }

    /// Finds `chunks` free chunks and backs `bytes` of them with the file.
    fn take_chunks(
        &mut self,
        ground: &dyn Ground,
        chunks: usize,
        bytes: u64,
        align_bytes: u64,
    ) -> Result<(usize, usize)> {
        for index in 0..self.regions.len() {
            let from = self.free_from[index];
            let Some(chunk) = self.regions[index].find_free(from, chunks, align_bytes) else {
                continue;
            };
            let run = &self.regions[index].map()[chunk..chunk + chunks];
            if run.contains(&CHUNK_HOLE) {
                let at = chunk as u64 * CHUNK_BYTES;
                let end = (at + chunks as u64 * CHUNK_BYTES).min(self.regions[index].backed());
                ground.refill(index, at, end.saturating_sub(at))?;
            }
            self.back(ground, index, chunk as u64 * CHUNK_BYTES + bytes)?;
            if chunks == 1 && align_bytes == CHUNK_BYTES {
                self.free_from[index] = chunk + 1;
            }
            return Ok((index, chunk));
        }
        let spare = (align_bytes / CHUNK_BYTES).saturating_sub(1);
        let record = ground.add_region(chunks as u64 + spare)?;
        // SAFETY: the ground mapped the region writable for this heap and zeroed it.
        self.regions.push(unsafe { Region::new(&record, false) });
        self.free_from.push(0);
        let index = self.regions.len() - 1;
        let chunk = self.regions[index].find_free(0, chunks, align_bytes).unwrap_or(0);
        self.back(ground, index, chunk as u64 * CHUNK_BYTES + bytes)?;
        Ok((index, chunk))
    }

    fn back(&mut self, ground: &dyn Ground, region: usize, data_bytes: u64) -> Result<()> {
        if data_bytes > self.regions[region].backed() {
            let backed = ground.extend(region, data_bytes)?;
            self.regions[region].set_backed(backed);
        }
        Ok(())
    }

    fn free(&mut self, address: u64) -> Result<()> {
        match self.find(address)? {
            Block::Small { region, chunk, class, index } => {
                let slab = self.regions[region].record_mut(chunk);
                slab.bitmap[index as usize / 64] &= !(1 << (index % 64));
                slab.used = slab.used.saturating_sub(1);
                let empty = slab.used == 0;
                let is_current = self.current[class] == Some((region, chunk));
                if empty && !is_current {
                    self.give_chunks_back(region, chunk, 1);
                } else {
                    self.regions[region].set_map(chunk, 1, 1 + class as u8);
                }
            }
            Block::Large { region, chunk, chunks, .. } => {
                self.give_chunks_back(region, chunk, chunks)
            }
        }
        Ok(())
    }

    fn give_chunks_back(&mut self, region: usize, chunk: usize, chunks: usize) {
        self.regions[region].set_map(chunk, chunks, CHUNK_FREE);
        self.free_from[region] = self.free_from[region].min(chunk);
    }

    fn find(&self, address: u64) -> Result<Block> {
        let refuse = |why| Err(Error::InvalidFree { address, why });
        let Some((region, chunk)) = self
            .regions
            .iter()
            .enumerate()
            .find_map(|(i, r)| r.chunk_at(address).map(|chunk| (i, chunk)))
        else {
            return refuse("it lies outside the object");
        };
        let offset = address - self.regions[region].chunk_address(chunk);
        let record = self.regions[region].record(chunk);
        match self.regions[region].map()[chunk] & !CHUNK_FULL {
            CHUNK_FREE | CHUNK_HOLE => refuse("nothing is allocated there; was it freed before?"),
            CHUNK_LARGE if offset == 0 => {
                let chunks = record.large_chunks as usize;
                let bytes = record.large_bytes;
                let before = chunk as u64 * CHUNK_BYTES;
                let backed = self.regions[region].backed().saturating_sub(before);
                let sound = (1..=self.regions[region].chunks() - chunk).contains(&chunks)
                    && bytes <= (chunks as u64 * CHUNK_BYTES).min(backed);
                if !sound {
                    return refuse("the object's allocator metadata is damaged");
                }
                Ok(Block::Large { region, chunk, chunks, bytes })
            }
            CHUNK_LARGE | CHUNK_LARGE_BODY => refuse("it points into the middle of a large block"),
            state if (1..=CLASSES as u8).contains(&state) => {
                let class = state as usize - 1;
                let size = block_bytes(class) as u64;
                let index = (offset / size) as u32;
                if !offset.is_multiple_of(size) || index >= blocks_per_slab(class) {
                    return refuse("it points into the middle of a block");
                }
                if record.bitmap[index as usize / 64] >> (index % 64) & 1 == 0 {
                    return refuse("the block is free; was it freed before?");
                }
                Ok(Block::Small { region, chunk, class, index })
            }
            _ => refuse("the object's allocator metadata is damaged"),
        }
    }

    fn usable_size(&self, address: u64) -> Result<usize> {
        Ok(match self.find(address)? {
            Block::Small { class, .. } => block_bytes(class),
            Block::Large { bytes, .. } => bytes.next_multiple_of(PAGE_BYTES) as usize,
        })
    }

    /// True when the block could take its new size where it is.
    fn resize_in_place(
        &mut self,
        ground: &dyn Ground,
        address: u64,
        new_size: usize,
        align: usize,
    ) -> Result<bool> {
        if !address.is_multiple_of(align as u64) {
            return Ok(false);
        }
        match self.find(address)? {
            Block::Small { class, .. } => Ok(class_of(new_size, align) == Some(class)),
            Block::Large { region, chunk, chunks, bytes } => {
                if class_of(new_size, BLOCK_BYTES_MIN).is_some() {
                    return Ok(false);
                }
                let wanted = (new_size as u64).div_ceil(CHUNK_BYTES) as usize;
                let map = self.regions[region].map();
                if wanted > chunks {
                    let more = map.get(chunk + chunks..chunk + wanted);
                    if !more.is_some_and(|m| m.iter().all(|&state| state == CHUNK_FREE)) {
                        return Ok(false);
                    }
                }
                if new_size as u64 > bytes {
                    self.back(ground, region, chunk as u64 * CHUNK_BYTES + new_size as u64)?;
                }
                if wanted > chunks {
                    self.regions[region].set_map(chunk + chunks, wanted - chunks, CHUNK_LARGE_BODY);
                } else if wanted < chunks {
                    self.give_chunks_back(region, chunk + wanted, chunks - wanted);
                }
                let record = self.regions[region].record_mut(chunk);
                record.large_bytes = new_size as u64;
                record.large_chunks = wanted as u64;
                Ok(true)
            }
        }
    }
}
