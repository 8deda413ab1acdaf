//! How a block gets from the thread that frees it to the thread that owns its slab.
//!
//! The freeing thread sets a bit of its own (never the slab's bitmap, which is the owner's alone)
//! and, when it is the first since the owner last looked, puts the slab on the owner's stack of
//! slabs to look at. The owner takes the whole stack and moves the bits into the bitmap. Nothing
//! here knows what a slab is, so loom can try every interleaving of it.
//!
//! Invariant: while a bit is set, its slab is on a stack, or the thread that set the bit is about
//! to put it there, or the owner is about to read the bit. So no block is forgotten.

#[cfg(evermap_loom)]
use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(evermap_loom))]
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Flag of a slab: it is on a stack because other threads freed blocks of it.
pub(super) const HANDED_OVER: u32 = 1;

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
pub(super) fn hand_over(word: &AtomicU64, bit: u64, flags: &AtomicU32) -> Handed {
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
pub(super) fn begin_collecting(flags: &AtomicU32) {
    flags.fetch_and(!HANDED_OVER, Ordering::SeqCst);
    order();
}

/// Takes what was handed over.
pub(super) fn collect(word: &AtomicU64) -> u64 {
    match word.load(Ordering::SeqCst) {
        0 => 0,
        _ => word.swap(0, Ordering::SeqCst),
    }
}

/// Loom takes sequentially consistent accesses for weaker ones and knows only fences.
#[inline]
fn order() {
    #[cfg(evermap_loom)]
    fence(Ordering::SeqCst);
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

#[cfg(all(test, evermap_loom))]
mod tests {
    use super::*;
    use loom::sync::Arc;

    #[derive(Default)]
    struct Node {
        flags: AtomicU32,
        word: AtomicU64,
        link: AtomicPtr<Node>,
    }

    impl Linked for Node {
        fn link(&self) -> &AtomicPtr<Node> {
            &self.link
        }
    }

    #[derive(Default)]
    struct Shared {
        nodes: [Node; 2],
        stack: Stack<Node>,
    }

    fn free(shared: &Shared, node: usize, bit: u64) -> bool {
        let node = &shared.nodes[node];
        match hand_over(&node.word, bit, &node.flags) {
            Handed::Twice => return false,
            Handed::First => shared.stack.push(node),
            Handed::Further => {}
        }
        true
    }

    fn take_all(shared: &Shared) -> u32 {
        let mut count = 0;
        let mut next = shared.stack.take();
        // SAFETY: what is on the stack are the nodes beside it.
        while let Some(node) = unsafe { next.as_ref() } {
            next = node.link.load(Ordering::Relaxed);
            begin_collecting(&node.flags);
            count += collect(&node.word).count_ones();
        }
        count
    }

    /// What the threads free while the owner collects, then what is left.
    fn all_is_collected(frees: [&'static [(usize, u64)]; 2]) {
        let expected: u32 = frees.iter().map(|f| f.len() as u32).sum();
        loom::model(move || {
            let shared = Arc::new(Shared::default());
            let threads: Vec<_> = frees
                .iter()
                .map(|frees| {
                    let shared = Arc::clone(&shared);
                    loom::thread::spawn(move || {
                        frees.iter().for_each(|(node, bit)| assert!(free(&shared, *node, *bit)))
                    })
                })
                .collect();
            let mut count = take_all(&shared);
            for thread in threads {
                thread.join().unwrap();
            }
            count += take_all(&shared);
            assert_eq!(count, expected);
        });
    }

    #[test]
    fn no_block_is_forgotten_when_two_threads_free_into_one_slab() {
        all_is_collected([&[(0, 1)], &[(0, 2)]]);
    }

    #[test]
    fn no_block_is_forgotten_when_two_threads_free_into_two_slabs() {
        all_is_collected([&[(0, 1), (1, 1)], &[(0, 2)]]);
    }

    #[test]
    fn one_of_two_threads_that_free_the_same_block_is_refused() {
        loom::model(|| {
            let shared = Arc::new(Shared::default());
            let other = Arc::clone(&shared);
            let thread = loom::thread::spawn(move || free(&other, 0, 4));
            let here = free(&shared, 0, 4);
            assert!(here != thread.join().unwrap());
            assert_eq!(take_all(&shared), 1);
        });
    }
}
