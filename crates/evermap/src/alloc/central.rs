//! What all threads of a heap share, behind its lock: the regions with their chunk maps, which
//! chunks are free, large blocks, and who owns which slab.
//!
//! A thread comes here once a slab, for large blocks, and to free into a slab that nobody owns.
//! Every change of the chunk map and of a slab's owner is made here.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tracing::error;

use super::Ground;
use super::chunks::FreeChunks;
use super::classes::{CLASSES, block_bytes, blocks_per_slab, class_of, offered_used_max};
use super::directory::Directory;
use super::handover::{HANDED_OVER, begin_collecting};
use super::holes::is_free;
use super::region::Region;
use super::slab::{Plain, Slab, UNTOUCHED, WORDS};
use super::thread::{Then, ThreadHeap};
use crate::error::{Error, Result};
use crate::format::{
    BLOCK_BYTES_MIN, CHUNK_BYTES, CHUNK_FREE, CHUNK_FULL, CHUNK_HOLE, CHUNK_LARGE,
    CHUNK_LARGE_BODY, PAGE_BYTES, RegionRecord,
};

#[derive(Debug)]
pub(super) struct Central {
    pub(super) regions: Vec<Region>,
    free: FreeChunks,
    /// From which chunk on slabs of each class that an earlier session left may still be found in
    /// the map. Each chunk is looked at once: later slabs are known to the threads that used them.
    unseen: [(usize, usize); CLASSES],
    /// Regions that an earlier session left.
    regions_found: usize,
    pub(super) threads: Vec<Arc<ThreadHeap>>,
}

/// A block found by its address.
pub(super) enum Block {
    Small { region: usize, chunk: usize, class: usize },
    Large { region: usize, chunk: usize, chunks: usize, bytes: u64 },
}

pub(super) fn refuse<T>(address: u64, why: &'static str) -> Result<T> {
    Err(Error::InvalidFree { address, why })
}

pub(super) const IN_THE_MIDDLE: &str = "it points into the middle of a block";
pub(super) const IS_FREE: &str = "the block is free; was it freed before?";
const DAMAGED: &str = "the object's allocator metadata is damaged";

/// What the map says of a slab with so many blocks in use.
fn slab_state(class: usize, used: u32) -> u8 {
    let state = 1 + class as u8;
    match used <= offered_used_max(blocks_per_slab(class)) {
        true => state,
        false => state | CHUNK_FULL,
    }
}

impl Central {
    /// # Safety
    /// As [`Heap::new`](super::Heap::new).
    pub(super) unsafe fn new(records: &[RegionRecord]) -> Central {
        let regions: Vec<Region> = records
            .iter()
            .enumerate()
            // SAFETY: passed on from the caller.
            .map(|(i, record)| unsafe { Region::new(record, i == 0) })
            .collect();
        Central {
            free: FreeChunks::new(regions.len()),
            unseen: [(0, 0); CLASSES],
            regions_found: regions.len(),
            threads: Vec::new(),
            regions,
        }
    }

    /// A thread heap for a thread that has none: one whose thread has ended, if there is any.
    pub(super) fn join(&mut self) -> Arc<ThreadHeap> {
        if let Some(thread) = self.threads.iter().find(|t| t.abandoned.load(Ordering::Acquire)) {
            thread.abandoned.store(false, Ordering::Relaxed);
            return Arc::clone(thread);
        }
        let thread = Arc::new(ThreadHeap::default());
        self.threads.push(Arc::clone(&thread));
        thread
    }

    /// A slab of `class` with free blocks, owned by `me` and not current: one of its own, else one
    /// of a thread that ended, else one that an earlier session left, else a fresh one.
    pub(super) fn obtain<'d>(
        &mut self,
        directory: &'d Directory,
        ground: &dyn Ground,
        me: &'d ThreadHeap,
        class: usize,
    ) -> Result<&'d Slab> {
        self.collect(me, false);
        if let Some(slab) = me.listed(class) {
            return Ok(slab);
        }
        self.adopt_from_the_ended(me, class);
        if let Some(slab) = me.listed(class) {
            return Ok(slab);
        }
        while let Some((region, chunk)) = self.next_left(class) {
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
        let (region, chunk) = self.take_chunks(ground, 1, 0, CHUNK_BYTES)?;
        let record = self.regions[region].record(chunk);
        record.set_blocks(blocks_per_slab(class));
        record.set_used(0);
        record.set_carved(0);
        let slab = directory.find_or_make(self.regions[region].chunk_address(chunk));
        self.describe(slab, (region, chunk), class);
        for at in 0..WORDS as u32 {
            // Zero but for damage: a slab is given back empty.
            if slab.word(at).get() != 0 {
                slab.word(at).set(0);
            }
        }
        slab.set_used(0);
        self.regions[region].set_map(chunk, 1, slab_state(class, 0));
        self.adopt(slab, me);
        Ok(slab)
    }

    /// The next chunk that the map had as a slab of `class` with a useful share of free blocks when
    /// the heap was opened. It may be another slab by now.
    fn next_left(&mut self, class: usize) -> Option<(usize, usize)> {
        let (region, from) = &mut self.unseen[class];
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
        // SAFETY: the record's bitmap, mapped as long as the heap lives.
        unsafe { slab.describe(class, (region, chunk), bitmap) };
    }

    /// Makes a slab `me`'s that nobody owns, or a thread heap whose thread has ended.
    pub(super) fn adopt(&mut self, slab: &Slab, me: &ThreadHeap) {
        // SAFETY: thread heaps live as long as the heap.
        if let Some(before) = unsafe { slab.owner.get().as_ref() } {
            before.release(slab);
        }
        report(slab, slab.collect());
        slab.set_owner(me);
        me.file(slab);
    }

    /// Adopts slabs of threads that ended until one has a useful share of free blocks.
    fn adopt_from_the_ended(&mut self, me: &ThreadHeap, class: usize) {
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

    /// Moves what other threads freed into the bitmaps of the slabs on a thread heap's stack. The
    /// thread heap is the caller's, or abandoned; when all is `quiet`, anybody's.
    pub(super) fn collect(&mut self, thread: &ThreadHeap, quiet: bool) {
        let mut next = thread.pending.take();
        // SAFETY: stacks hold descriptors that the heap keeps.
        while let Some(slab) = unsafe { next.as_ref() } {
            next = super::handover::Linked::link(slab).load(Ordering::Relaxed);
            begin_collecting(&slab.freer);
            // SAFETY: thread heaps live as long as the heap.
            let Some(owner) = (unsafe { slab.owner.get().as_ref() }) else { continue };
            let ours = std::ptr::eq(owner, thread) || owner.abandoned.load(Ordering::Acquire);
            if ours || quiet {
                report(slab, slab.collect());
                owner.touch(slab);
                if owner.after_freeing(slab) == Then::GiveBack {
                    self.give_slab_back(slab);
                }
            } else if slab.freer.fetch_or(HANDED_OVER, Ordering::SeqCst) & HANDED_OVER == 0 {
                // It changed hands while it was on its way to the stack.
                owner.pending.push(slab);
            }
        }
    }

    /// A slab that its owner released because it holds nothing.
    pub(super) fn give_slab_back(&mut self, slab: &Slab) {
        slab.forget();
        self.give_chunks_back(slab.region.get() as usize, slab.chunk.get() as usize, 1);
    }

    pub(super) fn give_chunks_back(&mut self, region: usize, chunk: usize, chunks: usize) {
        self.regions[region].set_map(chunk, chunks, CHUNK_FREE);
        self.free.give(region, chunk, chunks);
    }

    /// Finds `chunks` free chunks and backs `bytes` of them with the file.
    fn take_chunks(
        &mut self,
        ground: &dyn Ground,
        chunks: usize,
        bytes: u64,
        align_bytes: u64,
    ) -> Result<(usize, usize)> {
        let mut found = self.free.find(&self.regions, chunks, align_bytes);
        if found.is_none() {
            let spare = (align_bytes / CHUNK_BYTES).saturating_sub(1);
            let record = ground.add_region(chunks as u64 + spare)?;
            // SAFETY: the ground mapped the region writable for this heap and zeroed it.
            let region = unsafe { Region::new(&record, false) };
            self.free.add_region(region.chunks());
            self.regions.push(region);
            found = self.free.find(&self.regions, chunks, align_bytes);
        }
        let Some((region, chunk)) = found else {
            let (bytes, align) = (chunks as u64 * CHUNK_BYTES, align_bytes);
            return Err(Error::BadAllocation { bytes, align, why: "the new region is too small" });
        };
        let at = chunk as u64 * CHUNK_BYTES;
        let end = (at + chunks as u64 * CHUNK_BYTES).min(self.regions[region].backed());
        // A hole may lie behind the file's end, which was cut since: backing it reserves it.
        if at < end && self.regions[region].map()[chunk..chunk + chunks].contains(&CHUNK_HOLE) {
            ground.refill(region, at, end - at)?;
        }
        self.back(ground, region, at + bytes)?;
        self.free.take(region, chunk, chunks);
        Ok((region, chunk))
    }

    /// Backs free chunks that follow one another, `bytes` of them.
    pub(super) fn reserve(&mut self, ground: &dyn Ground, bytes: u64) -> Result<()> {
        let chunks = bytes.div_ceil(CHUNK_BYTES).max(1) as usize;
        let whole = chunks as u64 * CHUNK_BYTES;
        let (region, chunk) = self.take_chunks(ground, chunks, whole, CHUNK_BYTES)?;
        self.free.give(region, chunk, chunks);
        Ok(())
    }

    /// Backs a region with the file up to `data_bytes`; gives the bytes that are backed then.
    pub(super) fn back(
        &mut self,
        ground: &dyn Ground,
        region: usize,
        data_bytes: u64,
    ) -> Result<u64> {
        if data_bytes > self.regions[region].backed() {
            let backed = ground.extend(region, data_bytes)?;
            self.regions[region].set_backed(backed);
        }
        Ok(self.regions[region].backed())
    }

    pub(super) fn allocate_large(
        &mut self,
        ground: &dyn Ground,
        size: usize,
        align: usize,
    ) -> Result<u64> {
        let chunks = (size as u64).div_ceil(CHUNK_BYTES).max(1) as usize;
        let align = (align as u64).max(CHUNK_BYTES);
        let (region, chunk) = self.take_chunks(ground, chunks, size as u64, align)?;
        let region = &mut self.regions[region];
        region.set_map(chunk, 1, CHUNK_LARGE);
        region.set_map(chunk + 1, chunks - 1, CHUNK_LARGE_BODY);
        let record = region.record(chunk);
        record.set_large_bytes(size as u64);
        record.set_large_chunks(chunks as u64);
        Ok(region.chunk_address(chunk))
    }

    /// The allocated block that begins at an address.
    pub(super) fn find(&self, address: u64) -> Result<Block> {
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
                    return refuse(address, IN_THE_MIDDLE);
                }
                let words = self.regions[region].record(chunk).bitmap();
                // SAFETY: the index is below the bits of a record; a bitmap is changed through
                // atomics only.
                let word = unsafe { std::sync::atomic::AtomicU64::from_ptr(words.add(index / 64)) };
                match word.get() >> (index % 64) & 1 {
                    0 => refuse(address, IS_FREE),
                    _ => Ok(Block::Small { region, chunk, class }),
                }
            }
            _ => refuse(address, DAMAGED),
        }
    }

    /// Does an allocated block have this address?
    pub(super) fn is_allocated(&self, address: u64) -> bool {
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
                self.find(address - address % CHUNK_BYTES % size).is_ok()
            }
            _ => false,
        }
    }

    /// Chunks and bytes of the large block that begins in a chunk, unless what is known of it is
    /// damaged: the chunks behind must be its body and nobody else's, and the file must have it.
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

    /// True when the large block could take its new size where it is.
    pub(super) fn resize_large(
        &mut self,
        ground: &dyn Ground,
        address: u64,
        new_size: usize,
    ) -> Result<bool> {
        let Block::Large { region, chunk, chunks, bytes } = self.find(address)? else {
            return Ok(false);
        };
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
            self.back(ground, region, chunk as u64 * CHUNK_BYTES + new_size as u64)?;
        }
        if wanted > chunks {
            let more = wanted - chunks;
            self.regions[region].set_map(chunk + chunks, more, CHUNK_LARGE_BODY);
            self.free.take(region, chunk + chunks, more);
        } else if wanted < chunks {
            self.give_chunks_back(region, chunk + wanted, chunks - wanted);
        }
        let record = self.regions[region].record(chunk);
        record.set_large_bytes(new_size as u64);
        record.set_large_chunks(wanted as u64);
        Ok(true)
    }

    /// Writes a slab's counts and its state in the map, or gives it back if it holds nothing; nobody
    /// allocates or frees meanwhile. False when blocks can still be allocated from it without
    /// anybody being told.
    pub(super) fn settle(&mut self, slab: &Slab) -> bool {
        // SAFETY: thread heaps live as long as the heap.
        if let Some(owner) = unsafe { slab.owner.get().as_ref() } {
            let used = slab.used().wrapping_sub(owner.in_hand(slab));
            if used == 0 {
                owner.release(slab);
                self.give_slab_back(slab);
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
        record.set_blocks(slab.blocks.get());
        record.set_used(used);
        // Never more than there are, whatever was read.
        record.set_carved(record.carved().min(slab.blocks.get()).max(slab.top()));
        let state = slab_state(slab.class.get() as usize, used);
        if self.regions[region].map()[chunk] != state {
            self.regions[region].set_map(chunk, 1, state);
        }
    }

    /// End of the last block of each region, a page multiple, from its first chunk.
    pub(super) fn used_data_bytes(&self) -> Vec<u64> {
        self.regions.iter().map(used_data_bytes).collect()
    }
}

/// Says that blocks were freed by two threads at once. It can't be undone, and did no harm yet.
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
    // Damaged metadata can say anything; it never means more than there is.
    bytes.checked_next_multiple_of(PAGE_BYTES).unwrap_or(u64::MAX).min(region.backed())
}
