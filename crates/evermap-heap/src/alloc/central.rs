//! The part of a heap that its threads share, behind the heap's lock: the regions with their chunk
//! maps, the free chunks, large blocks, and the owners of slabs.
//!
//! A thread takes the lock once per slab, for large blocks, and to free into a slab without an
//! owner. All changes to the chunk map and to a slab's owner are made here.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tracing::error;

use super::ChunkSource;
use super::chunks::FreeChunks;
use super::classes::{CLASSES, block_bytes, blocks_per_slab, class_of, offered_used_max};
use super::directory::Directory;
use super::holes::is_free;
use super::region::Region;
use super::remote_free::{REMOTELY_FREED, begin_collecting};
use super::slab::{Plain, Slab, UNTOUCHED};
use super::thread::{AfterFree, ThreadHeap};
use crate::error::{HeapError, Result};
use crate::format::{
    BLOCK_BYTES_MIN, CHUNK_BYTES, CHUNK_FREE, CHUNK_FULL, CHUNK_HOLE, CHUNK_LARGE,
    CHUNK_LARGE_BODY, PAGE_BYTES, RegionRecord,
};

#[derive(Debug)]
pub(super) struct Central {
    pub(super) regions: Vec<Region>,
    free: FreeChunks,
    /// For each class, the position up to which the map was searched for slabs that an earlier
    /// session left. Each chunk is visited once: later slabs are known to the threads that used
    /// them.
    unscanned: [(usize, usize); CLASSES],
    /// Number of regions that an earlier session left.
    regions_found: usize,
    pub(super) threads: Vec<Arc<ThreadHeap>>,
}

/// A block found by its address.
pub(super) enum Block {
    Small { region: usize, chunk: usize, class: usize },
    Large { region: usize, chunk: usize, chunks: usize, bytes: u64 },
}

pub(super) fn refuse<T>(address: u64, why: &'static str) -> Result<T> {
    Err(HeapError::InvalidFree { address, why })
}

pub(super) const MIDDLE_OF_BLOCK: &str = "it points into the middle of a block";
pub(super) const IS_FREE: &str = "the block is free; was it freed before?";
const DAMAGED: &str = "the object's allocator metadata is damaged";

/// Chunk map state of a slab with `used` blocks in use.
fn slab_state(class: usize, used: u32) -> u8 {
    let state = 1 + class as u8;
    match used <= offered_used_max(blocks_per_slab(class)) {
        true => state,
        false => state | CHUNK_FULL,
    }
}

impl Central {
    /// # Safety
    /// The regions are mapped writable and stay so while the value lives; only the heap changes
    /// their metadata.
    pub(super) unsafe fn new(records: &[RegionRecord]) -> Central {
        let regions: Vec<Region> = records
            .iter()
            .enumerate()
            // SAFETY: the caller guarantees that the regions are mapped writable and are the heap's
            // alone.
            .map(|(i, record)| unsafe { Region::new(record, i == 0) })
            .collect();
        Central {
            free: FreeChunks::new(regions.len()),
            unscanned: [(0, 0); CLASSES],
            regions_found: regions.len(),
            threads: Vec::new(),
            regions,
        }
    }

    /// Returns a thread heap for a thread that has none: an abandoned one if there is any, else a
    /// new one.
    pub(super) fn join(&mut self) -> Arc<ThreadHeap> {
        if let Some(thread) = self.threads.iter().find(|t| t.abandoned.load(Ordering::Acquire)) {
            thread.abandoned.store(false, Ordering::Relaxed);
            return Arc::clone(thread);
        }
        let thread = Arc::new(ThreadHeap::default());
        self.threads.push(Arc::clone(&thread));
        thread
    }

    /// Returns a slab of `class` with free blocks, owned by `me` and not current. Tries `me`'s own
    /// slabs, then those of ended threads, then those of an earlier session, then a fresh chunk.
    pub(super) fn obtain<'d>(
        &mut self,
        directory: &'d Directory,
        source: &dyn ChunkSource,
        me: &'d ThreadHeap,
        class: usize,
    ) -> Result<&'d Slab> {
        self.collect(me, false);
        if let Some(slab) = me.listed(class) {
            return Ok(slab);
        }
        self.adopt_abandoned(me, class);
        if let Some(slab) = me.listed(class) {
            return Ok(slab);
        }
        while let Some((region, chunk)) = self.next_leftover(class) {
            let slab = directory.find_or_make(self.regions[region].chunk_address(chunk));
            if slab.size.get() != 0 {
                continue;
            }
            self.describe(slab, (region, chunk), class);
            self.adopt(slab, me);
            if slab.used() < slab.blocks.get() {
                return Ok(slab);
            }
        }
        let (region, chunk) = self.take_chunks(source, 1, 0, CHUNK_BYTES)?;
        let record = self.regions[region].record(chunk);
        record.set_blocks(blocks_per_slab(class));
        record.set_used(0);
        record.set_carved(0);
        // Already zero unless the metadata is damaged: a slab is returned empty.
        record.clear_bitmap();
        let slab = directory.find_or_make(self.regions[region].chunk_address(chunk));
        self.describe(slab, (region, chunk), class);
        self.regions[region].set_map(chunk, 1, slab_state(class, 0));
        self.adopt(slab, me);
        Ok(slab)
    }

    /// Returns the next chunk that held a slab of `class` with a useful share of free blocks when
    /// the heap was opened. The chunk may hold another slab by now.
    fn next_leftover(&mut self, class: usize) -> Option<(usize, usize)> {
        let (region, from) = &mut self.unscanned[class];
        while *region < self.regions_found {
            let map = self.regions.get(*region)?.map();
            if let Some(found) = memchr::memchr(1 + class as u8, map.get(*from..)?) {
                *from += found + 1;
                return Some((*region, *from - 1));
            }
            (*region, *from) = (*region + 1, 0);
        }
        None
    }

    pub(super) fn describe(&self, slab: &Slab, (region, chunk): (usize, usize), class: usize) {
        let bitmap = self.regions[region].record(chunk).bitmap();
        // SAFETY: the bitmap is that of the chunk's record, which is mapped as long as the heap
        // lives.
        unsafe { slab.describe(class, (region, chunk), bitmap) };
    }

    /// Makes `me` the owner of a slab that has none, or whose owner's thread has ended.
    pub(super) fn adopt(&mut self, slab: &Slab, me: &ThreadHeap) {
        // SAFETY: thread heaps live as long as the heap.
        if let Some(before) = unsafe { slab.owner.get().as_ref() } {
            before.release(slab);
        }
        report(slab, slab.collect());
        slab.set_owner(me);
        me.file(slab);
    }

    /// Adopts slabs of ended threads until one has a useful share of free blocks.
    fn adopt_abandoned(&mut self, me: &ThreadHeap, class: usize) {
        let ended: Vec<_> = self
            .threads
            .iter()
            .filter(|thread| thread.abandoned.load(Ordering::Acquire))
            .map(Arc::clone)
            .collect();
        for thread in ended {
            self.collect(&thread, false);
            while let Some(slab) = thread.listed(class).or(thread.current(class)) {
                self.adopt(slab, me);
                if me.listed(class).is_some() {
                    return;
                }
            }
        }
    }

    /// Moves blocks that other threads freed into the bitmaps of the slabs on a thread heap's
    /// stack. The thread heap must be the caller's or abandoned; with `quiet`, no thread uses the
    /// heap and it may be any.
    pub(super) fn collect(&mut self, thread: &ThreadHeap, quiet: bool) {
        let mut next = thread.pending.take();
        // SAFETY: stacks hold descriptors, which live as long as the heap.
        while let Some(slab) = unsafe { next.as_ref() } {
            next = super::remote_free::Linked::link(slab).load(Ordering::Relaxed);
            begin_collecting(&slab.freer);
            // SAFETY: thread heaps live as long as the heap.
            let Some(owner) = (unsafe { slab.owner.get().as_ref() }) else { continue };
            let ours = std::ptr::eq(owner, thread) || owner.abandoned.load(Ordering::Acquire);
            if ours || quiet {
                report(slab, slab.collect());
                owner.touch(slab);
                if owner.after_freeing(slab) == AfterFree::ReturnChunk {
                    self.return_slab(slab);
                }
            } else if slab.freer.fetch_or(REMOTELY_FREED, Ordering::SeqCst) & REMOTELY_FREED == 0 {
                // The slab changed its owner on its way to the stack.
                owner.pending.push(slab);
            }
        }
    }

    /// Returns the chunk of an empty slab that its owner has released.
    pub(super) fn return_slab(&mut self, slab: &Slab) {
        let (region, chunk) = (slab.region.get() as usize, slab.chunk.get() as usize);
        self.regions[region].record(chunk).clear_bitmap();
        slab.forget();
        self.return_chunks(region, chunk, 1);
    }

    pub(super) fn return_chunks(&mut self, region: usize, chunk: usize, chunks: usize) {
        self.regions[region].set_map(chunk, chunks, CHUNK_FREE);
        self.free.give(region, chunk, chunks);
    }

    /// Finds `chunks` free chunks and lets the file back `bytes` of them.
    fn take_chunks(
        &mut self,
        source: &dyn ChunkSource,
        chunks: usize,
        bytes: u64,
        align_bytes: u64,
    ) -> Result<(usize, usize)> {
        let mut found = self.free.find(&self.regions, chunks, align_bytes);
        if found.is_none() {
            let spare = (align_bytes / CHUNK_BYTES).saturating_sub(1);
            let record = source.add_region(chunks as u64 + spare)?;
            // SAFETY: the chunk source mapped the region writable and zeroed, for this heap alone.
            let region = unsafe { Region::new(&record, false) };
            self.free.add_region(region.chunks());
            self.regions.push(region);
            found = self.free.find(&self.regions, chunks, align_bytes);
        }
        let Some((region, chunk)) = found else {
            let (bytes, align) = (chunks as u64 * CHUNK_BYTES, align_bytes);
            return Err(HeapError::BadAllocation {
                bytes,
                align,
                why: "the new region is too small",
            });
        };
        let at = chunk as u64 * CHUNK_BYTES;
        let end = (at + chunks as u64 * CHUNK_BYTES).min(self.regions[region].backed());
        // A hole may lie past a file end that was truncated since; backing it reserves it.
        if at < end && self.regions[region].map()[chunk..chunk + chunks].contains(&CHUNK_HOLE) {
            source.refill(region, at, end - at)?;
        }
        self.back(source, region, at + bytes)?;
        self.free.take(region, chunk, chunks);
        Ok((region, chunk))
    }

    /// Backs a run of free chunks with `bytes` of the file.
    pub(super) fn reserve(&mut self, source: &dyn ChunkSource, bytes: u64) -> Result<()> {
        let chunks = bytes.div_ceil(CHUNK_BYTES).max(1) as usize;
        let whole = chunks as u64 * CHUNK_BYTES;
        let (region, chunk) = self.take_chunks(source, chunks, whole, CHUNK_BYTES)?;
        self.free.give(region, chunk, chunks);
        Ok(())
    }

    /// Backs a region with the file up to `data_bytes`. Returns the number of bytes backed.
    pub(super) fn back(
        &mut self,
        source: &dyn ChunkSource,
        region: usize,
        data_bytes: u64,
    ) -> Result<u64> {
        if data_bytes > self.regions[region].backed() {
            let backed = source.extend(region, data_bytes)?;
            self.regions[region].set_backed(backed);
        }
        Ok(self.regions[region].backed())
    }

    pub(super) fn allocate_large(
        &mut self,
        source: &dyn ChunkSource,
        size: usize,
        align: usize,
    ) -> Result<u64> {
        let chunks = (size as u64).div_ceil(CHUNK_BYTES).max(1) as usize;
        let align = (align as u64).max(CHUNK_BYTES);
        let (region, chunk) = self.take_chunks(source, chunks, size as u64, align)?;
        let region = &mut self.regions[region];
        region.set_map(chunk, 1, CHUNK_LARGE);
        region.set_map(chunk + 1, chunks - 1, CHUNK_LARGE_BODY);
        let record = region.record(chunk);
        record.set_large_bytes(size as u64);
        record.set_large_chunks(chunks as u64);
        Ok(region.chunk_address(chunk))
    }

    /// Finds the allocated block that begins at an address.
    pub(super) fn find(&self, directory: &Directory, address: u64) -> Result<Block> {
        let Some((region, chunk)) = self
            .regions
            .iter()
            .enumerate()
            .find_map(|(i, r)| r.chunk_at(address).map(|chunk| (i, chunk)))
        else {
            return refuse(address, "it lies outside the object");
        };
        let offset = address % CHUNK_BYTES;
        match self.regions[region].map()[chunk] & !CHUNK_FULL {
            state if is_free(state) => {
                refuse(address, "nothing is allocated there; was it freed before?")
            }
            CHUNK_LARGE if offset == 0 => match self.large_at(region, chunk) {
                Some((chunks, bytes)) => Ok(Block::Large { region, chunk, chunks, bytes }),
                None => refuse(address, DAMAGED),
            },
            CHUNK_LARGE | CHUNK_LARGE_BODY => {
                refuse(address, "it points into the middle of a large block")
            }
            state if (1..=CLASSES as u8).contains(&state) => {
                let class = state as usize - 1;
                let index = (offset / block_bytes(class) as u64) as usize;
                let whole = offset.is_multiple_of(block_bytes(class) as u64);
                if !whole || index >= blocks_per_slab(class) as usize {
                    return refuse(address, MIDDLE_OF_BLOCK);
                }
                let described = directory.find(address).filter(|slab| slab.size.get() != 0);
                let allocated = match described {
                    Some(slab) => slab.is_allocated(address),
                    None => self.regions[region].record(chunk).is_set(index),
                };
                match allocated {
                    false => refuse(address, IS_FREE),
                    true => Ok(Block::Small { region, chunk, class }),
                }
            }
            _ => refuse(address, DAMAGED),
        }
    }

    /// Returns true if this address lies in an allocated block.
    pub(super) fn is_allocated(&self, directory: &Directory, address: u64) -> bool {
        let mut regions = self.regions.iter();
        let Some((region, chunk)) =
            regions.find_map(|region| Some((region, region.chunk_at(address)?)))
        else {
            return false;
        };
        match region.map()[chunk] & !CHUNK_FULL {
            CHUNK_LARGE | CHUNK_LARGE_BODY => true,
            state if (1..=CLASSES as u8).contains(&state) => {
                let size = block_bytes(state as usize - 1) as u64;
                self.find(directory, address - address % CHUNK_BYTES % size).is_ok()
            }
            _ => false,
        }
    }

    /// Returns chunks and bytes of the large block that begins in a chunk, or `None` if its record
    /// is damaged: the chunks after the first must be marked as its body, and the file must back
    /// them.
    fn large_at(&self, region: usize, chunk: usize) -> Option<(usize, u64)> {
        let region = &self.regions[region];
        let record = region.record(chunk);
        let (chunks, bytes) = (record.large_chunks(), record.large_bytes());
        let backed = region.backed().saturating_sub(chunk as u64 * CHUNK_BYTES);
        let end = chunk.checked_add(usize::try_from(chunks).ok()?)?;
        let body = region.map().get(chunk + 1..end)?;
        (bytes <= chunks.checked_mul(CHUNK_BYTES)?.min(backed)
            && body.iter().all(|state| *state == CHUNK_LARGE_BODY))
        .then_some((chunks as usize, bytes))
    }

    /// Resizes a large block in place: its region, first chunk, chunks and bytes. Returns false if
    /// it does not fit.
    pub(super) fn resize_large(
        &mut self,
        source: &dyn ChunkSource,
        (region, chunk, chunks, bytes): (usize, usize, usize, u64),
        new_size: usize,
    ) -> Result<bool> {
        if class_of(new_size, BLOCK_BYTES_MIN).is_some() {
            return Ok(false);
        }
        let wanted = (new_size as u64).div_ceil(CHUNK_BYTES) as usize;
        if wanted > chunks {
            let more = self.regions[region].map().get(chunk + chunks..chunk + wanted);
            if !more.is_some_and(|m| m.iter().all(|&state| state == CHUNK_FREE)) {
                return Ok(false);
            }
        }
        if new_size as u64 > bytes {
            self.back(source, region, chunk as u64 * CHUNK_BYTES + new_size as u64)?;
        }
        if wanted > chunks {
            let more = wanted - chunks;
            self.regions[region].set_map(chunk + chunks, more, CHUNK_LARGE_BODY);
            self.free.take(region, chunk + chunks, more);
        } else if wanted < chunks {
            self.return_chunks(region, chunk + wanted, chunks - wanted);
        }
        let record = self.regions[region].record(chunk);
        record.set_large_bytes(new_size as u64);
        record.set_large_chunks(wanted as u64);
        Ok(true)
    }

    /// Writes a slab's bitmap, counts and state in the map, or returns the chunk if the slab is
    /// empty. No thread may allocate or free during the call. Returns false if a thread can still
    /// allocate from the slab without touching it again.
    pub(super) fn flush_slab(&mut self, slab: &Slab) -> bool {
        // SAFETY: thread heaps live as long as the heap.
        if let Some(owner) = unsafe { slab.owner.get().as_ref() } {
            let used = slab.used().wrapping_sub(owner.in_hand(slab));
            if used == 0 {
                owner.release(slab);
                self.return_slab(slab);
            } else {
                self.write_counts(slab, used);
                if owner.in_hand(slab) > 0 {
                    return false;
                }
            }
        }
        slab.touched.set(false);
        slab.freer.fetch_or(UNTOUCHED, Ordering::Relaxed);
        true
    }

    fn write_counts(&mut self, slab: &Slab, used: u32) {
        let (region, chunk) = (slab.region.get() as usize, slab.chunk.get() as usize);
        let record = self.regions[region].record(chunk);
        slab.write_bitmap();
        record.set_blocks(slab.blocks.get());
        record.set_used(used);
        // Clamped to the number of blocks: the record may be damaged.
        record.set_carved(record.carved().min(slab.blocks.get()).max(slab.top()));
        let state = slab_state(slab.class.get() as usize, used);
        if self.regions[region].map()[chunk] != state {
            self.regions[region].set_map(chunk, 1, state);
        }
    }

    /// Returns the end of the last block of each region, a page multiple, relative to its first
    /// chunk.
    pub(super) fn used_data_bytes(&self) -> Vec<u64> {
        self.regions.iter().map(used_data_bytes).collect()
    }
}

/// Logs blocks that two threads freed at once. The second free is ignored and did no harm.
fn report(slab: &Slab, strays: u32) {
    if strays > 0 {
        error!(address = slab.address.get(), blocks = strays, "freed by two threads at once");
    }
}

fn used_data_bytes(region: &Region) -> u64 {
    let Some(last) = region.map().iter().rposition(|&state| !is_free(state)) else {
        return 0;
    };
    let state = region.map()[last];
    let bytes = match state & !CHUNK_FULL {
        CHUNK_LARGE | CHUNK_LARGE_BODY => {
            let first =
                region.map()[..=last].iter().rposition(|&s| s == CHUNK_LARGE).unwrap_or(last);
            (first as u64 * CHUNK_BYTES).saturating_add(region.record(first).large_bytes())
        }
        class if (1..=CLASSES as u8).contains(&class) => {
            let carved = u64::from(region.record(last).carved());
            last as u64 * CHUNK_BYTES + carved * block_bytes(class as usize - 1) as u64
        }
        _ => (last as u64 + 1) * CHUNK_BYTES,
    };
    // Damaged metadata can yield any value, so limit it to the backed bytes.
    bytes.checked_next_multiple_of(PAGE_BYTES).unwrap_or(u64::MAX).min(region.backed())
}
