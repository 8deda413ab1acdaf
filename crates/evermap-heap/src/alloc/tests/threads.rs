//! Tests of one thread's allocations and frees that concern another thread.

use std::ptr::NonNull;
use std::sync::Arc;

use super::super::{ChunkSource, Heap};
use super::lockstep::{Random, RecordingSource, metadata_bytes};
use crate::HeapError;
use crate::format::{CHUNK_BYTES, CHUNK_LARGE, PAGE_BYTES};

#[derive(Clone, Copy)]
struct Block(NonNull<u8>);

// SAFETY: the value is only an address; its memory is not accessed.
unsafe impl Send for Block {}
// SAFETY: the value is only an address; its memory is not accessed.
unsafe impl Sync for Block {}

fn allocate(heap: &Heap, size: usize, count: usize) -> Vec<Block> {
    (0..count).map(|_| Block(heap.allocate(size, 16).unwrap())).collect()
}

fn on_another_thread<R: Send>(act: impl FnOnce() -> R + Send) -> R {
    // Joins, so that the thread's exit handlers have run as well.
    std::thread::scope(|scope| scope.spawn(act).join().unwrap())
}

#[test]
#[cfg_attr(target_family = "wasm", ignore = "needs threads")]
fn remotely_freed_blocks_are_reused_before_the_heap_grows() {
    let heap = Heap::anonymous().unwrap();
    let count = 10 * CHUNK_BYTES as usize / 512;
    let blocks = allocate(&heap, 512, count);
    let before = heap.statistics().free_chunks;
    on_another_thread(|| blocks.into_iter().for_each(|block| heap.free_checked(block.0).unwrap()));
    assert_eq!(heap.live_blocks(), 0);
    allocate(&heap, 512, count);
    let after = heap.statistics();
    assert!(after.free_chunks >= before && after.blocks as usize == count, "{after:?}");
}

#[test]
#[cfg_attr(target_family = "wasm", ignore = "needs threads")]
fn only_one_of_several_threads_frees_a_block() {
    let heap = Heap::anonymous().unwrap();
    let blocks = allocate(&heap, 100, 3);
    let refused = |block: Block| {
        assert!(matches!(heap.free_checked(block.0), Err(HeapError::InvalidFree { .. })));
    };
    let [first, second, third] = blocks[..] else { unreachable!() };
    on_another_thread(|| {
        heap.free_checked(first.0).unwrap();
        refused(first);
    });
    refused(first);
    heap.free_checked(second.0).unwrap();
    refused(second);
    on_another_thread(|| refused(second));
    heap.free_checked(third.0).unwrap();
    assert_eq!(heap.live_blocks(), 0);
}

#[test]
#[cfg_attr(target_family = "wasm", ignore = "needs threads")]
fn slabs_of_ended_threads_are_reused() {
    let heap = Heap::anonymous().unwrap();
    for round in 0..50 {
        let kept = on_another_thread(|| {
            let mut blocks = allocate(&heap, 700, 200);
            let kept = blocks.split_off(197);
            blocks.into_iter().for_each(|block| heap.free_checked(block.0).unwrap());
            kept
        });
        assert_eq!(heap.live_blocks(), (round + 1) * kept.len());
    }
    // 50 threads with three slabs each would need 150.
    let slabs: u64 = heap.statistics().classes.iter().map(|class| class.slabs).sum();
    assert!(slabs <= 6, "{slabs} slabs for {} blocks", heap.live_blocks());
}

#[test]
#[cfg_attr(target_family = "wasm", ignore = "needs threads")]
fn slabs_of_an_earlier_session_are_used_before_fresh_ones() {
    let source = RecordingSource::new();
    let mut heap = source.heap();
    let blocks = allocate(&heap, 1000, 65 * 6);
    blocks.iter().step_by(2).for_each(|block| heap.free_checked(block.0).unwrap());
    heap.flush_thread_caches();
    let slabs = |heap: &Heap| heap.statistics().classes.iter().map(|c| c.slabs).sum::<u64>();
    let before = slabs(&heap);
    let mut next = source.heap();
    drop(heap);
    // Half from this thread and half from another, which shares the remaining blocks.
    allocate(&next, 1000, 80);
    on_another_thread(|| allocate(&next, 1000, 80));
    assert_eq!(slabs(&next), before);
    // Any thread may free blocks of the earlier session.
    blocks.iter().skip(1).step_by(2).for_each(|block| next.free_checked(block.0).unwrap());
    next.flush_and_measure();
    assert_eq!(next.live_blocks(), 160);
}

#[test]
fn a_thousand_allocations_in_a_fragmented_heap_change_few_metadata_pages() {
    let source = RecordingSource::new();
    let heap = source.heap();
    let mut random = Random(7);
    let count = if cfg!(miri) { 4000 } else { 400_000 };
    let mut blocks: Vec<Block> =
        (0..count).map(|_| Block(heap.allocate(16 + random.below(500), 16).unwrap())).collect();
    // Frees a third of all blocks at random.
    for _ in 0..blocks.len() / 3 {
        let at = random.below(blocks.len());
        heap.free_checked(blocks.swap_remove(at).0).unwrap();
    }
    let mut flushed = heap;
    flushed.flush_thread_caches();
    // A new session without volatile state.
    let mut heap = source.heap();
    drop(flushed);
    let all = || -> Vec<Vec<u8>> {
        let records = source.records();
        records.iter().enumerate().map(|(n, record)| metadata_bytes(n, record)).collect()
    };
    let before = all();
    for _ in 0..1000 {
        heap.allocate(16 + random.below(500), 16).unwrap();
    }
    heap.flush_thread_caches();
    let pages: usize = before
        .iter()
        .zip(all())
        .map(|(before, after)| {
            let pages = before.chunks(PAGE_BYTES as usize).zip(after.chunks(PAGE_BYTES as usize));
            pages.filter(|(before, after)| before != after).count()
        })
        .sum();
    println!("{pages} pages");
    assert!(pages <= 40, "{pages} pages");
}

#[test]
fn metadata_changes_only_when_the_caches_are_flushed() {
    let source = RecordingSource::new();
    let mut heap = source.heap();
    let sizes = [16, 48, 400, 1000, 20_000];
    let kept: Vec<Block> = sizes.iter().flat_map(|size| allocate(&heap, *size, 2)).collect();
    heap.flush_thread_caches();
    let all = || metadata_bytes(0, &source.records()[0]);
    let commit = all();
    let more: Vec<Block> = sizes.iter().flat_map(|size| allocate(&heap, *size, 1)).collect();
    heap.free_checked(kept[0].0).unwrap();
    heap.free_checked(more[1].0).unwrap();
    assert_eq!(all(), commit, "what a kill leaves is the last commit");
    heap.flush_thread_caches();
    assert_ne!(all(), commit);
    // A new session knows the state of every block.
    let next = source.heap();
    drop(heap);
    assert_eq!(next.live_blocks(), kept.len() + more.len() - 2);
    for (number, block) in kept.iter().chain(&more).enumerate() {
        let freed = number == 0 || number == kept.len() + 1;
        assert_eq!(next.free_checked(block.0).is_err(), freed, "{number}");
    }
    assert_eq!(next.live_blocks(), 0);
}

#[test]
fn a_damaged_length_of_a_large_block_does_not_free_its_neighbours() {
    let source = RecordingSource::new();
    let mut heap = source.heap();
    let large = heap.allocate(100_000, 16).unwrap();
    let neighbours = allocate(&heap, 64, 3);
    heap.flush_thread_caches();
    let record = source.records()[0];
    let bytes = metadata_bytes(0, &record);
    let chunk = bytes.iter().position(|state| *state == CHUNK_LARGE).unwrap();
    let chunks = ((record.capacity - record.meta_length) / CHUNK_BYTES) as usize;
    let at = record.base + PAGE_BYTES + (chunks.next_multiple_of(64) + chunk * 576 + 24) as u64;
    // SAFETY: the field `large_chunks` of the block's record.
    unsafe { (at as *mut u64).write(3) };
    assert!(matches!(heap.free_checked(large), Err(HeapError::InvalidFree { .. })));
    // SAFETY: the field `large_chunks` of the block's record, which is mapped.
    unsafe { (at as *mut u64).write(u64::MAX) };
    assert!(matches!(heap.free_checked(large), Err(HeapError::InvalidFree { .. })));
    neighbours.into_iter().for_each(|block| heap.free_checked(block.0).unwrap());
}

#[test]
fn large_blocks_take_the_shortest_run_and_neighbours_are_joined() {
    let heap = RecordingSource::of_chunks(64).heap();
    let chunk = CHUNK_BYTES as usize;
    let blocks: Vec<_> = [2, 1, 4, 1, 3, 1].map(|n| heap.allocate(n * chunk, 1).unwrap()).into();
    [0, 2, 4].iter().for_each(|n| heap.free_checked(blocks[*n]).unwrap());
    assert_eq!(heap.allocate(3 * chunk, 1).unwrap(), blocks[4], "the run of three");
    assert_eq!(heap.allocate(2 * chunk, 1).unwrap(), blocks[0], "the run of two");
    heap.free_checked(blocks[1]).unwrap();
    heap.free_checked(blocks[3]).unwrap();
    assert_eq!(heap.allocate(6 * chunk, 1).unwrap(), blocks[1], "one, four and one, joined");
    let aligned = heap.allocate(chunk, 8 * chunk).unwrap();
    assert!((aligned.as_ptr() as usize).is_multiple_of(8 * chunk));
}

#[test]
fn a_large_block_is_resized_in_place_while_there_is_room() {
    let heap = RecordingSource::of_chunks(64).heap();
    let block = heap.allocate(100_000, 16).unwrap();
    // SAFETY: the block is allocated, and only the returned one is used afterwards.
    let resize = |size| unsafe { heap.reallocate(block, size, 16).unwrap() };
    assert_eq!(resize(200_000), block);
    assert_eq!(heap.usable_size(block), 200_704);
    assert_eq!(resize(70_000), block);
    let next = heap.allocate(65_536, 65_536).unwrap();
    assert_eq!(next.as_ptr() as usize, block.as_ptr() as usize + 2 * CHUNK_BYTES as usize);
    assert_ne!(resize(140_000), block);
}

#[test]
#[cfg_attr(target_family = "wasm", ignore = "needs threads")]
fn a_failing_chunk_source_leaves_the_heap_unchanged() {
    struct Refusing;
    impl ChunkSource for Refusing {
        fn extend(&self, _: usize, _: u64) -> crate::Result<u64> {
            unreachable!("everything is backed")
        }
        fn refill(&self, _: usize, _: u64, _: u64) -> crate::Result<()> {
            Ok(())
        }

        fn add_region(&self, chunks: u64) -> crate::Result<crate::format::RegionRecord> {
            let what = "a full store".to_string();
            let bytes = chunks * CHUNK_BYTES;
            Err(HeapError::OutOfAddresses { what, bytes, why: "it is full".to_string() })
        }
    }
    let source = RecordingSource::new();
    let full: Arc<dyn ChunkSource> = Arc::new(Refusing);
    // SAFETY: the chunk source of `source` maps the memory writable and outlives the heap.
    let heap = unsafe { Heap::new(full, &source.records()) };
    let mut blocks = Vec::new();
    while let Ok(block) = heap.allocate(1000, 16) {
        blocks.push(Block(block));
    }
    assert_eq!(blocks.len(), 4 * 64);
    assert!(heap.allocate(1000, 16).is_err() && heap.allocate(100_000, 16).is_err());
    let last = blocks.split_off(100);
    on_another_thread(|| last.into_iter().for_each(|block| heap.free_checked(block.0).unwrap()));
    assert_eq!((0..1000).take_while(|_| heap.allocate(1000, 16).is_ok()).count(), 156);
}
