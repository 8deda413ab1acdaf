//! Tests of the allocator against a model, and of its checks against wrong frees.

mod lockstep;
mod threads;

use std::collections::BTreeMap;
use std::ptr::NonNull;

use proptest::prelude::*;

use super::Heap;
use crate::HeapError;

/// Size and fill byte of the allocated blocks, by address.
#[derive(Default)]
struct Model {
    blocks: BTreeMap<usize, (usize, u8)>,
}

impl Model {
    fn insert(&mut self, block: NonNull<u8>, size: usize, align: usize, fill: u8) {
        let address = block.as_ptr() as usize;
        assert_eq!(address % align.max(16), 0);
        let before = self.blocks.range(..address).next_back();
        assert!(before.is_none_or(|(a, (s, _))| a + s <= address), "overlaps the block before");
        let after = self.blocks.range(address..).next();
        assert!(after.is_none_or(|(a, _)| address + size <= *a), "overlaps the block after");
        // SAFETY: the block was just allocated with this size.
        unsafe { block.as_ptr().write_bytes(fill, size) };
        self.blocks.insert(address, (size, fill));
    }

    fn take(&mut self, nth: usize) -> Option<(NonNull<u8>, usize, u8)> {
        let address = *self.blocks.keys().nth(nth % self.blocks.len().max(1))?;
        let (size, fill) = self.blocks.remove(&address)?;
        Some((NonNull::new(address as *mut u8)?, size, fill))
    }
}

fn check_filled(block: NonNull<u8>, size: usize, fill: u8) {
    // SAFETY: the block is allocated with at least `size` bytes, all of them written.
    let bytes = unsafe { std::slice::from_raw_parts(block.as_ptr(), size) };
    assert!(bytes.iter().all(|b| *b == fill), "contents changed");
}

#[derive(Clone, Debug)]
enum Step {
    Allocate { size: usize, align_log2: u32 },
    Free { nth: usize },
    Reallocate { nth: usize, size: usize },
}

fn size() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0..300usize, 2 => 300..40_000usize, 1 => 40_000..400_000usize]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (size(), 0..14u32).prop_map(|(size, align_log2)| Step::Allocate { size, align_log2 }),
        2 => any::<usize>().prop_map(|nth| Step::Free { nth }),
        2 => (any::<usize>(), size()).prop_map(|(nth, size)| Step::Reallocate { nth, size }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 64 }))]

    #[test]
    fn blocks_never_overlap_keep_their_contents_and_are_all_counted(
        steps in prop::collection::vec(step(), 1..200)
    ) {
        let mut heap = Heap::anonymous().unwrap();
        let mut model = Model::default();
        for (number, step) in steps.into_iter().enumerate() {
            let fill = number as u8;
            match step {
                Step::Allocate { size, align_log2 } => {
                    let align = 1 << align_log2;
                    let block = heap.allocate(size, align).unwrap();
                    prop_assert!(heap.usable_size(block) >= size);
                    prop_assert!(heap.contains(block.as_ptr() as usize, size));
                    model.insert(block, size, align, fill);
                }
                Step::Free { nth } => {
                    if let Some((block, size, fill)) = model.take(nth) {
                        check_filled(block, size, fill);
                        // SAFETY: the block is allocated, and the model dropped it.
                        unsafe { heap.free(block) };
                    }
                }
                Step::Reallocate { nth, size } => {
                    if let Some((block, old, fill)) = model.take(nth) {
                        // SAFETY: the block is allocated, and the model dropped it.
                        let block = unsafe { heap.reallocate(block, size, 16).unwrap() };
                        check_filled(block, old.min(size), fill);
                        model.insert(block, size, 16, fill);
                    }
                }
            }
            prop_assert_eq!(heap.live_blocks(), model.blocks.len());
        }
        for (address, (size, fill)) in std::mem::take(&mut model.blocks) {
            let block = NonNull::new(address as *mut u8).unwrap();
            check_filled(block, size, fill);
            heap.free_checked(block).unwrap();
        }
        heap.flush_and_measure();
        let left = heap.statistics();
        prop_assert_eq!(left.free_chunks * 65536, left.capacity_bytes);
    }
}

#[test]
fn double_frees_and_foreign_pointers_are_refused() {
    let heap = Heap::anonymous().unwrap();
    let refused = |address: usize| {
        let block = NonNull::new(address as *mut u8).unwrap();
        assert!(
            matches!(heap.free_checked(block), Err(HeapError::InvalidFree { .. })),
            "{address:#x}"
        );
    };
    for size in [1, 100, 5000, 100_000, 3_000_000] {
        let keep = heap.allocate(size, 16).unwrap();
        let block = heap.allocate(size, 16).unwrap();
        let address = block.as_ptr() as usize;
        refused(address + 16);
        refused(address + 1);
        heap.free_checked(block).unwrap();
        refused(address);
        heap.free_checked(keep).unwrap();
    }
    refused(16);
    refused(&heap as *const Heap as usize);
}

#[test]
fn a_double_free_is_refused_before_and_after_a_flush() {
    let mut heap = Heap::anonymous().unwrap();
    for size in [16, 48, 400, 1000, 20_000] {
        let blocks: Vec<_> = (0..200).map(|_| heap.allocate(size, 16).unwrap()).collect();
        let (kept, freed) = blocks.split_at(100);
        freed.iter().for_each(|block| heap.free_checked(*block).unwrap());
        // Takes blocks into the thread's bin again, and hands one out.
        let reused = heap.allocate(size, 16).unwrap();
        for flushed in [false, true] {
            if flushed {
                heap.flush_thread_caches();
            }
            for block in freed.iter().filter(|block| **block != reused) {
                let refused = heap.free_checked(*block);
                assert!(matches!(refused, Err(HeapError::InvalidFree { .. })), "{size} {flushed}");
            }
        }
        heap.free_checked(reused).unwrap();
        kept.iter().for_each(|block| heap.free_checked(*block).unwrap());
    }
    assert_eq!(heap.live_blocks(), 0);
}

#[test]
fn a_thread_that_alternates_between_heaps_keeps_its_blocks_apart() {
    let heaps: Vec<Heap> = (0..6).map(|_| Heap::anonymous().unwrap()).collect();
    let mut blocks = vec![Vec::new(); heaps.len()];
    for round in 0..300 {
        for (heap, blocks) in heaps.iter().zip(&mut blocks) {
            let block = heap.allocate(16 + round % 50, 16).unwrap();
            assert!(heap.contains(block.as_ptr() as usize, 16));
            blocks.push(block);
        }
    }
    for (number, (heap, blocks)) in heaps.iter().zip(&blocks).enumerate() {
        assert_eq!(heap.live_blocks(), 300);
        for block in blocks {
            let other = &heaps[(number + 1) % heaps.len()];
            assert!(matches!(other.free_checked(*block), Err(HeapError::InvalidFree { .. })));
            heap.free_checked(*block).unwrap();
        }
        assert_eq!(heap.live_blocks(), 0);
    }
}

#[test]
fn impossible_sizes_are_an_error() {
    let heap = Heap::anonymous().unwrap();
    let half = 1 << (usize::BITS - 1);
    for (size, align) in [(usize::MAX, 1), (half, 16), (16, 3), (16, 0), (16, half)] {
        assert!(matches!(heap.allocate(size, align), Err(HeapError::BadAllocation { .. })));
    }
    heap.allocate(0, 1).unwrap();
    heap.allocate(10, 1 << 20).unwrap();
}

#[test]
#[cfg_attr(target_family = "wasm", ignore = "needs threads")]
fn four_threads_allocate_and_free_at_once() {
    let heap = Heap::anonymous().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let heap = &heap;
            scope.spawn(move || {
                let mut mine = Vec::new();
                for i in 0..if cfg!(miri) { 60 } else { 2000usize } {
                    let size = 16 + (i * 37 + thread as usize * 11) % 700;
                    let block = heap.allocate(size, 16).unwrap();
                    // SAFETY: just allocated.
                    unsafe { block.as_ptr().write_bytes(thread, size) };
                    mine.push((block.as_ptr() as usize, size));
                    if i % 3 == 0 {
                        let (address, size) = mine.swap_remove(i / 2 % mine.len());
                        let block = NonNull::new(address as *mut u8).unwrap();
                        check_filled(block, size, thread);
                        heap.free_checked(block).unwrap();
                    }
                }
                for (address, size) in mine {
                    let block = NonNull::new(address as *mut u8).unwrap();
                    check_filled(block, size, thread);
                    heap.free_checked(block).unwrap();
                }
            });
        }
    });
    assert_eq!(heap.live_blocks(), 0);
}
