//! Passes a freed block from the freeing thread to the thread that owns its slab.
//!
//! The freeing thread sets a bit in a separate bitmap; only the owner changes the slab's own one.
//! If this is the first bit since the owner's last collection, the thread pushes the slab onto the
//! owner's stack of pending slabs. The owner takes the whole stack and moves the bits into the
//! slab's bitmap. This file does not depend on slabs, and the enclosing module chooses the atomics,
//! so `tests/remote_free.rs` can let loom try every interleaving.
//!
//! Invariant: while a bit is set, its slab is on a stack, or the thread that set the bit is about
//! to push it, or the owner is about to read the bit. So no block is lost.

use super::atomic::{AtomicPtr, AtomicU64, Ordering, order};

/// Slab flag: the slab is on a stack because other threads freed blocks of it.
pub(super) const REMOTELY_FREED: u64 = 1;
/// Mask of a slab's flags. The bits above hold a thread's number.
pub(super) const FLAGS: u64 = 3;

/// Result of freeing a block of another thread's slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RemoteFree {
    /// The block was freed before.
    Twice,
    /// The caller must push the slab onto its owner's stack.
    Push,
    /// The slab is already on a stack.
    Queued,
}

/// Marks the block of `bit` as freed. Costs one atomic operation while the slab is on a stack.
pub(super) fn free_remotely(word: &AtomicU64, bit: u64, flags: &AtomicU64) -> RemoteFree {
    if word.fetch_or(bit, Ordering::SeqCst) & bit != 0 {
        return RemoteFree::Twice;
    }
    // This load, the store above, and the owner's two operations (clear the flag, then read the
    // word) are sequentially consistent: a thread that finds the flag set knows that the owner will
    // read the word later.
    order();
    if flags.load(Ordering::SeqCst) & REMOTELY_FREED != 0
        || flags.fetch_or(REMOTELY_FREED, Ordering::SeqCst) & REMOTELY_FREED != 0
    {
        return RemoteFree::Queued;
    }
    RemoteFree::Push
}

/// Clears the slab's flag before its words are read. Later remote frees push the slab again.
pub(super) fn begin_collecting(flags: &AtomicU64) {
    flags.fetch_and(!REMOTELY_FREED, Ordering::SeqCst);
    order();
}

/// Writes a thread's number above the flags, which other threads may be changing. Only one thread
/// at a time changes the number.
pub(super) fn write_number(flags: &AtomicU64, number: u64) {
    let before = flags.load(Ordering::Relaxed) & !FLAGS;
    if before != number {
        flags.fetch_xor(before ^ number, Ordering::SeqCst);
    }
}

/// Takes the bits of a word that other threads set.
pub(super) fn collect(word: &AtomicU64) -> u64 {
    match word.load(Ordering::SeqCst) {
        0 => 0,
        _ => word.swap(0, Ordering::SeqCst),
    }
}

/// Has room for the link of a [`Stack`].
pub(super) trait Linked: Sized {
    /// The link. Only the stack uses it while the value is on one.
    fn link(&self) -> &AtomicPtr<Self>;
}

/// Stack that any thread pushes to and that one thread takes as a whole. No single value is ever
/// popped, so the ABA problem cannot occur.
#[derive(Debug)]
pub(super) struct Stack<T> {
    top: AtomicPtr<T>,
}

impl<T> Default for Stack<T> {
    fn default() -> Self {
        Stack { top: AtomicPtr::new(std::ptr::null_mut()) }
    }
}

impl<T: Linked> Stack<T> {
    /// Pushes a value that is on no stack and lives as long as the stack.
    pub(super) fn push(&self, value: &T) {
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            value.link().store(top, Ordering::Relaxed);
            let new = std::ptr::from_ref(value).cast_mut();
            // Shared values are changed through atomics only.
            match self.top.compare_exchange_weak(top, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => top = other,
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.top.load(Ordering::Relaxed).is_null()
    }

    /// Takes all values and returns the first; links lead to the others. Read a value's link before
    /// the value can be pushed again.
    pub(super) fn take(&self) -> *const T {
        match self.is_empty() {
            true => std::ptr::null(),
            false => self.top.swap(std::ptr::null_mut(), Ordering::Acquire),
        }
    }
}
