//! What a process knows of one slab: a descriptor in its own memory, beside the object's bitmap.
//!
//! The bitmap is the truth and is changed by the slab's owner alone, without a lock and without an
//! atomic read-modify-write; everything here is derived from it and dies with the process. All
//! fields are atomics so that a thread that frees what it should not, at a moment when the slab
//! changes hands, reads a stale value and never breaks a rule of the language; accesses are plain
//! moves ([`Plain`]).
//!
//! Invariants: `size` is zero exactly while no slab is known to lie in the chunk, and then `owner`
//! is null. [`Slab::used`] is the number of set bits of the bitmap plus the number of blocks that the
//! owner's bin has taken and not handed out ([`Bin`](super::thread::Bin)). A slab is in at most one
//! of: current in its owner's bin, in its owner's list (`listed`), neither. A thread's number stands
//! in `freer` only while the slab is that thread's: the owner writes it, and who takes the slab away
//! from an owner that ended, or gives it back, takes it out again.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use super::classes::{block_bytes, blocks_per_slab, offered_used_max};
use super::handover::{self, FLAGS, HANDED_OVER, Handed, Linked, write_number};
use super::thread::ThreadHeap;

/// Words of a slab's bitmap.
pub(super) const WORDS: usize = 64;
/// Flag of a slab: nothing of it changed since its counts were written, see [`Slab::freer`].
pub(super) const UNTOUCHED: u64 = 2;
const _: () = assert!(HANDED_OVER | UNTOUCHED == FLAGS);
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
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Slab {
    /// Whose it is. Changes under the heap's lock only, and only while it is null or the owner's
    /// thread has ended.
    pub(super) owner: AtomicPtr<ThreadHeap>,
    /// Number of the thread that frees here without looking further, once the owner's thread has
    /// written it; below it the flags [`HANDED_OVER`] and [`UNTOUCHED`]. Freeing takes its time while
    /// this is not just its thread's number.
    pub(super) freer: AtomicU64,
    bitmap: AtomicPtr<u64>,
    /// Blocks in use beyond `notify`, modulo 2^32. The owner's.
    beyond: AtomicU32,
    /// 2^32 by the block size, rounded up: the product with an offset in the chunk has the block's
    /// index in its upper half. Exact, as both factors' errors stay below one part in 2^16.
    reciprocal: AtomicU32,
    /// Bytes of the blocks: less than the chunk where these don't fill it.
    extent: AtomicU32,
    /// The owner has something to do when the count of used blocks falls to this. The owner's.
    notify: AtomicU32,
    /// First address of the chunk; never changes.
    pub(super) address: AtomicU64,
    /// Bytes of a block; zero while there is no slab.
    pub(super) size: AtomicU32,
    pub(super) blocks: AtomicU32,
    /// Blocks from the first on that the file is known to back.
    pub(super) backed: AtomicU32,
    pub(super) class: AtomicU32,

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
    /// No slab, at no place: no address lies in it, and it is never described.
    pub(super) const fn none() -> Slab {
        Slab::at(0)
    }

    /// The descriptor of a chunk that is no slab yet.
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
        self.extent.set(blocks_per_slab(class) * size);
        self.reciprocal.set((1u64 << 32).div_ceil(u64::from(size)) as u32);
        self.backed.set(0);
        self.set_notify(NEVER);
        self.listed.set(false);
        if !self.touched.get() {
            self.freer.fetch_or(UNTOUCHED, Ordering::Relaxed);
        }
        // What was handed over twice at once may have been left behind.
        self.remote().into_iter().flatten().for_each(|word| word.set(0));
        self.size.set(size);
        let words = (0..self.words()).map(|at| self.word(at).get() & self.blocks_of(at));
        self.set_used(words.map(u64::count_ones).sum());
    }

    /// The chunk is no slab any more.
    pub(super) fn forget(&self) {
        self.set_owner(std::ptr::null());
        self.size.set(0);
    }

    /// Gives the slab another owner, whose thread writes its number when it first frees here.
    pub(super) fn set_owner(&self, owner: *const ThreadHeap) {
        write_number(&self.freer, 0);
        self.owner.store(owner.cast_mut(), Ordering::Release);
    }

    /// Has the owner's thread free quickly from now on.
    pub(super) fn set_freer(&self, number: u64) {
        write_number(&self.freer, number);
    }

    /// See the invariants above. The owner's.
    #[inline(always)]
    pub(super) fn used(&self) -> u32 {
        self.beyond.get().wrapping_add(self.notify.get())
    }

    pub(super) fn set_used(&self, used: u32) {
        self.beyond.set(used.wrapping_sub(self.notify.get()));
    }

    /// The owner has something to do when so many blocks are in use.
    pub(super) fn set_notify(&self, notify: u32) {
        let used = self.used();
        self.notify.set(notify);
        self.set_used(used);
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

    /// The free blocks of a word.
    pub(super) fn free_of(&self, at: u32) -> u64 {
        !self.word(at).get() & self.blocks_of(at)
    }

    /// The first word from `from` on that has free blocks, and these.
    pub(super) fn free_word(&self, from: u32) -> Option<(u32, u64)> {
        (from..self.words()).map(|at| (at, self.free_of(at))).find(|(_, free)| *free != 0)
    }

    /// Is the file known to back all blocks of a word?
    pub(super) fn backs_word(&self, at: u32) -> bool {
        (at + 1) * 64 <= self.backed.get() || self.backed.get() >= self.blocks.get()
    }

    /// Index of the block that begins at an address, if one does.
    #[inline(always)]
    pub(super) fn index_of(&self, address: u64) -> Option<u32> {
        let offset = address.wrapping_sub(self.address.get());
        if offset >= u64::from(self.extent.get()) {
            return None;
        }
        let reciprocal = self.reciprocal.get();
        let product = offset * u64::from(reciprocal);
        // With r the reciprocal, s the size and e = r * s - 2^32 < s, an offset of i * s + b has i * e
        // + b * r in the lower half: below 2^16 <= r for a beginning, else from r on.
        ((product as u32) < reciprocal).then_some((product >> 32) as u32)
    }

    /// Frees a block if that is a matter of a bit and a count, for the thread of that number.
    #[inline(always)]
    pub(super) fn free_quickly(&self, address: u64, thread: u64) -> bool {
        if self.freer.get() != thread {
            return false;
        }
        let Some(index) = self.index_of(address) else { return false };
        let beyond = self.beyond.get().wrapping_sub(1);
        // SAFETY: no extent has more blocks than 64 words have bits; else as in `word`.
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
        self.freer.get() & HANDED_OVER != 0
            && self.remote().is_some_and(|remote| {
                remote[index as usize / 64].load(Ordering::Acquire) >> (index % 64) & 1 == 1
            })
    }

    /// Frees a block of a slab that another thread owns.
    pub(super) fn hand_over(&self, index: u32) -> Handed {
        let word = &self.remote_words()[index as usize / 64];
        handover::hand_over(word, 1 << (index % 64), &self.freer)
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
    fn the_beginning_of_a_block_is_told_from_every_other_byte_of_the_chunk_and_around_it() {
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
    fn counts_and_what_they_are_compared_with_are_kept_apart() {
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
