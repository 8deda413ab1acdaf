//! Every interleaving of threads that free blocks of a slab with its owner collecting them, by loom.
//!
//! Compiled only with `--cfg evermap_loom`, by `make test-races`. Loom knows no total order of
//! sequentially consistent accesses, so fences stand in for it, which order no more than they do:
//! what is shown is that the protocol works if the four accesses are ordered as the code asks.
#![cfg(evermap_loom)]
#![allow(clippy::unwrap_used)]

use handover::{FLAGS, Handed, Linked, Stack, begin_collecting, collect, hand_over, write_number};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

mod atomic {
    pub(super) use loom::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};

    pub(super) fn order() {
        fence(Ordering::SeqCst);
    }
}

#[allow(dead_code)]
#[path = "../src/alloc/handover.rs"]
mod handover;

#[derive(Default)]
struct Node {
    flags: AtomicU64,
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
            .into_iter()
            .map(|frees| {
                let shared = Arc::clone(&shared);
                loom::thread::spawn(move || {
                    frees.iter().for_each(|(node, bit)| assert!(free(&shared, *node, *bit)))
                })
            })
            .collect();
        // Without this, loom has the owner look before the others have done anything, always.
        loom::thread::yield_now();
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

#[test]
fn the_owner_writes_its_number_beside_flags_that_others_set() {
    loom::model(|| {
        let shared = Arc::new(Shared::default());
        let other = Arc::clone(&shared);
        let thread = loom::thread::spawn(move || assert!(free(&other, 0, 1)));
        let flags = &shared.nodes[0].flags;
        write_number(flags, 5 * (FLAGS + 1));
        loom::thread::yield_now();
        let before = take_all(&shared);
        write_number(flags, 6 * (FLAGS + 1));
        thread.join().unwrap();
        // While a block waits, the flag is there, and freeing takes its time.
        let waits = u64::from(before == 0);
        assert_eq!(flags.load(Ordering::Relaxed), 6 * (FLAGS + 1) + waits);
        assert_eq!(before + take_all(&shared), 1);
        assert_eq!(flags.load(Ordering::Relaxed), 6 * (FLAGS + 1));
    });
}
