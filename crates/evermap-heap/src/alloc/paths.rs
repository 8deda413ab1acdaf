//! Slow paths of allocating and freeing, and the heap's part of a commit.
//!
//! They run when a bin is used up, a slab changes its list, another thread's slab is freed
//! into, or a block is large. The fast paths are in `thread`.

use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

use super::central::{Block, Central, IS_FREE, MIDDLE_OF_BLOCK, refuse};
use super::classes::{CLASSES, block_bytes, class_of, quick_class_of};
use super::remote_free::RemoteFree;
use super::slab::{GRANULE_SHIFT, Plain, Slab};
use super::thread::{self, AfterFree, NO_NUMBER, ThreadHeap, find_or_join};
use super::{Heap, HeapStatistics, abort_with, check_request, holes};
use crate::error::{HeapError, Result};
use crate::format::{BLOCK_BYTES_MIN, CHUNK_BYTES, PAGE_BYTES};

impl Heap {
    pub(super) fn lock(&self) -> MutexGuard<'_, Central> {
        self.central.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `act` with this thread's part of the heap.
    fn with_thread<R>(&self, act: impl FnOnce(&ThreadHeap) -> R) -> R {
        if let Some(thread) = self.recent() {
            return act(thread);
        }
        match find_or_join(self.id, || self.lock().join()) {
            // SAFETY: the thread heap belongs to this heap, which keeps it; heap numbers are never
            // reused.
            Some(thread) => act(unsafe { thread.as_ref() }),
            // The thread is ending, and its thread-local list is gone.
            None => {
                let thread = self.lock().join();
                let result = act(&thread);
                thread.abandoned.store(true, Ordering::Release);
                result
            }
        }
    }

    /// Returns this thread's part of the heap if the thread used it recently.
    fn recent(&self) -> Option<&ThreadHeap> {
        // SAFETY: the heap keeps its thread heaps, and heap numbers are never reused.
        thread::recent(self.id).map(|thread| unsafe { thread.as_ref() })
    }

    /// Allocates when the bin is empty, after some blocks of a class, or when the thread used
    /// another heap last.
    #[inline(never)]
    pub(super) fn allocate_slowly(&self, size: usize, align: usize) -> Result<NonNull<u8>> {
        if let Some(class) = quick_class_of(size, align)
            && let Some(thread) = self.recent()
            && let Some(block) = thread.allocate(class).or_else(|| thread.allocate_from_slab(class))
        {
            return Ok(block);
        }
        self.allocate_slowest(size, align)
    }

    #[inline(never)]
    fn allocate_slowest(&self, size: usize, align: usize) -> Result<NonNull<u8>> {
        check_request(size, align)?;
        let block = match class_of(size, align) {
            Some(class) => self.with_thread(|thread| self.allocate_small(thread, class))?,
            None => {
                NonNull::new(self.lock().allocate_large(&*self.source, size, align)? as *mut u8)
            }
        };
        block.ok_or(HeapError::BadAllocation {
            bytes: size as u64,
            align: align as u64,
            why: "the region begins at address zero",
        })
    }

    fn allocate_small(&self, thread: &ThreadHeap, class: usize) -> Result<Option<NonNull<u8>>> {
        loop {
            if let Some(block) = thread.allocate(class) {
                return Ok(Some(block));
            }
            if let Some(slab) = thread.current(class) {
                if self.take_word(thread, slab)? {
                    return Ok(thread.allocate(class));
                }
                thread.leave(class);
            }
            // Blocks that other threads freed come first: their memory is in use already.
            let slab = match thread.listed(class) {
                Some(slab) if thread.pending.is_empty() => slab,
                _ => self.lock().obtain(&self.directory, &*self.source, thread, class)?,
            };
            thread.make_current(slab);
        }
    }

    /// Takes the next free blocks of the current slab into the bin. Lets the file back them.
    fn take_word(&self, thread: &ThreadHeap, slab: &Slab) -> Result<bool> {
        let Some((at, free)) = thread.next_word(slab) else { return Ok(false) };
        let free = self.backed(slab, at, free)?;
        thread.take(slab, at, free);
        Ok(free != 0)
    }

    /// Returns the free blocks of a word that the file backs: at least the first, for which the
    /// object grows if needed. The record, which may be damaged, does not decide how far the file
    /// reaches.
    fn backed(&self, slab: &Slab, at: u32, free: u64) -> Result<u64> {
        let step = slab.granules();
        if !slab.backs_word(at) {
            let before = u64::from(slab.chunk.get()) * CHUNK_BYTES;
            let first_end = at * 64 + free.trailing_zeros() + step;
            let end = before + (u64::from(first_end) << GRANULE_SHIFT);
            let backed = self.lock().back(&*self.source, slab.region.get() as usize, end)?;
            slab.set_backed(backed.saturating_sub(before));
        }
        // The last block that is backed ends with the last granule that is.
        Ok(match (slab.backed.get() + 1).saturating_sub(at * 64 + step) {
            starts @ 0..64 => free & ((1 << starts) - 1),
            _ => free,
        })
    }

    #[cold]
    #[inline(never)]
    pub(super) fn free_or_abort(&self, address: u64) {
        if let Err(error) = self.free_slowly(address) {
            abort_with(&error);
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn free_slowly(&self, address: u64) -> Result<()> {
        self.with_thread(|thread| {
            if let Some(slab) = self.directory.find(address) {
                // The fast path did not find this slab.
                if slab.free_quickly(address, thread::number()) {
                    return Ok(());
                }
                // SAFETY: thread heaps live as long as the heap.
                let owner = unsafe { slab.owner.load(Ordering::Acquire).as_ref() };
                match owner {
                    Some(owner) if std::ptr::eq(owner, thread) => {
                        if thread::number() != NO_NUMBER {
                            slab.set_freer(thread::number());
                        }
                        return self.free_own(thread, slab, address);
                    }
                    Some(owner) if !owner.abandoned.load(Ordering::Acquire) => {
                        return free_of_another(owner, slab, address);
                    }
                    _ => {}
                }
            }
            self.free_unowned(thread, address)
        })
    }

    fn free_own(&self, thread: &ThreadHeap, slab: &Slab, address: u64) -> Result<()> {
        let granule = allocated_granule(slab, address)?;
        if slab.is_remotely_freed(granule) {
            return refuse(address, "another thread freed it before");
        }
        slab.clear(granule);
        slab.set_used(slab.used().wrapping_sub(1));
        thread.touch(slab);
        if thread.after_freeing(slab) == AfterFree::ReturnChunk {
            self.lock().return_slab(slab);
        }
        Ok(())
    }

    /// Frees a large block, or a block of a slab that no living thread owns. The slab is adopted,
    /// so freeing its other blocks is fast.
    fn free_unowned(&self, thread: &ThreadHeap, address: u64) -> Result<()> {
        let mut central = self.lock();
        let (region, chunk, class) = match central.find(&self.directory, address)? {
            Block::Large { region, chunk, chunks, .. } => {
                central.return_chunks(region, chunk, chunks);
                return Ok(());
            }
            Block::Small { region, chunk, class } => (region, chunk, class),
        };
        let slab = self.directory.find_or_make(address);
        if slab.size.get() == 0 {
            central.describe(slab, (region, chunk), class);
        }
        // SAFETY: thread heaps live as long as the heap.
        match unsafe { slab.owner.get().as_ref() } {
            Some(owner) if !owner.abandoned.load(Ordering::Acquire) => {
                drop(central);
                free_of_another(owner, slab, address)
            }
            _ => {
                central.adopt(slab, thread);
                drop(central);
                self.free_own(thread, slab, address)
            }
        }
    }

    /// Returns the class of the small block at an address, if its slab has a descriptor.
    fn known_class(&self, address: u64) -> Option<usize> {
        let slab = self.directory.find(address).filter(|slab| slab.size.get() != 0)?;
        allocated_granule(slab, address).ok()?;
        Some(slab.class.get() as usize % CLASSES)
    }

    pub(super) fn usable_size_at(&self, address: u64) -> Result<usize> {
        if let Some(class) = self.known_class(address) {
            return Ok(block_bytes(class));
        }
        Ok(match self.lock().find(&self.directory, address)? {
            Block::Small { class, .. } => block_bytes(class),
            Block::Large { bytes, .. } => bytes.next_multiple_of(PAGE_BYTES) as usize,
        })
    }

    /// Resizes a block in place. Returns false if it has to move.
    pub(super) fn resize_in_place(
        &self,
        address: u64,
        new_size: usize,
        align: usize,
    ) -> Result<bool> {
        if !address.is_multiple_of(align as u64) {
            return Ok(false);
        }
        if let Some(class) = self.known_class(address) {
            return Ok(class_of(new_size, align.max(BLOCK_BYTES_MIN)) == Some(class));
        }
        let mut central = self.lock();
        match central.find(&self.directory, address)? {
            Block::Small { class, .. } => Ok(class_of(new_size, align) == Some(class)),
            Block::Large { region, chunk, chunks, bytes } => {
                central.resize_large(&*self.source, (region, chunk, chunks, bytes), new_size)
            }
        }
    }

    /// Writes all volatile state to the object's metadata and makes it exact: blocks freed by other
    /// threads are free, each slab has its bitmap, its counts and its state in the map, and no slab
    /// is empty. Costs up to some microseconds for each slab touched since the last call.
    #[doc(hidden)]
    pub fn flush_thread_caches(&mut self) {
        let mut central = self.lock();
        let threads = central.threads.clone();
        for thread in &threads {
            central.collect(thread, true);
        }
        for thread in &threads {
            for slab in thread.take_touched() {
                // SAFETY: descriptors live as long as the heap.
                let slab = unsafe { &*slab };
                if !central.flush_slab(slab) {
                    thread.keep_touched(slab);
                }
            }
        }
    }

    /// Flushes the thread caches. Returns the bytes of each region's data in use, up to the end of
    /// the last block.
    #[doc(hidden)]
    pub fn flush_and_measure(&mut self) -> Vec<u64> {
        self.flush_thread_caches();
        self.lock().used_data_bytes()
    }

    /// Reserves addresses and disk space for a block of `bytes`.
    ///
    /// # Errors
    /// Same errors as [`Heap::allocate`].
    #[doc(hidden)]
    pub fn reserve(&self, bytes: u64) -> Result<()> {
        check_request(usize::try_from(bytes).unwrap_or(usize::MAX), CHUNK_BYTES as usize)?;
        self.lock().reserve(&*self.source, bytes)
    }

    /// Bytes of free, backed chunks that are not holes, in runs of at least `chunks_min` chunks.
    #[doc(hidden)]
    pub fn free_bytes(&self, chunks_min: usize) -> u64 {
        let central = self.lock();
        central.regions.iter().map(|region| holes::free_bytes(region, chunks_min)).sum()
    }

    /// Marks runs of at least `chunks_min` free, backed chunks as holes. Returns all holes as
    /// (address, bytes).
    #[doc(hidden)]
    pub fn mark_holes(&mut self, chunks_min: usize) -> Vec<(u64, u64)> {
        let mut central = self.lock();
        central.regions.iter_mut().flat_map(|region| holes::mark(region, chunks_min)).collect()
    }

    pub(super) fn count(&self) -> HeapStatistics {
        let central = self.lock();
        HeapStatistics::collect(&central.regions, |address| {
            let slab = self.directory.find(address).filter(|slab| slab.size.get() != 0)?;
            Some(slab.allocated())
        })
    }
}

/// Returns the granule of the allocated block that begins at an address in the slab's chunk.
fn allocated_granule(slab: &Slab, address: u64) -> Result<u32> {
    match slab.start_of(address) {
        Some(granule) if slab.is_set(granule) => Ok(granule),
        Some(_) => refuse(address, IS_FREE),
        None => refuse(address, MIDDLE_OF_BLOCK),
    }
}

fn free_of_another(owner: &ThreadHeap, slab: &Slab, address: u64) -> Result<()> {
    match slab.free_remotely(allocated_granule(slab, address)?) {
        RemoteFree::Twice => return refuse(address, "it was freed before"),
        RemoteFree::Push => owner.pending.push(slab),
        RemoteFree::Queued => {}
    }
    Ok(())
}
