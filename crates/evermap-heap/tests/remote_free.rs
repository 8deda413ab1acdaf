//! Loom tests: threads free blocks of a slab in every interleaving while its owner collects them.
//!
//! Compiled only with `--cfg evermap_loom`, by `make test-races`. Loom has no total order of
//! sequentially consistent accesses, so fences replace it. They order no more than the accesses do,
//! so the tests show that the protocol works if the four accesses are ordered as the code requires.
#![cfg(evermap_loom)]
#![allow(clippy::unwrap_used)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use remote_free::{
    FLAGS, Linked, RemoteFree, Stack, begin_collecting, collect, free_remotely, write_number,
};

mod atomic {
    pub(super) use loom::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};

    pub(super) fn order() {
        fence(Ordering::SeqCst);
    }
}

#[allow(dead_code)]
#[path = "../src/alloc/remote_free.rs"]
mod remote_free;

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
    match free_remotely(&node.word, bit, &node.flags) {
        RemoteFree::Twice => return false,
        RemoteFree::Push => shared.stack.push(node),
        RemoteFree::Queued => {}
    }
    true
}

fn take_all(shared: &Shared) -> u32 {
    let mut count = 0;
    let mut next = shared.stack.take();
    // SAFETY: the stack holds nodes of `shared`, which outlive this call.
    while let Some(node) = unsafe { next.as_ref() } {
        next = node.link.load(Ordering::Relaxed);
        begin_collecting(&node.flags);
        count += collect(&node.word).count_ones();
    }
    count
}

/// Threads free blocks while the owner collects; afterwards the owner collects the rest.
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
        // Without this, loom always runs the owner before the other threads.
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
fn no_block_is_lost_when_two_threads_free_into_one_slab() {
    all_is_collected([&[(0, 1)], &[(0, 2)]]);
}

#[test]
fn no_block_is_lost_when_two_threads_free_into_two_slabs() {
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
fn writing_the_number_keeps_flags_that_others_set() {
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
        // While a block is pending, the flag is set and frees take the slow path.
        let waits = u64::from(before == 0);
        assert_eq!(flags.load(Ordering::Relaxed), 6 * (FLAGS + 1) + waits);
        assert_eq!(before + take_all(&shared), 1);
        assert_eq!(flags.load(Ordering::Relaxed), 6 * (FLAGS + 1));
    });
}
