//! Descriptor of one slab, in the process's own memory, next to the object's bitmap.
//!
//! The bitmap is authoritative. Only the slab's owner changes it, without a lock and without an
//! atomic read-modify-write. Everything here is derived from it and dies with the process. All
//! fields are atomics: a thread that wrongly frees a block while the slab changes its owner reads a
//! stale value but causes no data race. The accesses are plain moves ([`Plain`]).
//!
//! Invariants: `size` is zero exactly while no slab is known to lie in the chunk, and then `owner`
//! is null. [`Slab::used`] is the number of set bits of the bitmap plus the number of blocks that
//! the owner's bin has taken and not handed out ([`Bin`](super::thread::Bin)). A slab is in at most
//! one of: current in its owner's bin, in its owner's list (`listed`), neither. A thread's number
//! is in `freer` only while the slab is that thread's: the owner writes it, and the thread that
//! takes the slab from an ended owner, or returns its chunk, clears it.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use super::classes::{block_bytes, blocks_per_slab, offered_used_max};
use super::remote_free::{self, FLAGS, Linked, REMOTELY_FREED, RemoteFree, write_number};
use super::thread::ThreadHeap;

/// Words of a slab's bitmap.
pub(super) const WORDS: usize = 64;
/// Slab flag: unchanged since its counts were written, see [`Slab::freer`].
pub(super) const UNTOUCHED: u64 = 2;
const _: () = assert!(REMOTELY_FREED | UNTOUCHED == FLAGS);
/// Larger than any count of used blocks.
pub(super) const NEVER: u32 = u32::MAX;

/// Relaxed loads and stores of atomics.
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

/// Bits of blocks that other threads freed.
type Remote = [AtomicU64; WORDS];

/// Descriptor of a slab. Freeing reads the first cache line; the second is used once per slab.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Slab {
    /// Owner. Changes only under the heap's lock, and only while it is null or its thread has
    /// ended.
    pub(super) owner: AtomicPtr<ThreadHeap>,
    /// Number of the thread that frees here on the fast path, once the owner's thread has written
    /// it; below it the flags [`REMOTELY_FREED`] and [`UNTOUCHED`]. Freeing takes the slow path
    /// while this differs from the freeing thread's number.
    pub(super) freer: AtomicU64,
    bitmap: AtomicPtr<u64>,
    /// Blocks in use minus `notify`, modulo 2^32. Only the owner uses it.
    beyond: AtomicU32,
    /// 2^32 divided by the block size, rounded up. Its product with an offset in the chunk has the
    /// block's index in the upper half. This is exact, because both factors' errors stay below one
    /// part in 2^16.
    reciprocal: AtomicU32,
    /// Bytes covered by blocks: less than the chunk if the blocks do not fill it.
    extent: AtomicU32,
    /// The owner must act when the count of used blocks falls to this value. Only the owner uses
    /// it.
    notify: AtomicU32,
    /// First address of the chunk; never changes.
    pub(super) address: AtomicU64,
    /// Bytes of a block, zero while the chunk is not a slab.
    pub(super) size: AtomicU32,
    pub(super) blocks: AtomicU32,
    /// Number of leading blocks that the file is known to back.
    pub(super) backed: AtomicU32,
    pub(super) class: AtomicU32,

    pub(super) region: AtomicU32,
    pub(super) chunk: AtomicU32,
    /// Neighbours in the owner's list. Only the owner uses them.
    pub(super) next: AtomicPtr<Slab>,
    pub(super) previous: AtomicPtr<Slab>,
    pub(super) listed: AtomicBool,
    /// The slab is in a thread heap's `touched` list.
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
            // SAFETY: the pointer came from `Box::into_raw` in `remote_words`, and is freed once,
            // here.
            drop(unsafe { Box::from_raw(remote) });
        }
    }
}

impl Slab {
    /// Returns an empty descriptor: no address lies in it, and it is never described.
    pub(super) const fn none() -> Slab {
        Slab::at(0)
    }

    /// Returns the descriptor of a chunk that is not a slab yet.
    pub(super) const fn at(address: u64) -> Slab {
        const fn no<T>() -> AtomicPtr<T> {
            AtomicPtr::new(std::ptr::null_mut())
        }
        Slab {
            owner: no(),
            freer: AtomicU64::new(0),
            bitmap: no(),
            beyond: AtomicU32::new(0),
            reciprocal: AtomicU32::new(0),
            extent: AtomicU32::new(0),
            notify: AtomicU32::new(0),
            address: AtomicU64::new(address),
            size: AtomicU32::new(0),
            blocks: AtomicU32::new(0),
            backed: AtomicU32::new(0),
            class: AtomicU32::new(0),
            region: AtomicU32::new(0),
            chunk: AtomicU32::new(0),
            next: no(),
            previous: no(),
            listed: AtomicBool::new(false),
            touched: AtomicBool::new(false),
            remote: no(),
            pending: no(),
        }
    }

    /// Describes the slab of `class` that lies in a chunk. It has no owner yet.
    ///
    /// # Safety
    /// `bitmap` points to the 64 words of the chunk's record, mapped for as long as the slab is in
    /// use.
    pub(super) unsafe fn describe(&self, class: usize, place: (usize, usize), bitmap: *mut u64) {
        let size = block_bytes(class) as u32;
        self.region.set(place.0 as u32);
        self.chunk.set(place.1 as u32);
        self.class.set(class as u32);
        self.bitmap.set(bitmap);
        self.blocks.set(blocks_per_slab(class));
        self.extent.set(blocks_per_slab(class) * size);
        self.reciprocal.set((1u64 << 32).div_ceil(u64::from(size)) as u32);
        self.backed.set(0);
        self.set_notify(NEVER);
        self.listed.set(false);
        if !self.touched.get() {
            self.freer.fetch_or(UNTOUCHED, Ordering::Relaxed);
        }
        // A block that two threads freed at once may have left its bit.
        self.remote().into_iter().flatten().for_each(|word| word.set(0));
        self.size.set(size);
        let words = (0..self.words()).map(|at| self.word(at).get() & self.block_bits(at));
        self.set_used(words.map(u64::count_ones).sum());
    }

    /// Marks that the chunk is not a slab any more.
    pub(super) fn forget(&self) {
        self.set_owner(std::ptr::null());
        self.size.set(0);
    }

    /// Changes the owner, whose thread writes its number when it first frees here.
    pub(super) fn set_owner(&self, owner: *const ThreadHeap) {
        write_number(&self.freer, 0);
        self.owner.store(owner.cast_mut(), Ordering::Release);
    }

    /// Enables the fast path for the owner's thread.
    pub(super) fn set_freer(&self, number: u64) {
        write_number(&self.freer, number);
    }

    /// Number of used blocks, see the invariants above. Only the owner calls it.
    #[inline(always)]
    pub(super) fn used(&self) -> u32 {
        self.beyond.get().wrapping_add(self.notify.get())
    }

    pub(super) fn set_used(&self, used: u32) {
        self.beyond.set(used.wrapping_sub(self.notify.get()));
    }

    /// Sets the count of used blocks at which the owner must act.
    pub(super) fn set_notify(&self, notify: u32) {
        let used = self.used();
        self.notify.set(notify);
        self.set_used(used);
    }

    pub(super) fn words(&self) -> u32 {
        self.blocks.get().div_ceil(64)
    }

    /// Returns one word of the object's bitmap.
    #[inline(always)]
    pub(super) fn word(&self, at: u32) -> &AtomicU64 {
        // SAFETY: `describe` was given 64 words, which are changed through atomics only, and the
        // index is below 64. Callers use a slab only while `size` is not zero.
        unsafe { AtomicU64::from_ptr(self.bitmap.get().add(at as usize % WORDS).cast_mut()) }
    }

    /// Returns the bits of a word that stand for blocks.
    fn block_bits(&self, at: u32) -> u64 {
        match self.blocks.get().saturating_sub(at * 64) {
            0 => 0,
            left @ 1..64 => (1 << left) - 1,
            _ => u64::MAX,
        }
    }

    /// Returns the free blocks of a word.
    pub(super) fn free_of(&self, at: u32) -> u64 {
        !self.word(at).get() & self.block_bits(at)
    }

    /// Returns the first word from `from` on that has free blocks, and these blocks.
    pub(super) fn free_word(&self, from: u32) -> Option<(u32, u64)> {
        (from..self.words()).map(|at| (at, self.free_of(at))).find(|(_, free)| *free != 0)
    }

    /// Returns true if the file is known to back all blocks of a word.
    pub(super) fn backs_word(&self, at: u32) -> bool {
        (at + 1) * 64 <= self.backed.get() || self.backed.get() >= self.blocks.get()
    }

    /// Returns the index of the block that begins at an address, if one does.
    #[inline(always)]
    pub(super) fn index_of(&self, address: u64) -> Option<u32> {
        let offset = address.wrapping_sub(self.address.get());
        if offset >= u64::from(self.extent.get()) {
            return None;
        }
        let reciprocal = self.reciprocal.get();
        let product = offset * u64::from(reciprocal);
        // With r the reciprocal, s the size and e = r * s - 2^32 < s, the lower half for an offset
        // i * s + b is i * e + b * r: below 2^16 <= r at the beginning of a block, r or more
        // elsewhere.
        ((product as u32) < reciprocal).then_some((product >> 32) as u32)
    }

    /// Frees a block on the fast path, for the thread with this number. Returns false if the slow
    /// path is needed.
    #[inline(always)]
    pub(super) fn free_quickly(&self, address: u64, thread: u64) -> bool {
        if self.freer.get() != thread {
            return false;
        }
        let Some(index) = self.index_of(address) else { return false };
        let beyond = self.beyond.get().wrapping_sub(1);
        // SAFETY: the index is below the number of bits of the 64 words given to `describe`, which
        // are changed through atomics only.
        let word =
            unsafe { AtomicU64::from_ptr(self.bitmap.get().add(index as usize / 64).cast_mut()) };
        let bits = word.get();
        if bits >> (index % 64) & 1 == 0 || beyond == 0 {
            return false;
        }
        word.set(bits & u64::rotate_left(!1, index % 64));
        self.beyond.set(beyond);
        true
    }

    /// Returns true if the bitmap says that the block with this index is allocated.
    #[inline(always)]
    pub(super) fn is_set(&self, index: u32) -> bool {
        self.word(index / 64).get() >> (index % 64) & 1 == 1
    }

    #[inline(always)]
    pub(super) fn clear(&self, index: u32) {
        let word = self.word(index / 64);
        word.set(word.get() & !(1 << (index % 64)));
    }

    /// Maximum number of blocks in use at which the slab is offered for allocation.
    pub(super) fn offered_used_max(&self) -> u32 {
        offered_used_max(self.blocks.get())
    }

    /// Returns the index after the last allocated block.
    pub(super) fn top(&self) -> u32 {
        let last =
            (0..self.words()).rev().find(|at| self.word(*at).get() & self.block_bits(*at) != 0);
        last.map_or(0, |at| {
            at * 64 + 64 - (self.word(at).get() & self.block_bits(at)).leading_zeros()
        })
    }

    /// Number of allocated blocks, without those that other threads freed since the last
    /// collection.
    pub(super) fn allocated(&self) -> u32 {
        let remote = self.remote();
        let word = |at: u32| {
            let freed = remote.map_or(0, |remote| remote[at as usize].load(Ordering::Relaxed));
            self.word(at).get() & self.block_bits(at) & !freed
        };
        (0..self.words()).map(|at| word(at).count_ones()).sum()
    }

    fn remote(&self) -> Option<&Remote> {
        // SAFETY: null, or created by `remote_words` and kept as long as the descriptor.
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
            // SAFETY: from now on the words are kept as long as the descriptor.
            Ok(_) => unsafe { &*new },
            Err(other) => {
                // SAFETY: no other thread has seen `new`; `other` was published by another thread
                // and is kept as long as the descriptor.
                unsafe {
                    drop(Box::from_raw(new));
                    &*other
                }
            }
        }
    }

    /// Returns true if another thread freed the block since the last collection.
    pub(super) fn is_remotely_freed(&self, index: u32) -> bool {
        self.freer.get() & REMOTELY_FREED != 0
            && self.remote().is_some_and(|remote| {
                remote[index as usize / 64].load(Ordering::Acquire) >> (index % 64) & 1 == 1
            })
    }

    /// Frees a block of a slab that another thread owns.
    pub(super) fn free_remotely(&self, index: u32) -> RemoteFree {
        let word = &self.remote_words()[index as usize / 64];
        remote_free::free_remotely(word, 1 << (index % 64), &self.freer)
    }

    /// Moves blocks that other threads freed into the bitmap. Returns the number of them that are
    /// not allocated: two threads freed such a block at once.
    pub(super) fn collect(&self) -> u32 {
        let Some(remote) = self.remote() else { return 0 };
        let mut freed = 0;
        let mut strays = 0;
        for at in 0..WORDS as u32 {
            let bits = remote_free::collect(&remote[at as usize]);
            let word = self.word(at);
            let allocated = bits & word.get() & self.block_bits(at);
            if bits != 0 {
                word.set(word.get() & !allocated);
                freed += allocated.count_ones();
                strays += (bits & !allocated).count_ones();
            }
        }
        self.set_used(self.used().wrapping_sub(freed));
        strays
    }
}

#[cfg(test)]
mod tests {
    use super::super::classes::CLASSES;
    use super::*;
    use crate::format::CHUNK_BYTES;

    #[test]
    fn only_the_first_byte_of_a_block_has_an_index() {
        let mut bitmap = [0u64; WORDS];
        let chunk = 7 * CHUNK_BYTES;
        let slab = Slab::at(chunk);
        for class in 0..CLASSES {
            // SAFETY: 64 words, which outlive the slab.
            unsafe { slab.describe(class, (0, 0), bitmap.as_mut_ptr()) };
            let size = block_bytes(class) as u64;
            let step = if cfg!(miri) { size / 8 } else { 1 };
            for offset in (0..CHUNK_BYTES).step_by(step as usize) {
                let begins = offset % size == 0 && offset / size < CHUNK_BYTES / size;
                let expected = begins.then_some((offset / size) as u32);
                assert_eq!(slab.index_of(chunk + offset), expected, "{size} {offset}");
            }
            let around = [0, chunk - size, chunk - 1, chunk + CHUNK_BYTES, u64::MAX];
            assert!(around.iter().all(|address| slab.index_of(*address).is_none()));
        }
        assert_eq!(Slab::none().index_of(0), None);
    }

    #[test]
    fn the_used_count_survives_a_change_of_notify() {
        let slab = Slab::at(0);
        slab.set_used(100);
        for notify in [NEVER, 0, 87, 200, NEVER] {
            slab.set_notify(notify);
            assert_eq!(slab.used(), 100);
            slab.set_used(99);
            assert_eq!(slab.used(), 99);
            slab.set_used(100);
        }
    }
}
