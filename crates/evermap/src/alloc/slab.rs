//! What a process knows of one slab: a descriptor in its own memory, beside the object's bitmap.
//!
//! The bitmap is the truth and is changed by the slab's owner alone, without a lock and without an
//! atomic read-modify-write; everything here is derived from it and dies with the process. All
//! fields are atomics so that a thread that frees what it should not, at a moment when the slab
//! changes hands, reads a stale value and never breaks a rule of the language; accesses are plain
//! moves ([`Plain`]).
//!
//! Invariants: `size` is zero exactly while no slab is known to lie in the chunk, and then `owner`
//! is null. `used` is the number of set bits of the bitmap plus the number of blocks that the
//! owner's bin has taken and not handed out ([`Bin`](super::thread::Bin)). A slab is in at most one
//! of: current in its owner's bin, in its owner's list (`listed`), neither.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use super::classes::{block_bytes, blocks_per_slab, offered_used_max};
use super::handover::{self, HANDED_OVER, Handed, Linked};
use super::thread::ThreadHeap;
use crate::format::CHUNK_BYTES;

/// Words of a slab's bitmap.
pub(super) const WORDS: usize = 64;
/// Flag of a slab: nothing of it changed since its counts were written, see [`Slab::flags`].
pub(super) const UNTOUCHED: u32 = 2;
/// No number of used blocks.
pub(super) const NEVER: u32 = u32::MAX;

/// Plain reads and writes of atomics.
pub(super) trait Plain {
    type Value;
    fn get(&self) -> Self::Value;
    fn set(&self, value: Self::Value);
}

macro_rules! plain {
    ($($atomic:ty => $value:ty),*) => {$(
        impl Plain for $atomic {
            type Value = $value;
            #[inline(always)]
            fn get(&self) -> $value {
                self.load(Ordering::Relaxed)
            }
            #[inline(always)]
            fn set(&self, value: $value) {
                self.store(value, Ordering::Relaxed)
            }
        }
    )*};
}
plain!(AtomicU32 => u32, AtomicU64 => u64, AtomicBool => bool);

impl<T> Plain for AtomicPtr<T> {
    type Value = *const T;
    #[inline(always)]
    fn get(&self) -> *const T {
        self.load(Ordering::Relaxed)
    }
    #[inline(always)]
    fn set(&self, value: *const T) {
        self.store(value.cast_mut(), Ordering::Relaxed)
    }
}

/// Bits that other threads freed.
type Remote = [AtomicU64; WORDS];

/// A descriptor. The first line is what freeing reads, the second what happens once a slab.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Slab {
    /// Whose it is. Changes under the heap's lock only, and only while it is null or the owner's
    /// thread has ended.
    pub(super) owner: AtomicPtr<ThreadHeap>,
    bitmap: AtomicPtr<u64>,
    /// See the invariants above. The owner's.
    pub(super) used: AtomicU32,
    /// The owner has something to do when `used` falls to this. The owner's.
    pub(super) notify: AtomicU32,
    /// [`HANDED_OVER`] and [`UNTOUCHED`]: freeing takes its time when one is set.
    pub(super) flags: AtomicU32,
    /// 2^32 by the block size, rounded up: the product with an offset in the chunk has the block's
    /// index in its upper half. Exact, as both factors' errors stay below one part in 2^16.
    reciprocal: AtomicU32,
    /// Bytes of a block; zero while there is no slab.
    pub(super) size: AtomicU32,
    pub(super) blocks: AtomicU32,
    /// First address of the chunk.
    pub(super) address: AtomicU64,
    pub(super) class: AtomicU32,
    /// Blocks from the first on that the file is known to back.
    pub(super) backed: AtomicU32,

    pub(super) region: AtomicU32,
    pub(super) chunk: AtomicU32,
    /// Neighbours in the owner's list. The owner's.
    pub(super) next: AtomicPtr<Slab>,
    pub(super) previous: AtomicPtr<Slab>,
    pub(super) listed: AtomicBool,
    /// It is among the touched of a thread heap.
    pub(super) touched: AtomicBool,
    remote: AtomicPtr<Remote>,
    pending: AtomicPtr<Slab>,
}
const _: () = assert!(size_of::<Slab>() == 128);

impl Linked for Slab {
    fn link(&self) -> &AtomicPtr<Slab> {
        &self.pending
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        let remote = *self.remote.get_mut();
        if !remote.is_null() {
            // SAFETY: made by `Box::into_raw` in `remote_words`, once.
            drop(unsafe { Box::from_raw(remote) });
        }
    }
}

impl Slab {
    /// Describes the slab of `class` that lies in a chunk; it has no owner yet.
    ///
    /// # Safety
    /// `bitmap` leads to the 64 words of the chunk's record, mapped for as long as the slab is in
    /// use.
    pub(super) unsafe fn describe(&self, class: usize, place: (usize, usize), bitmap: *mut u64) {
        let size = block_bytes(class) as u32;
        self.region.set(place.0 as u32);
        self.chunk.set(place.1 as u32);
        self.class.set(class as u32);
        self.bitmap.set(bitmap);
        self.blocks.set(blocks_per_slab(class));
        self.reciprocal.set((1u64 << 32).div_ceil(u64::from(size)) as u32);
        self.backed.set(0);
        self.notify.set(NEVER);
        self.listed.set(false);
        if !self.touched.get() {
            self.flags.fetch_or(UNTOUCHED, Ordering::Relaxed);
        }
        // What was handed over twice at once may have been left behind.
        self.remote().into_iter().flatten().for_each(|word| word.set(0));
        self.size.set(size);
        let words = (0..self.words()).map(|at| self.word(at).get() & self.blocks_of(at));
        self.used.set(words.map(u64::count_ones).sum());
    }

    /// The chunk is no slab any more.
    pub(super) fn forget(&self) {
        self.owner.set(std::ptr::null());
        self.size.set(0);
    }

    pub(super) fn words(&self) -> u32 {
        self.blocks.get().div_ceil(64)
    }

    /// One word of the object's bitmap.
    #[inline(always)]
    pub(super) fn word(&self, at: u32) -> &AtomicU64 {
        // SAFETY: `describe` was given 64 words, which are changed through atomics only, and the
        // index stays below that. A slab is asked only while `size` is not zero.
        unsafe { AtomicU64::from_ptr(self.bitmap.get().add(at as usize % WORDS).cast_mut()) }
    }

    /// The bits of a word that are blocks.
    fn blocks_of(&self, at: u32) -> u64 {
        match self.blocks.get().saturating_sub(at * 64) {
            0 => 0,
            left @ 1..64 => (1 << left) - 1,
            _ => u64::MAX,
        }
    }

    /// The first word from `from` on that has free blocks, and these.
    pub(super) fn free_word(&self, from: u32) -> Option<(u32, u64)> {
        (from..self.words())
            .map(|at| (at, !self.word(at).get() & self.blocks_of(at)))
            .find(|(_, free)| *free != 0)
    }

    /// Index of the block that begins at an address in this chunk.
    #[inline(always)]
    pub(super) fn index_of(&self, address: u64) -> Option<u32> {
        let offset = address % CHUNK_BYTES;
        let index = (offset * u64::from(self.reciprocal.get())) >> 32;
        let whole = index * u64::from(self.size.get()) == offset;
        (whole && index < u64::from(self.blocks.get())).then_some(index as u32)
    }

    /// Is the block with this index allocated, as far as the bitmap says?
    #[inline(always)]
    pub(super) fn is_set(&self, index: u32) -> bool {
        self.word(index / 64).get() >> (index % 64) & 1 == 1
    }

    #[inline(always)]
    pub(super) fn clear(&self, index: u32) {
        let word = self.word(index / 64);
        word.set(word.get() & !(1 << (index % 64)));
    }

    /// Most blocks in use with which a slab is offered for allocation.
    pub(super) fn offered_used_max(&self) -> u32 {
        offered_used_max(self.blocks.get())
    }

    /// Index behind the last allocated block.
    pub(super) fn top(&self) -> u32 {
        let last =
            (0..self.words()).rev().find(|at| self.word(*at).get() & self.blocks_of(*at) != 0);
        last.map_or(0, |at| {
            at * 64 + 64 - (self.word(at).get() & self.blocks_of(at)).leading_zeros()
        })
    }

    /// Blocks that are allocated: neither free nor freed by another thread since the owner looked.
    pub(super) fn allocated(&self) -> u32 {
        let remote = self.remote();
        let word = |at: u32| {
            let freed = remote.map_or(0, |remote| remote[at as usize].load(Ordering::Relaxed));
            self.word(at).get() & self.blocks_of(at) & !freed
        };
        (0..self.words()).map(|at| word(at).count_ones()).sum()
    }

    fn remote(&self) -> Option<&Remote> {
        // SAFETY: null, or made by `remote_words` and kept as long as the descriptor.
        unsafe { self.remote.load(Ordering::Acquire).as_ref() }
    }

    fn remote_words(&self) -> &Remote {
        if let Some(remote) = self.remote() {
            return remote;
        }
        let new = Box::into_raw(Box::new([const { AtomicU64::new(0) }; WORDS]));
        let null = std::ptr::null_mut();
        let order = Ordering::AcqRel;
        match self.remote.compare_exchange(null, new, order, Ordering::Acquire) {
            // SAFETY: kept as long as the descriptor from now on.
            Ok(_) => unsafe { &*new },
            Err(other) => {
                // SAFETY: nobody else has seen `new`; `other` is another thread's, kept as above.
                unsafe {
                    drop(Box::from_raw(new));
                    &*other
                }
            }
        }
    }

    /// Was the block freed by another thread since the owner looked?
    pub(super) fn is_handed_over(&self, index: u32) -> bool {
        self.flags.get() & HANDED_OVER != 0
            && self.remote().is_some_and(|remote| {
                remote[index as usize / 64].load(Ordering::Acquire) >> (index % 64) & 1 == 1
            })
    }

    /// Frees a block of a slab that another thread owns.
    pub(super) fn hand_over(&self, index: u32) -> Handed {
        let word = &self.remote_words()[index as usize / 64];
        handover::hand_over(word, 1 << (index % 64), &self.flags)
    }

    /// Moves what other threads freed into the bitmap. Gives the number of blocks that were handed
    /// over and are not allocated: a free that raced with another one of the same block.
    pub(super) fn collect(&self) -> u32 {
        let Some(remote) = self.remote() else { return 0 };
        let mut freed = 0;
        let mut strays = 0;
        for at in 0..WORDS as u32 {
            let bits = handover::collect(&remote[at as usize]);
            let word = self.word(at);
            let allocated = bits & word.get() & self.blocks_of(at);
            if bits != 0 {
                word.set(word.get() & !allocated);
                freed += allocated.count_ones();
                strays += (bits & !allocated).count_ones();
            }
        }
        self.used.set(self.used.get().wrapping_sub(freed));
        strays
    }
}
