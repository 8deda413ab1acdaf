//! Descriptor of one slab, in the process's own memory, with the state of its blocks.
//!
//! While a chunk has a descriptor, [`Slab::starts`] says which of its blocks are allocated: one bit
//! per 16 bytes of the chunk, set where an allocated block begins. One test of one bit thus detects
//! a free block, the middle of a block, and an address behind the last block. The object's bitmap,
//! one bit per block, is read when a slab is described and written when the caches are flushed.
//!
//! Only the slab's owner changes `starts`, without a lock and without an atomic read-modify-write.
//! All fields are atomics: a thread that wrongly frees a block while the slab changes its owner
//! reads a stale value but causes no data race. The accesses are plain moves ([`Plain`]).
//!
//! Invariants: `size` is zero exactly while no slab is known to lie in the chunk, and then `owner`
//! is null. `starts` has bits of the class's blocks only. It differs from the object's bitmap only
//! in slabs of a thread heap's `touched` list. [`Slab::used`] is the number of set bits of `starts`
//! plus the number of blocks that the owner's bin has taken and not handed out
//! ([`Bin`](super::thread::Bin)). A slab is in at most one of: current in its owner's bin, in its
//! owner's list (`listed`), neither. A thread's number is in `freer` only while the slab is that
//! thread's: the owner writes it, and the thread that takes the slab from an ended owner, or
//! returns its chunk, clears it.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use super::classes::{block_bytes, blocks_per_slab, offered_used_max, starts_of_class};
use super::region::WORDS;
use super::remote_free::{self, FLAGS, Linked, REMOTELY_FREED, RemoteFree, write_number};
use super::thread::ThreadHeap;
use crate::format::{BLOCK_BYTES_MIN, CHUNK_BYTES};

/// Granule: the unit of block sizes and addresses. A chunk has 64 words of them.
pub(super) const GRANULE_SHIFT: u32 = BLOCK_BYTES_MIN.trailing_zeros();
const GRANULES: u32 = 64 * WORDS as u32;
const _: () = assert!(CHUNK_BYTES == (GRANULES as u64) << GRANULE_SHIFT);
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

/// A bit per granule of a chunk.
type Bits = [AtomicU64; WORDS];

/// Descriptor of a slab. Freeing uses the first cache line and one of `starts`; the second is used
/// once per slab.
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
    /// First address of the chunk; never changes.
    pub(super) address: AtomicU64,
    /// Blocks in use minus `notify`, modulo 2^32. Only the owner uses it.
    beyond: AtomicU32,
    /// The owner must act when the count of used blocks falls to this value. Only the owner uses
    /// it.
    notify: AtomicU32,
    /// Bytes of a block, zero while the chunk is not a slab.
    pub(super) size: AtomicU32,
    pub(super) blocks: AtomicU32,
    /// Number of leading granules that the file is known to back.
    pub(super) backed: AtomicU32,
    pub(super) class: AtomicU32,
    /// Words of `starts` that allocations use: the search for free blocks goes beyond them only if
    /// few of their blocks are free. Only the owner uses it.
    pub(super) window: AtomicU32,

    pub(super) region: AtomicU32,
    pub(super) chunk: AtomicU32,
    /// The object's bitmap.
    bitmap: AtomicPtr<u64>,
    /// Neighbours in the owner's list. Only the owner uses them.
    pub(super) next: AtomicPtr<Slab>,
    pub(super) previous: AtomicPtr<Slab>,
    pub(super) listed: AtomicBool,
    /// The slab is in a thread heap's `touched` list.
    pub(super) touched: AtomicBool,
    remote: AtomicPtr<Bits>,
    pending: AtomicPtr<Slab>,
    /// Granules at which an allocated block begins.
    starts: Bits,
}
const _: () = assert!(size_of::<Slab>() == 640);

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
            address: AtomicU64::new(address),
            beyond: AtomicU32::new(0),
            notify: AtomicU32::new(0),
            size: AtomicU32::new(0),
            blocks: AtomicU32::new(0),
            backed: AtomicU32::new(0),
            class: AtomicU32::new(0),
            window: AtomicU32::new(0),
            region: AtomicU32::new(0),
            chunk: AtomicU32::new(0),
            bitmap: no(),
            next: no(),
            previous: no(),
            listed: AtomicBool::new(false),
            touched: AtomicBool::new(false),
            remote: no(),
            pending: no(),
            starts: [const { AtomicU64::new(0) }; WORDS],
        }
    }

    /// Describes the slab of `class` that lies in a chunk, from the object's bitmap. It has no
    /// owner yet.
    ///
    /// # Safety
    /// `bitmap` points to the 64 words of the chunk's record, mapped for as long as the slab is in
    /// use.
    pub(super) unsafe fn describe(&self, class: usize, place: (usize, usize), bitmap: *mut u64) {
        self.region.set(place.0 as u32);
        self.chunk.set(place.1 as u32);
        self.class.set(class as u32);
        self.bitmap.set(bitmap);
        self.blocks.set(blocks_per_slab(class));
        self.backed.set(0);
        self.set_notify(NEVER);
        self.listed.set(false);
        if !self.touched.get() {
            self.freer.fetch_or(UNTOUCHED, Ordering::Relaxed);
        }
        // A block that two threads freed at once may have left its bit.
        self.remote().into_iter().flatten().for_each(|word| word.set(0));
        self.size.set(block_bytes(class) as u32);
        self.starts.iter().for_each(|word| word.set(0));
        for at in 0..self.bitmap_words() {
            let mut bits = self.bitmap_word(at).get() & self.block_bits(at);
            while bits != 0 {
                let granule = (at * 64 + bits.trailing_zeros()) * self.granules();
                let word = &self.starts[granule as usize / 64];
                word.set(word.get() | 1 << (granule % 64));
                bits &= bits - 1;
            }
        }
        self.set_used(self.starts.iter().map(|word| word.get().count_ones()).sum());
        self.window.set(self.end().div_ceil(64));
    }

    /// Writes the state of the blocks to the object's bitmap. Stores only to words that change: a
    /// store dirties the page.
    pub(super) fn write_bitmap(&self) {
        let step = self.granules();
        for at in 0..self.bitmap_words() {
            let blocks = (self.blocks.get() - at * 64).min(64);
            let first = at * 64 * step;
            let bits = match step {
                1 => self.starts[at as usize].get(),
                _ => (0..blocks).fold(0, |bits, block| {
                    bits | u64::from(self.is_set(first + block * step)) << block
                }),
            };
            let word = self.bitmap_word(at);
            if word.get() != bits {
                word.set(bits);
            }
        }
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

    /// Granules of a block.
    pub(super) fn granules(&self) -> u32 {
        self.size.get() >> GRANULE_SHIFT
    }

    fn bitmap_words(&self) -> u32 {
        self.blocks.get().div_ceil(64)
    }

    /// Returns one word of the object's bitmap.
    fn bitmap_word(&self, at: u32) -> &AtomicU64 {
        // SAFETY: `describe` was given 64 words, which are changed through atomics only, and the
        // index is below 64. Callers use a slab only while `size` is not zero.
        unsafe { AtomicU64::from_ptr(self.bitmap.get().add(at as usize % WORDS).cast_mut()) }
    }

    /// Returns the bits of a word of the object's bitmap that stand for blocks.
    fn block_bits(&self, at: u32) -> u64 {
        match self.blocks.get().saturating_sub(at * 64) {
            0 => 0,
            left @ 1..64 => (1 << left) - 1,
            _ => u64::MAX,
        }
    }

    /// Returns one word of the granules at which an allocated block begins.
    #[inline(always)]
    pub(super) fn starts(&self, at: u32) -> &AtomicU64 {
        &self.starts[at as usize % WORDS]
    }

    /// Words of `starts` that have blocks.
    pub(super) fn words(&self) -> u32 {
        (self.blocks.get() * self.granules()).div_ceil(64)
    }

    /// Returns the first word in a range that has free blocks, and the granules at which these
    /// begin.
    pub(super) fn free_word(&self, words: std::ops::Range<u32>) -> Option<(u32, u64)> {
        let all = starts_of_class(self.class.get() as usize);
        let words = words.start as usize..(words.end as usize).min(WORDS);
        let range = all.get(words.clone())?.iter().zip(&self.starts[words.clone()]);
        range
            .zip(words)
            .map(|((all, allocated), at)| (at as u32, all & !allocated.get()))
            .find(|(_, free)| *free != 0)
    }

    /// Number of blocks that begin in the words before `at`, rounded up.
    pub(super) fn blocks_before(&self, at: u32) -> u32 {
        (at * 64).div_ceil(self.granules().max(1)).min(self.blocks.get())
    }

    /// Returns the granules of a word at which a free block begins.
    #[inline]
    pub(super) fn free_of(&self, at: u32) -> u64 {
        starts_of_class(self.class.get() as usize)[at as usize % WORDS] & !self.starts(at).get()
    }

    /// Number of leading words all of whose blocks the file is known to back.
    #[inline]
    pub(super) fn backed_words(&self) -> u32 {
        match self.backed.get() {
            GRANULES => WORDS as u32,
            // A block that begins in a word's last granule ends `granules` after its beginning.
            backed => (backed + 1).saturating_sub(self.granules()) / 64,
        }
    }

    /// Returns true if the file is known to back all blocks that begin in a word.
    pub(super) fn backs_word(&self, at: u32) -> bool {
        at < self.backed_words()
    }

    /// Records that the file backs these bytes of the chunk.
    pub(super) fn set_backed(&self, bytes: u64) {
        self.backed.set((bytes >> GRANULE_SHIFT).min(u64::from(GRANULES)) as u32);
    }

    /// Returns the granule of an address that a block can begin at: a multiple of the granule's
    /// size in the chunk.
    #[inline(always)]
    fn granule_of(&self, address: u64) -> Option<u32> {
        // The rotation moves the low bits to the top, where they exceed every granule.
        let granule = address.wrapping_sub(self.address.get()).rotate_right(GRANULE_SHIFT);
        (granule < u64::from(GRANULES)).then_some(granule as u32)
    }

    /// Returns the granule of the block that begins at an address, if one does.
    pub(super) fn start_of(&self, address: u64) -> Option<u32> {
        let granule = self.granule_of(address)?;
        let all = starts_of_class(self.class.get() as usize);
        (all[granule as usize / 64] >> (granule % 64) & 1 == 1).then_some(granule)
    }

    /// Frees a block on the fast path, for the thread with this number. Returns false if the slow
    /// path is needed.
    #[inline(always)]
    pub(super) fn free_quickly(&self, address: u64, thread: u64) -> bool {
        if self.freer.get() != thread {
            return false;
        }
        let Some(granule) = self.granule_of(address) else { return false };
        let word = self.starts(granule / 64);
        let bits = word.get();
        if bits >> (granule % 64) & 1 == 0 {
            return false;
        }
        let beyond = self.beyond.get().wrapping_sub(1);
        if beyond == 0 {
            return false;
        }
        self.beyond.set(beyond);
        word.set(bits & u64::rotate_left(!1, granule % 64));
        true
    }

    /// Returns true if an allocated block begins at this granule.
    #[inline(always)]
    pub(super) fn is_set(&self, granule: u32) -> bool {
        self.starts(granule / 64).get() >> (granule % 64) & 1 == 1
    }

    /// Returns true if an allocated block begins at this address.
    pub(super) fn is_allocated(&self, address: u64) -> bool {
        self.granule_of(address).is_some_and(|granule| self.is_set(granule))
    }

    #[inline(always)]
    pub(super) fn set(&self, granule: u32) {
        let word = self.starts(granule / 64);
        word.set(word.get() | 1 << (granule % 64));
    }

    pub(super) fn clear(&self, granule: u32) {
        let word = self.starts(granule / 64);
        word.set(word.get() & !(1 << (granule % 64)));
    }

    /// Maximum number of blocks in use at which the slab is offered for allocation.
    pub(super) fn offered_used_max(&self) -> u32 {
        offered_used_max(self.blocks.get())
    }

    /// Returns the granule after the last one at which an allocated block begins.
    fn end(&self) -> u32 {
        let last = self.starts.iter().rposition(|word| word.get() != 0);
        last.map_or(0, |at| at as u32 * 64 + 64 - self.starts[at].get().leading_zeros())
    }

    /// Returns the index after the last allocated block.
    pub(super) fn top(&self) -> u32 {
        self.end().div_ceil(self.granules().max(1))
    }

    /// Number of allocated blocks, without those that other threads freed since the last
    /// collection.
    pub(super) fn allocated(&self) -> u32 {
        let remote = self.remote();
        let word = |at: usize| {
            let freed = remote.map_or(0, |remote| remote[at].load(Ordering::Relaxed));
            self.starts[at].get() & !freed
        };
        (0..WORDS).map(|at| word(at).count_ones()).sum()
    }

    fn remote(&self) -> Option<&Bits> {
        // SAFETY: null, or created by `remote_words` and kept as long as the descriptor.
        unsafe { self.remote.load(Ordering::Acquire).as_ref() }
    }

    fn remote_words(&self) -> &Bits {
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
    pub(super) fn is_remotely_freed(&self, granule: u32) -> bool {
        self.freer.get() & REMOTELY_FREED != 0
            && self.remote().is_some_and(|remote| {
                remote[granule as usize / 64].load(Ordering::Acquire) >> (granule % 64) & 1 == 1
            })
    }

    /// Frees a block of a slab that another thread owns.
    pub(super) fn free_remotely(&self, granule: u32) -> RemoteFree {
        let word = &self.remote_words()[granule as usize / 64];
        remote_free::free_remotely(word, 1 << (granule % 64), &self.freer)
    }

    /// Frees the blocks that other threads freed. Returns the number of them that are not
    /// allocated: two threads freed such a block at once.
    pub(super) fn collect(&self) -> u32 {
        let Some(remote) = self.remote() else { return 0 };
        let mut freed = 0;
        let mut strays = 0;
        for (remote, word) in remote.iter().zip(&self.starts) {
            let bits = remote_free::collect(remote);
            let allocated = bits & word.get();
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

    #[test]
    fn only_the_first_byte_of_a_block_has_a_start() {
        let mut bitmap = [u64::MAX; WORDS];
        let chunk = 7 * CHUNK_BYTES;
        let slab = Slab::at(chunk);
        for class in 0..CLASSES {
            // SAFETY: 64 words, which outlive the slab.
            unsafe { slab.describe(class, (0, 0), bitmap.as_mut_ptr()) };
            let size = block_bytes(class) as u64;
            let step = if cfg!(miri) { size / 8 } else { 1 };
            for offset in (0..CHUNK_BYTES).step_by(step as usize) {
                let begins = offset % size == 0 && offset / size < CHUNK_BYTES / size;
                let expected = begins.then_some((offset >> GRANULE_SHIFT) as u32);
                assert_eq!(slab.start_of(chunk + offset), expected, "{size} {offset}");
                // All blocks are allocated.
                assert_eq!(slab.is_allocated(chunk + offset), begins, "{size} {offset}");
            }
            let around = [0, chunk - size, chunk - 1, chunk + CHUNK_BYTES, u64::MAX];
            assert!(around.iter().all(|address| slab.start_of(*address).is_none()));
            assert!(around.iter().all(|address| !slab.is_allocated(*address)));
        }
    }

    #[test]
    fn the_objects_bitmap_survives_describing_and_writing() {
        let mut random: u64 = 1;
        for class in 0..CLASSES {
            let mut bitmap: [u64; WORDS] = std::array::from_fn(|_| {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                random ^ random >> 29
            });
            let before = bitmap;
            let slab = Slab::at(7 * CHUNK_BYTES);
            // SAFETY: 64 words, which outlive the slab.
            unsafe { slab.describe(class, (0, 0), bitmap.as_mut_ptr()) };
            let expected = |at: usize| before[at] & slab.block_bits(at as u32);
            let blocks: u32 = (0..WORDS).map(|at| expected(at).count_ones()).sum();
            assert_eq!((slab.used(), slab.allocated()), (blocks, blocks));
            let top =
                (0..WORDS as u32 * 64).filter(|i| expected(*i as usize / 64) >> (i % 64) & 1 == 1);
            assert_eq!(slab.top(), top.max().map_or(0, |last| last + 1));
            slab.write_bitmap();
            let words = slab.bitmap_words() as usize;
            assert!((0..words).all(|at| slab.bitmap_word(at as u32).get() == expected(at)));
        }
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
