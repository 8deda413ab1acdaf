//! Allocator whose state lives in the object.
//!
//! A commit covers the allocator's metadata together with the data, so an allocation needs no log,
//! flush or fence. Address space is handed out in 64 KiB chunks. A chunk is a slab of blocks of one
//! class, part of a large block, or free. The chunk map holds this state, one byte per chunk, and
//! one record per chunk holds the slab's bitmap. Map and records lie apart from the data:
//! allocating and freeing thousands of scattered blocks dirties a few pages and no free block. A
//! bitmap, unlike a free list inside the blocks, can be checked without following pointers.
//!
//! Each thread owns slabs and allocates from them without a lock. The state of a slab's blocks is
//! in its descriptor in volatile memory. It is read from the object's bitmap when a session first
//! uses the slab, and written there at the start of a commit. The owners and the search positions
//! are only volatile. Opening a heap costs nothing for all of this. `docs/allocator.md` describes
//! the whole design.
//!
//! Layers, each using those below: this file (public interface), `paths` (slow paths), `central`
//! (state that threads share), `thread` (state of each thread), `directory`, `slab`, `remote_free`
//! and `chunks`, then `region` (the metadata in memory) and `classes`.

/// Atomics that `remote_free` is built on. Its loom test replaces them.
mod atomic {
    pub(super) use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

    /// Does nothing here: sequentially consistent accesses are ordered by themselves.
    #[inline(always)]
    pub(super) fn order() {}
}

mod anonymous;
mod central;
mod chunks;
mod classes;
mod directory;
mod holes;
mod paths;
mod region;
mod remote_free;
mod slab;
mod statistics;
mod thread;

#[cfg(test)]
mod tests;

use std::ptr::NonNull;
#[cfg(test)]
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use tracing::error;

use crate::error::{HeapError, Result};
use crate::format::RegionRecord;
use central::Central;
use classes::quick_class_of;
pub use classes::{CLASSES, block_bytes, blocks_per_slab, offered_used_max};
use directory::Directory;
pub use holes::is_free;
pub use statistics::{ClassStatistics, HeapStatistics, statistics_of};

/// Largest single block: half the address space of x86-64 programs, a quarter of a guest's. Sums of
/// two cannot overflow.
const ALLOCATION_BYTES_MAX: usize = 1 << if usize::BITS == 64 { 46 } else { 30 };

/// Provides chunks to a heap. Implemented by the object in which the heap lives.
pub trait ChunkSource: Send + Sync {
    /// Backs a region with the file up to at least `data_bytes` from its first chunk. Returns the
    /// number of bytes backed.
    fn extend(&self, region: usize, data_bytes: u64) -> Result<u64>;
    /// Reserves disk blocks again for a range of a region, given from its first chunk.
    fn refill(&self, region: usize, offset: u64, bytes: u64) -> Result<()>;
    /// Adds a region of at least `chunks` chunks.
    fn add_region(&self, chunks: u64) -> Result<RegionRecord>;
}

/// Number of the next heap. Numbers are never reused, so a thread's cached entry of a dropped heap
/// matches no other heap.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// Allocator of one object during one writer's session. Thread-safe.
///
/// Blocks are aligned to at least 16 bytes. A thread allocates from its own slabs and frees into
/// them without a lock. It takes a lock when a slab is used up, for blocks of more than 32 KiB, and
/// to free into a slab that no living thread owns. Freeing another thread's block is one atomic
/// operation; the block can be allocated again after the owner collects it, at the next commit at
/// the latest. The disk is touched only when the object has to grow.
pub struct Heap {
    /// Number under which threads know this heap.
    id: u64,
    directory: Directory,
    source: Arc<dyn ChunkSource>,
    /// Never replaced while the heap lives, because forks lock it.
    central: Arc<Mutex<Central>>,
    /// Makes allocations fail, for tests of objects that cannot grow.
    #[cfg(test)]
    fail_after: Mutex<Option<usize>>,
}

/// A heap's lock. While it is held, no thread is changing the shared metadata.
#[derive(Clone)]
pub struct HeapLock(Arc<Mutex<Central>>);

/// A held heap lock.
#[allow(dead_code, reason = "it is held, and not looked into")]
pub struct HeldHeapLock<'a>(MutexGuard<'a, Central>);

impl HeapLock {
    /// Locks the heap, for a fork. Returns `None` while another thread holds the lock.
    pub fn try_hold(&self) -> Option<HeldHeapLock<'_>> {
        match self.0.try_lock() {
            Ok(guard) => Some(HeldHeapLock(guard)),
            Err(TryLockError::Poisoned(poisoned)) => Some(HeldHeapLock(poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl std::fmt::Debug for Heap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Heap").field("regions", &self.lock().regions.len()).finish()
    }
}

impl Heap {
    /// Creates a heap over mapped regions.
    ///
    /// # Safety
    /// The regions are mapped writable and stay so while the heap lives. Only the heap changes
    /// their metadata.
    #[doc(hidden)]
    pub unsafe fn new(source: Arc<dyn ChunkSource>, records: &[RegionRecord]) -> Heap {
        // SAFETY: the caller guarantees that the regions are mapped writable and are the heap's
        // alone.
        let central = unsafe { Central::new(records) };
        Heap {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            directory: Directory::default(),
            source,
            central: Arc::new(Mutex::new(central)),
            #[cfg(test)]
            fail_after: Mutex::default(),
        }
    }

    /// Discards the volatile state of all threads, after the regions were rolled back to the last
    /// commit.
    ///
    /// # Safety
    /// The regions in `records` are mapped writable and stay so while the heap lives. Only the heap
    /// changes their metadata.
    #[doc(hidden)]
    pub unsafe fn reload(&mut self, records: &[RegionRecord]) {
        // SAFETY: the caller guarantees that the regions are mapped writable and are the heap's
        // alone.
        let mut fresh = unsafe { Heap::new(Arc::clone(&self.source), records) };
        std::mem::swap(&mut *fresh.lock(), &mut *self.lock());
        std::mem::swap(&mut fresh.central, &mut self.central);
        *self = fresh;
    }

    /// Returns the lock that the heap's threads share, for a fork.
    #[doc(hidden)]
    pub fn shared_lock(&self) -> HeapLock {
        HeapLock(Arc::clone(&self.central))
    }

    /// Allocates if handing out a block of the thread's bin is all that this takes.
    #[doc(hidden)]
    #[inline(always)]
    pub fn allocate_quickly(&self, size: usize, align: usize) -> Option<NonNull<u8>> {
        let class = quick_class_of(size, align)?;
        // SAFETY: the heap keeps its thread heaps, and heap numbers are never reused.
        let thread = unsafe { thread::latest(self.id)?.as_ref() };
        thread.allocate(class)
    }

    /// Frees a block if clearing a bit and updating a count is all that this takes.
    ///
    /// # Safety
    /// Same requirements as [`Heap::try_free`].
    #[doc(hidden)]
    #[inline(always)]
    pub unsafe fn free_quickly(&self, block: NonNull<u8>) -> bool {
        self.free_address_quickly(block.as_ptr() as u64)
    }

    #[inline(always)]
    fn free_address_quickly(&self, address: u64) -> bool {
        self.directory.guess(address).free_quickly(address, thread::number())
    }

    /// Allocates `size` bytes at a multiple of `align`. The contents are unspecified.
    ///
    /// # Errors
    /// `BadAllocation` for impossible sizes and alignments; `DiskFull` and `OutOfAddresses` when
    /// the object cannot grow. The heap is unchanged after an error.
    #[inline]
    pub fn allocate(&self, size: usize, align: usize) -> Result<NonNull<u8>> {
        #[cfg(test)]
        self.count_down()?;
        self.allocate_block(size, align)
    }

    #[inline(always)]
    fn allocate_block(&self, size: usize, align: usize) -> Result<NonNull<u8>> {
        match self.allocate_quickly(size, align) {
            Some(block) => Ok(block),
            None => self.allocate_slowly(size, align),
        }
    }

    /// Allocates `size` zero bytes at a multiple of `align`.
    ///
    /// # Errors
    /// Same errors as [`Heap::allocate`].
    pub fn allocate_zeroed(&self, size: usize, align: usize) -> Result<NonNull<u8>> {
        let block = self.allocate(size, align)?;
        // SAFETY: the block was just allocated with at least `size` bytes and has no other user.
        unsafe { block.as_ptr().write_bytes(0, size) };
        Ok(block)
    }

    /// Frees a block.
    ///
    /// # Safety
    /// `block` came from this heap's object and was not freed since. Nothing refers to it.
    #[inline]
    pub unsafe fn free(&self, block: NonNull<u8>) {
        let address = block.as_ptr() as u64;
        if !self.free_address_quickly(address) {
            self.free_or_abort(address);
        }
    }

    /// Frees a block after checking that it is an allocated block.
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
    /// assert!(matches!(again, Err(evermap::HeapError::InvalidFree { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Safety
    /// If `block` is an allocated block of this object, nothing refers to it: no Rust reference,
    /// and no value in the object that is used again, such as a container whose elements lie there.
    /// Any other pointer is refused.
    ///
    /// # Errors
    /// `InvalidFree` when `block` is not an allocated block of this object: a foreign pointer, a
    /// pointer into the middle of a block, or a block that was freed already.
    #[inline]
    pub unsafe fn try_free(&self, block: NonNull<u8>) -> Result<()> {
        self.free_checked(block)
    }

    /// Safe version of `try_free` for this crate's tests, whose blocks hold no values.
    #[inline]
    pub(crate) fn free_checked(&self, block: NonNull<u8>) -> Result<()> {
        let address = block.as_ptr() as u64;
        match self.free_address_quickly(address) {
            true => Ok(()),
            false => self.free_slowly(address),
        }
    }

    /// Changes a block's size and moves it if needed. Keeps its first `min(old, new)` bytes.
    ///
    /// # Safety
    /// Same requirements as [`Heap::free`]. After success, `block` is invalid unless it was
    /// returned.
    ///
    /// # Errors
    /// Same errors as [`Heap::allocate`]. The block is unchanged after an error.
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
        // SAFETY: the caller gave up the old block, so nothing refers to it.
        unsafe { self.free(block) };
        Ok(new)
    }

    /// Returns the usable bytes of an allocated block, 0 if `block` is not one.
    pub fn usable_size(&self, block: NonNull<u8>) -> usize {
        self.usable_size_at(block.as_ptr() as u64).unwrap_or(0)
    }

    /// Returns true if `length` bytes from `address` lie in the object's data.
    pub fn contains(&self, address: usize, length: usize) -> bool {
        self.lock().regions.iter().any(|region| {
            let start = region.chunk_address(0);
            let end = start + region.backed();
            address as u64 >= start
                && (address as u64).checked_add(length as u64).is_some_and(|e| e <= end)
        })
    }

    /// Returns true if this address lies in an allocated block.
    #[doc(hidden)]
    pub fn is_allocated(&self, address: u64) -> bool {
        self.lock().is_allocated(&self.directory, address)
    }

    /// Counts the allocated blocks. Reads the chunk map and the slabs' records and bitmaps. Exact
    /// while no other thread allocates or frees.
    pub fn statistics(&self) -> HeapStatistics {
        self.count()
    }

    #[cfg(test)]
    fn count_down(&self) -> Result<()> {
        match &mut *self.fail_after.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(0) => {
                Err(HeapError::BadAllocation { bytes: 0, align: 1, why: "the test says so" })
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// Aborts: the caller broke the contract, and continuing would hand out the same memory twice.
#[cold]
#[inline(never)]
fn abort_with(error: &HeapError) -> ! {
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
    Err(HeapError::BadAllocation { bytes: size as u64, align: align as u64, why })
}
