//! How a block gets from the thread that frees it to the thread that owns its slab.
//!
//! The freeing thread sets a bit of its own (never the slab's bitmap, which is the owner's alone)
//! and, when it is the first since the owner last looked, puts the slab on the owner's stack of
//! slabs to look at. The owner takes the whole stack and moves the bits into the bitmap. Nothing
//! here knows what a slab is, and the module around it says what an atomic is: `tests/handover.rs`
//! has loom try every interleaving.
//!
//! Invariant: while a bit is set, its slab is on a stack, or the thread that set the bit is about
//! to put it there, or the owner is about to read the bit. So no block is forgotten.

use super::atomic::{AtomicPtr, AtomicU64, Ordering, order};

/// Flag of a slab: it is on a stack because other threads freed blocks of it.
pub(super) const HANDED_OVER: u64 = 1;
/// The bits of a slab's flags; above them stands a thread's number.
pub(super) const FLAGS: u64 = 3;

/// What became of a block that was handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handed {
    /// It had been before: freed twice.
    Twice,
    /// The slab has to be put on its owner's stack.
    First,
    /// The slab is on a stack already.
    Further,
}

/// Hands the blocks of `bit` over. One atomic operation while the slab is on a stack.
pub(super) fn hand_over(word: &AtomicU64, bit: u64, flags: &AtomicU64) -> Handed {
    if word.fetch_or(bit, Ordering::SeqCst) & bit != 0 {
        return Handed::Twice;
    }
    // This load, the store above, and the two of the owner (flag cleared, then word read) are
    // ordered one after the other: who finds the flag set can rely on the word being read after.
    order();
    if flags.load(Ordering::SeqCst) & HANDED_OVER != 0
        || flags.fetch_or(HANDED_OVER, Ordering::SeqCst) & HANDED_OVER != 0
    {
        return Handed::Further;
    }
    Handed::First
}

/// Says that the words are read from now on: who hands over later puts the slab on a stack again.
pub(super) fn begin_collecting(flags: &AtomicU64) {
    flags.fetch_and(!HANDED_OVER, Ordering::SeqCst);
    order();
}

/// Writes a thread's number above the flags, which others may be changing. The numbers are changed
/// by one thread at a time.
pub(super) fn write_number(flags: &AtomicU64, number: u64) {
    let before = flags.load(Ordering::Relaxed) & !FLAGS;
    if before != number {
        flags.fetch_xor(before ^ number, Ordering::SeqCst);
    }
}

/// Takes what was handed over.
pub(super) fn collect(word: &AtomicU64) -> u64 {
    match word.load(Ordering::SeqCst) {
        0 => 0,
        _ => word.swap(0, Ordering::SeqCst),
    }
}

/// Has room for the link of a [`Stack`].
pub(super) trait Linked: Sized {
    /// The link; the stack's alone while the value is on one.
    fn link(&self) -> &AtomicPtr<Self>;
}

/// A stack that anybody pushes to and one thread takes as a whole, so that no value can leave and
/// come back between another's look and its change.
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
    /// Pushes what is on no stack and lives as long as the stack does.
    pub(super) fn push(&self, value: &T) {
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            value.link().store(top, Ordering::Relaxed);
            let new = std::ptr::from_ref(value).cast_mut();
            // The values are shared, and changed through atomics only.
            match self.top.compare_exchange_weak(top, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => top = other,
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.top.load(Ordering::Relaxed).is_null()
    }

    /// Takes all; the first, from which the links lead to the others. A link is to be read before
    /// its value can be pushed again.
    pub(super) fn take(&self) -> *const T {
        match self.is_empty() {
            true => std::ptr::null(),
            false => self.top.swap(std::ptr::null_mut(), Ordering::Acquire),
        }
    }
}
