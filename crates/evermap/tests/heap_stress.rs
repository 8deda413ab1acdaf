//! Stress test of the allocator with many threads, modelled on mimalloc's and Ralloc's: threadtest,
//! larson, producers and consumers, and a bench of random sizes. Contents are verified. Afterwards
//! the object is committed, checked, reopened and emptied in random order.
//!
//! Small by default. `EVERMAP_STRESS=20` does twenty times as much, `EVERMAP_SEED` sets the seed.
//! `make test-races` runs it under ThreadSanitizer, which needs stores at other addresses.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::mpsc::sync_channel;
use std::sync::{Barrier, Mutex};

use evermap::tools::{CheckOptions, check};
use evermap::{Heap, Options, Session, Store, Window};

const THREADS: usize = 4;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn times() -> usize {
    number("EVERMAP_STRESS").unwrap_or(1) as usize
}

#[derive(Clone)]
struct Random(u64);

impl Random {
    fn of(thread: usize) -> Random {
        let seed = number("EVERMAP_SEED").unwrap_or(1);
        println!("EVERMAP_SEED={seed}");
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (thread as u64 + 1) << 32)
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % end.max(1)
    }
}

/// A block filled with numbers derived from its address and size.
#[derive(Clone, Copy, Debug)]
struct Block {
    address: usize,
    size: usize,
}

impl Block {
    fn new(heap: &Heap, size: usize) -> Block {
        let size = size.max(8);
        let block = Block { address: heap.allocate(size, 16).unwrap().as_ptr() as usize, size };
        for at in 0..size / 8 {
            // SAFETY: just allocated with this size.
            unsafe { block.word(at).write(block.value(at)) };
        }
        block
    }

    fn word(self, at: usize) -> *mut u64 {
        (self.address + at * 8) as *mut u64
    }

    fn value(self, at: usize) -> u64 {
        (self.address as u64 ^ self.size as u64).wrapping_mul(at as u64 | 1)
    }

    fn check(self) {
        for at in 0..self.size / 8 {
            // SAFETY: the block was filled when it was allocated.
            let found = unsafe { self.word(at).read() };
            assert_eq!(found, self.value(at), "{self:?} at {at}");
        }
    }

    fn free(self, heap: &Heap) {
        self.check();
        // SAFETY: nothing refers to the block.
        unsafe { heap.try_free(NonNull::new(self.address as *mut u8).unwrap()) }.unwrap();
    }
}

struct Object {
    session: Session<u64>,
    directory: tempfile::TempDir,
}

fn options() -> Options {
    match std::env::var_os("EVERMAP_STRESS_HIGH") {
        // Addresses that ThreadSanitizer allows; its own tables are below.
        Some(_) => Options::new()
            .window(Window::new(0x7e90_0000_0000, 0x7eb0_0000_0000).unwrap())
            .arena_registry(None),
        None => Options::new(),
    }
}

impl Object {
    fn new() -> Object {
        let directory = tempfile::tempdir().unwrap();
        let store = options().create_new(directory.path().join("store")).unwrap();
        store.create::<u64, _>("blocks", 0).unwrap();
        let session = store.write::<u64>("blocks").unwrap();
        Object { session, directory }
    }

    fn heap(&self) -> &Heap {
        self.session.heap()
    }

    /// Commits, closes, checks and reopens the object, and frees all that is left.
    fn end(mut self, left: Vec<Block>) {
        assert_eq!(self.session.info().unwrap().heap.blocks as usize, left.len());
        self.session.commit().unwrap();
        self.session.close().unwrap();
        let path = self.directory.path().join("store");
        let sound = |path: &std::path::Path| {
            let report = check(path, &CheckOptions::new()).unwrap();
            assert!(report.is_clean(), "{:#?}", report.findings);
        };
        sound(&path);
        let store: Store = options().open(&path).unwrap();
        let mut session = store.write::<u64>("blocks").unwrap();
        assert_eq!(session.info().unwrap().heap.blocks as usize, left.len());
        let mut random = Random::of(99);
        let mut left = left;
        for at in (1..left.len()).rev() {
            left.swap(at, random.below(at + 1));
        }
        // Two threads free, one of them blocks that the other adopted. Some blocks are allocated
        // again.
        let half = left.len() / 2;
        let again: Vec<Block> = std::thread::scope(|scope| {
            let heap = session.heap();
            let threads = [&left[..half], &left[half..]].map(|part| {
                scope.spawn(move || {
                    part.iter().for_each(|block| block.free(heap));
                    part.iter().take(500).map(|block| Block::new(heap, block.size)).collect()
                })
            });
            threads.into_iter().flat_map(|t| -> Vec<Block> { t.join().unwrap() }).collect()
        });
        session.commit().unwrap();
        assert_eq!(session.info().unwrap().heap.blocks as usize, again.len());
        again.into_iter().for_each(|block| block.free(session.heap()));
        session.commit().unwrap();
        let heap = session.info().unwrap().heap;
        assert_eq!(heap.free_chunks * 65536, heap.capacity_bytes, "{heap:?}");
        session.close().unwrap();
        drop(store);
        sound(&path);
    }
}

/// A few size classes often, so that slabs fill, empty and change owners, and every size sometimes.
fn size(random: &mut Random) -> usize {
    match random.below(1000) {
        0 => 33_000 + random.below(200_000),
        1..20 => random.below(33_000),
        20..300 => 16 + random.below(500),
        300..600 => 64,
        _ => 200 + 50 * random.below(3),
    }
}

#[test]
fn threadtest_each_thread_frees_its_own_blocks() {
    let object = Object::new();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for round in 0..5 * times() {
                    let heap = object.heap();
                    let sizes = (0..2000).map(|n| if round % 2 == 0 { 64 } else { 8 + n % 700 });
                    let blocks: Vec<Block> = sizes.map(|size| Block::new(heap, size)).collect();
                    blocks.into_iter().for_each(|block| block.free(heap));
                }
            });
        }
    });
    object.end(Vec::new());
}

#[test]
fn larson_threads_free_the_blocks_of_their_predecessors() {
    let object = Object::new();
    let mut random = Random::of(0);
    let mut sets: Vec<Vec<Block>> = (0..THREADS)
        .map(|_| (0..400).map(|_| Block::new(object.heap(), size(&mut random))).collect())
        .collect();
    for round in 0..5 * times() {
        std::thread::scope(|scope| {
            for (thread, set) in sets.iter_mut().enumerate() {
                let mut random = Random::of(round * THREADS + thread);
                let heap = object.heap();
                scope.spawn(move || {
                    for _ in 0..2000 {
                        let at = random.below(set.len());
                        set[at].free(heap);
                        set[at] = Block::new(heap, size(&mut random));
                    }
                });
            }
        });
        sets.rotate_left(1);
    }
    object.end(sets.concat());
}

#[test]
fn consumers_free_what_producers_allocate() {
    let object = Object::new();
    let kept = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for producer in 0..THREADS / 2 {
            let (to, from) = sync_channel::<Block>(64);
            let (heap, kept) = (object.heap(), &kept);
            scope.spawn(move || {
                let mut random = Random::of(producer);
                for _ in 0..10_000 * times() {
                    to.send(Block::new(heap, size(&mut random))).unwrap();
                }
            });
            scope.spawn(move || {
                let mut random = Random::of(producer + 100);
                for block in from {
                    if random.below(50) == 0 {
                        kept.lock().unwrap().push(block);
                    } else {
                        block.free(heap);
                    }
                }
            });
        }
    });
    object.end(kept.into_inner().unwrap());
}

#[test]
fn threads_that_exchange_blocks_see_the_written_contents() {
    let object = Object::new();
    let shared: Mutex<BTreeMap<usize, Block>> = Mutex::default();
    let start = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (heap, shared, start) = (object.heap(), &shared, &start);
            scope.spawn(move || {
                let mut random = Random::of(thread);
                start.wait();
                for _ in 0..5000 * times() {
                    match random.below(5) {
                        0..=2 => {
                            let block = Block::new(heap, size(&mut random));
                            let before = shared.lock().unwrap().insert(block.address, block);
                            assert!(before.is_none(), "a block was allocated twice");
                        }
                        3 => {
                            let taken = shared.lock().unwrap().pop_first();
                            taken.into_iter().for_each(|(_, block)| block.free(heap));
                        }
                        _ => {
                            let taken = shared.lock().unwrap().pop_last();
                            let Some((_, block)) = taken else { continue };
                            block.check();
                            let size = size(&mut random).max(8);
                            let old = NonNull::new(block.address as *mut u8).unwrap();
                            // SAFETY: the block was taken out, so no other thread has it.
                            let new = unsafe { heap.reallocate(old, size, 16).unwrap() };
                            let moved = Block { address: new.as_ptr() as usize, size };
                            for at in 0..size.min(block.size) / 8 {
                                // SAFETY: kept by the reallocation.
                                let found = unsafe { moved.word(at).read() };
                                assert_eq!(found, block.value(at));
                            }
                            for at in 0..size / 8 {
                                // SAFETY: the block has this size now.
                                unsafe { moved.word(at).write(moved.value(at)) };
                            }
                            shared.lock().unwrap().insert(moved.address, moved);
                        }
                    }
                }
            });
        }
    });
    object.end(shared.into_inner().unwrap().into_values().collect());
}
