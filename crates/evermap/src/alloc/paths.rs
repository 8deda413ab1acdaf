//! The longer ways of allocating and freeing, and what a commit needs of the heap.
//!
//! Everything here is reached when a word of a bitmap is used up, a slab changes its place, another
//! thread's slab is freed into, or a large block is meant. The short ways are in `thread`.

use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

use super::central::{Block, Central, IN_THE_MIDDLE, IS_FREE, refuse};
use super::classes::{CLASSES, block_bytes, class_of, quick_class_of};
use super::handover::Handed;
use super::slab::{Plain, Slab};
use super::thread::{self, NO_NUMBER, Then, ThreadHeap, find_or_join};
use super::{Heap, HeapStatistics, check_request, give_up, holes};
use crate::error::{Error, Result};
use crate::format::{BLOCK_BYTES_MIN, CHUNK_BYTES, PAGE_BYTES};

impl Heap {
    pub(super) fn lock(&self) -> MutexGuard<'_, Central> {
        self.central.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with this thread's part of the heap.
    fn with_thread<R>(&self, act: impl FnOnce(&ThreadHeap) -> R) -> R {
        if let Some(thread) = self.near() {
            return act(thread);
        }
        match find_or_join(self.id, || self.lock().join()) {
            // SAFETY: the heap's own, which keeps its thread heaps; its number was never another's.
            Some(thread) => act(unsafe { thread.as_ref() }),
            // The thread is ending and remembers nothing any more.
            None => {
                let thread = self.lock().join();
                let result = act(&thread);
                thread.abandoned.store(true, Ordering::Release);
                result
            }
        }
    }

    /// Where a word of a bitmap ends, after tens of blocks of a class.
    #[cold]
    #[inline(never)]
    pub(super) fn allocate_slowly(&self, size: usize, align: usize) -> Result<NonNull<u8>> {
        if let Some(class) = quick_class_of(size, align)
            && let Some(thread) = self.near()
            && let Some(block) = thread.allocate_from_next_word(class)
        {
            return Ok(block);
        }
        self.allocate_more_slowly(size, align)
    }

    #[inline(never)]
    fn allocate_more_slowly(&self, size: usize, align: usize) -> Result<NonNull<u8>> {
        check_request(size, align)?;
        let block = match class_of(size, align) {
            Some(class) => self.with_thread(|thread| self.allocate_small(thread, class))?,
            None => {
                NonNull::new(self.lock().allocate_large(&*self.ground, size, align)? as *mut u8)
            }
        };
        block.ok_or(Error::BadAllocation {
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
            // What other threads freed comes first: memory that is in use already.
            let slab = match thread.listed(class) {
                Some(slab) if thread.pending.is_empty() => slab,
                _ => self.lock().obtain(&self.directory, &*self.ground, thread, class)?,
            };
            thread.make_current(slab);
        }
    }

    /// Takes the next free blocks of the current slab; has the file back them.
    fn take_word(&self, thread: &ThreadHeap, slab: &Slab) -> Result<bool> {
        let Some((at, free)) = thread.next_word(slab) else { return Ok(false) };
        let free = self.backed(slab, at, free)?;
        thread.take(slab, at, free);
        Ok(free != 0)
    }

    /// Those of a word's free blocks that the file backs: at least the first, for which it grows if
    /// it has to. The record, which may be damaged, is not asked how far that is.
    fn backed(&self, slab: &Slab, at: u32, free: u64) -> Result<u64> {
        let first = at * 64 + free.trailing_zeros();
        let size = u64::from(slab.size.get());
        if !slab.backs_word(at) {
            let before = u64::from(slab.chunk.get()) * CHUNK_BYTES;
            let end = before + (u64::from(first) + 1) * size;
            let backed = self.lock().back(&*self.ground, slab.region.get() as usize, end)?;
            let blocks = (backed.saturating_sub(before) / size).min(u64::from(slab.blocks.get()));
            slab.backed.set(blocks as u32);
        }
        Ok(match slab.backed.get().saturating_sub(at * 64) {
            blocks @ 0..64 => free & ((1 << blocks) - 1),
            _ => free,
        })
    }

    #[cold]
    #[inline(never)]
    pub(super) fn free_or_give_up(&self, address: u64) {
        if let Err(error) = self.free_slowly(address) {
            give_up(&error);
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn free_slowly(&self, address: u64) -> Result<()> {
        self.with_thread(|thread| {
            if let Some(slab) = self.directory.find(address) {
                // It was not where the quick way looks.
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
        let index = allocated_index(slab, address)?;
        if slab.is_handed_over(index) {
            return refuse(address, "another thread freed it before");
        }
        slab.clear(index);
        slab.set_used(slab.used().wrapping_sub(1));
        thread.touch(slab);
        if thread.after_freeing(slab) == Then::GiveBack {
            self.lock().give_slab_back(slab);
        }
        Ok(())
    }

    /// Frees a large block, or a block of a slab that no living thread owns: it is adopted, and
    /// freeing its other blocks is quick.
    fn free_unowned(&self, thread: &ThreadHeap, address: u64) -> Result<()> {
        let mut central = self.lock();
        let (region, chunk, class) = match central.find(address)? {
            Block::Large { region, chunk, chunks, .. } => {
                central.give_chunks_back(region, chunk, chunks);
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

    /// Class of the small block that begins at an address, if its slab is known.
    fn known_class(&self, address: u64) -> Option<usize> {
        let slab = self.directory.find(address).filter(|slab| slab.size.get() != 0)?;
        allocated_index(slab, address).ok()?;
        Some(slab.class.get() as usize % CLASSES)
    }

    pub(super) fn usable_size_at(&self, address: u64) -> Result<usize> {
        if let Some(class) = self.known_class(address) {
            return Ok(block_bytes(class));
        }
        Ok(match self.lock().find(address)? {
            Block::Small { class, .. } => block_bytes(class),
            Block::Large { bytes, .. } => bytes.next_multiple_of(PAGE_BYTES) as usize,
        })
    }

    /// True when the block could take its new size where it is.
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
        match central.find(address)? {
            Block::Small { class, .. } => Ok(class_of(new_size, align) == Some(class)),
            Block::Large { .. } => central.resize_large(&*self.ground, address, new_size),
        }
    }

    /// Writes down what threads keep to themselves, so that the object's metadata is exact: what
    /// other threads freed is free, each slab has its counts and its state in the map, and none is
    /// empty. Costs something for each slab that was touched since.
    pub(crate) fn settle(&mut self) {
        let mut central = self.lock();
        let threads = central.threads.clone();
        for thread in &threads {
            central.collect(thread, true);
        }
        for thread in &threads {
            for slab in thread.take_touched() {
                // SAFETY: descriptors live as long as the heap.
                let slab = unsafe { &*slab };
                if !central.settle(slab) {
                    thread.keep_touched(slab);
                }
            }
        }
    }

    /// Settles. Then bytes of each region's data in use, up to the end of the last block.
    pub(crate) fn tidy(&mut self) -> Vec<u64> {
        self.settle();
        self.lock().used_data_bytes()
    }

    /// Makes room for a block of `bytes`: addresses and disk space.
    ///
    /// # Errors
    /// As [`Heap::allocate`].
    pub(crate) fn reserve(&self, bytes: u64) -> Result<()> {
        check_request(usize::try_from(bytes).unwrap_or(usize::MAX), CHUNK_BYTES as usize)?;
        self.lock().reserve(&*self.ground, bytes)
    }

    /// Bytes of free chunks that the file backs and that are no holes, in runs of at least so many.
    pub(crate) fn free_bytes(&self, chunks_min: usize) -> u64 {
        let central = self.lock();
        central.regions.iter().map(|region| holes::free_bytes(region, chunks_min)).sum()
    }

    /// Marks free chunks that the file backs as holes: runs of at least so many chunks. Gives all
    /// holes there are, by address and bytes.
    pub(crate) fn mark_holes(&mut self, chunks_min: usize) -> Vec<(u64, u64)> {
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

/// Index of the allocated block that begins at an address in the slab's chunk.
fn allocated_index(slab: &Slab, address: u64) -> Result<u32> {
    match slab.index_of(address) {
        Some(index) if slab.is_set(index) => Ok(index),
        Some(_) => refuse(address, IS_FREE),
        None => refuse(address, IN_THE_MIDDLE),
    }
}

fn free_of_another(owner: &ThreadHeap, slab: &Slab, address: u64) -> Result<()> {
    match slab.hand_over(allocated_index(slab, address)?) {
        Handed::Twice => return refuse(address, "it was freed before"),
        Handed::First => owner.pending.push(slab),
        Handed::Further => {}
    }
    Ok(())
}
