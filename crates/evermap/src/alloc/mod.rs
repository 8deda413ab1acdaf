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
//! Each thread owns slabs and allocates from them without a lock: the object's bitmap is its free
//! list. Everything else (who owns what, where to look next) is volatile and rebuilt at open for
//! nothing. `docs/allocator.md` has the whole of it.
//!
//! Layers, each using those below: this file (what callers see), `paths` (the longer ways), `central`
//! (what threads share), `thread` (what each has), `directory`, `slab`, `handover` and `chunks`, then
//! `region` (the metadata in memory) and `classes`.

/// What `handover` is built on: loom's instead of these when it is tested.
mod atomic {
    pub(super) use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

    /// Sequentially consistent accesses are ordered by themselves.
    #[inline(always)]
    pub(super) fn order() {}
}

mod anonymous;
mod central;
mod chunks;
mod classes;
mod directory;
mod handover;
mod holes;
mod paths;
mod region;
mod slab;
mod statistics;
mod thread;

#[cfg(test)]
mod tests;

use std::ptr::NonNull;
#[cfg(test)]
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tracing::error;

use crate::error::{Error, Result};
use crate::format::RegionRecord;
use central::Central;
use classes::quick_class_of;
pub(crate) use classes::{CLASSES, block_bytes, blocks_per_slab, offered_used_max};
use directory::Directory;
pub(crate) use holes::is_free;
pub(crate) use statistics::statistics_of;
pub use statistics::{ClassStatistics, HeapStatistics};
use thread::ThreadHeap;

/// Largest single block: half the address space of x86-64 programs, and a quarter of a guest's, so
/// that sums do not overflow.
const ALLOCATION_BYTES_MAX: usize = 1 << if usize::BITS == 64 { 46 } else { 30 };

/// Where a heap gets more room from: the object that it lives in.
pub trait Ground: Send + Sync {
    /// Backs a region with the file up to at least `data_bytes` from its first chunk; gives the
    /// bytes that are backed then.
    fn extend(&self, region: usize, data_bytes: u64) -> Result<u64>;
    /// Reserves the file's blocks of a range of a region again, from its first chunk.
    fn refill(&self, region: usize, offset: u64, bytes: u64) -> Result<()>;
    /// Adds a region of at least `chunks` chunks.
    fn add_region(&self, chunks: u64) -> Result<RegionRecord>;
}

/// Number of the next heap: none is given twice, so what a thread remembers of a heap that is gone
/// meets no other.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// The allocator of one object during one writer's session. Thread-safe.
///
/// Blocks are aligned to at least 16 bytes. A thread allocates from slabs of its own and frees into
/// them without a lock; it takes one when a slab is used up, for blocks of more than 32 KiB, and when
/// it frees into a slab that no living thread owns. What another thread owns is freed by one atomic
/// operation, and can be allocated again when the owner comes to look, at the next commit at the latest. The
/// disk is touched only when the object has to grow.
pub struct Heap {
    /// What this heap's threads know it by.
    id: u64,
    directory: Directory,
    ground: Arc<dyn Ground>,
    /// The same for as long as the heap lives: forks lock it.
    central: Arc<Mutex<Central>>,
    /// For tests of what happens when the object cannot grow.
    #[cfg(test)]
    fail_after: Mutex<Option<usize>>,
}

/// A heap's lock. Who holds it meets no thread in the middle of a change of metadata that threads share.
#[derive(Clone)]
pub(crate) struct HeapLock(Arc<Mutex<Central>>);

/// A heap's lock that is held.
#[allow(dead_code, reason = "it is held, and not looked into")]
pub(crate) struct HeapHeld<'a>(MutexGuard<'a, Central>);

#[cfg(not(target_family = "wasm"))]
impl HeapLock {
    /// Locks the heap for a fork; `None` if it cannot be had soon.
    pub(crate) fn hold(&self) -> Option<HeapHeld<'_>> {
        crate::at_fork::lock_for_fork(&self.0).map(HeapHeld)
    }
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
        let central = unsafe { Central::new(records) };
        Heap {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            directory: Directory::default(),
            ground,
            central: Arc::new(Mutex::new(central)),
            #[cfg(test)]
            fail_after: Mutex::default(),
        }
    }

    /// Forgets what is volatile, all threads' as well, after the regions went back to the last
    /// commit.
    ///
    /// # Safety
    /// As [`Heap::new`].
    pub(crate) unsafe fn reload(&mut self, records: &[RegionRecord]) {
        // SAFETY: passed on from the caller.
        let mut anew = unsafe { Heap::new(Arc::clone(&self.ground), records) };
        std::mem::swap(&mut *anew.lock(), &mut *self.lock());
        std::mem::swap(&mut anew.central, &mut self.central);
        *self = anew;
    }

    /// The lock that the heap's threads share, for a fork.
    pub(crate) fn shared_lock(&self) -> HeapLock {
        HeapLock(Arc::clone(&self.central))
    }

    /// This thread's part of the heap, if it used it lately.
    #[inline(always)]
    fn near(&self) -> Option<&ThreadHeap> {
        // SAFETY: the heap keeps its thread heaps, and no other heap ever had this number.
        thread::near(self.id).map(|thread| unsafe { thread.as_ref() })
    }

    /// Frees a block if that is a matter of a bit and a count.
    #[inline(always)]
    fn free_quickly(&self, address: u64) -> bool {
        let thread = thread::number();
        self.directory.guess(address).free_quickly(address, thread)
    }

    /// Allocates `size` bytes at a multiple of `align`; their contents are unspecified.
    ///
    /// # Errors
    /// `BadAllocation` for sizes and alignments no object can meet, `DiskFull` and
    /// `OutOfAddresses` when the object cannot grow; the heap is unchanged then.
    #[inline]
    pub fn allocate(&self, size: usize, align: usize) -> Result<NonNull<u8>> {
        #[cfg(test)]
        self.count_down()?;
        self.allocate_block(size, align)
    }

    #[inline(always)]
    fn allocate_block(&self, size: usize, align: usize) -> Result<NonNull<u8>> {
        if let Some(class) = quick_class_of(size, align)
            && let Some(thread) = self.near()
            && let Some(block) = thread.allocate(class)
        {
            return Ok(block);
        }
        self.allocate_slowly(size, align)
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
    #[inline]
    pub unsafe fn free(&self, block: NonNull<u8>) {
        let address = block.as_ptr() as u64;
        if !self.free_quickly(address) {
            self.free_or_give_up(address);
        }
    }

    /// Frees a block after checking that it is one.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let store = evermap::Store::create_new(directory.path().join("store"))?;
    /// # store.create_raw("heap")?;
    /// let session = store.write_raw("heap")?;
    /// let block = session.heap().allocate(80, 8)?;
    /// // SAFETY: nothing refers to the block.
    /// let (freed, again) = unsafe { (session.heap().try_free(block), session.heap().try_free(block)) };
    /// assert!(freed.is_ok());
    /// assert!(matches!(again, Err(evermap::Error::InvalidFree { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Safety
    /// If `block` is an allocated block of this object, nothing refers to it: no reference that Rust has,
    /// and no value in the object that is used again, such as a container whose elements lie there. Any
    /// other pointer is refused.
    ///
    /// # Errors
    /// `InvalidFree` when `block` is not an allocated block of this object: a pointer from
    /// elsewhere, into the middle of a block, or one that was freed already.
    #[inline]
    pub unsafe fn try_free(&self, block: NonNull<u8>) -> Result<()> {
        self.free_checked(block)
    }

    /// The same without a promise, for this crate's tests and fuzzing, whose blocks hold no values.
    #[inline]
    pub(crate) fn free_checked(&self, block: NonNull<u8>) -> Result<()> {
        let address = block.as_ptr() as u64;
        match self.free_quickly(address) {
            true => Ok(()),
            false => self.free_slowly(address),
        }
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
        if self.resize_in_place(address, new_size, align)? {
            return Ok(block);
        }
        let old_size = self.usable_size_at(address)?;
        let new = self.allocate_block(new_size, align)?;
        // SAFETY: both blocks are allocated, distinct, and hold the bytes copied.
        unsafe { new.as_ptr().copy_from_nonoverlapping(block.as_ptr(), old_size.min(new_size)) };
        // SAFETY: the caller gave the old block up.
        unsafe { self.free(block) };
        Ok(new)
    }

    /// Bytes that may be used of an allocated block; 0 when `block` is not one.
    pub fn usable_size(&self, block: NonNull<u8>) -> usize {
        self.usable_size_at(block.as_ptr() as u64).unwrap_or(0)
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

    /// Does an allocated block have this address? Blocks that threads keep for reuse count until
    /// the heap is settled.
    pub(crate) fn is_allocated(&self, address: u64) -> bool {
        self.lock().is_allocated(address)
    }

    /// Counts what is allocated. Reads the chunk map and the slabs' records and bitmaps. Exact while
    /// no other thread allocates or frees.
    pub fn statistics(&self) -> HeapStatistics {
        self.count()
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
}

/// The caller broke the contract: going on would hand the same memory out twice.
#[cold]
#[inline(never)]
fn give_up(error: &Error) -> ! {
    error!(%error, "free");
    eprintln!("evermap: {error}");
    std::process::abort();
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
