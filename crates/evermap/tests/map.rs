//! Maps of objects: contents according to the allocator, and changed pages.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;

use common::{TestStore, object_file};
use evermap::tools::{self, Chunk, ChunkContent, ObjectMap, PageUse};
use evermap::{Error, ObjectInfo, PVec, Protection};

const PAGE_BYTES: u64 = 4096;
const CHUNK_BYTES: u64 = 65_536;

/// The chunk that holds an address.
fn chunk_at(map: &ObjectMap, address: *mut u8) -> (Chunk, u64) {
    let address = address as u64;
    let held = |r: &&tools::RegionMap| address >= r.base && address < r.base + r.length_bytes;
    let region = map.regions.iter().find(held).unwrap();
    let data = region.base + region.metadata.len() as u64 * PAGE_BYTES;
    let offset = address - data;
    (region.chunks[(offset / CHUNK_BYTES) as usize], offset % CHUNK_BYTES)
}

fn agrees(map: &ObjectMap, info: &ObjectInfo) {
    let (totals, heap) = (map.totals(), &info.heap);
    assert_eq!(
        (totals.blocks, totals.large_blocks, totals.large_bytes),
        (heap.blocks, heap.large_blocks, heap.large_bytes)
    );
    let classes = heap.classes.iter().map(|c| (c.block_bytes, c.slabs, c.blocks));
    let mapped = map.classes();
    assert!(
        mapped.iter().map(|c| (u64::from(c.block_bytes), c.slabs, c.blocks)).eq(classes),
        "{mapped:?}"
    );
}

/// Returns the addresses of the pages that a map shows as changed.
fn dirty(map: &ObjectMap) -> BTreeSet<u64> {
    let of_region = |region: &tools::RegionMap| {
        let base = region.base;
        let pages: Vec<PageUse> = region.pages().copied().collect();
        let numbered = (0..).zip(pages).filter(|(_, page)| page.dirty);
        numbered.map(move |(number, _)| base + number * PAGE_BYTES).collect::<Vec<u64>>()
    };
    map.regions.iter().flat_map(of_region).collect()
}

#[test]
fn blocks_are_where_they_were_allocated() {
    let test = TestStore::new();
    test.create_raw("heap").unwrap();
    let mut session = test.write_raw("heap").unwrap();
    let small: Vec<_> = (0..100).map(|_| session.heap().allocate(64, 16).unwrap()).collect();
    let middle = session.heap().allocate(5000, 16).unwrap();
    let large = session.heap().allocate(200_000, 16).unwrap();
    session.commit().unwrap();

    let map = tools::map(test.path(), "heap").unwrap();
    agrees(&map, &session.info().unwrap());
    assert!(map.written && map.sequence == 2 && !map.uncommitted && map.read == Some(false));
    let (chunk, offset) = chunk_at(&map, small[99].as_ptr());
    let content = ChunkContent::Slab { block_bytes: 64, blocks: 100, blocks_max: 1024 };
    assert_eq!((chunk.content, offset), (content, 99 * 64));
    assert_eq!(chunk.pages[0].allocated_bytes, 4096);
    assert_eq!(chunk.pages[1].allocated_bytes, 100 * 64 - 4096);
    assert_eq!(chunk.pages[2].allocated_bytes, 0);
    let (chunk, _) = chunk_at(&map, middle.as_ptr());
    // A block that extends into a second page.
    assert_eq!((chunk.pages[0].allocated_bytes, chunk.pages[1].allocated_bytes), (4096, 1024));
    let (chunk, offset) = chunk_at(&map, large.as_ptr());
    assert_eq!((chunk.content, offset), (ChunkContent::Large { bytes: 200_000 }, 0));
    let (chunk, _) = chunk_at(&map, large.as_ptr().wrapping_add(3 * 65_536));
    assert_eq!(chunk.content, ChunkContent::LargeBody);
    // The rest of it, less than a page.
    assert_eq!(chunk.pages[0].allocated_bytes, (200_000 - 3 * 65_536) as u16);
    assert_eq!(chunk.pages[1].allocated_bytes, 0);

    session.close().unwrap();
    let reader = test.read_raw("heap").unwrap();
    let map = tools::map(test.path(), "heap").unwrap();
    assert!(!map.written && map.read == Some(true) && map.totals().resident_bytes > 0);
    drop(reader);
    assert_eq!(tools::map(test.path(), "heap").unwrap().read, Some(false));
}

#[test]
fn the_writer_knows_exactly_the_pages_that_changed_since_the_last_commit() {
    let test = TestStore::new();
    test.create::<PVec<u64>, _>("v", vec![0; 100_000]).unwrap();
    let session = test.write::<PVec<u64>>("v").unwrap();
    let mut session = session.protect(Protection::Pages).unwrap();
    let first = session.as_ptr() as u64;
    let page_of = |index: usize| (first + 8 * index as u64) / PAGE_BYTES * PAGE_BYTES;
    assert!(dirty(&session.map().unwrap()).is_empty());
    for round in 1..=4u64 {
        let changed: BTreeSet<usize> =
            [5, 700, 90_000, 1_000 * round as usize].into_iter().collect();
        for index in &changed {
            session.scope().unwrap().root_mut().as_mut_slice()[*index] = round;
        }
        // Written with the same value.
        let same = session[50_000];
        session.scope().unwrap().root_mut().as_mut_slice()[50_000] = same;
        let expected: BTreeSet<u64> = changed.into_iter().map(page_of).collect();
        for _ in 0..2 {
            let map = session.map().unwrap();
            assert_eq!(dirty(&map), expected, "round {round}");
            assert_eq!(map.totals().dirty_bytes, expected.len() as u64 * PAGE_BYTES);
        }
        match round % 2 {
            0 => session.rollback().unwrap(),
            _ => assert!(session.commit().unwrap()),
        }
        assert!(dirty(&session.map().unwrap()).is_empty(), "round {round}");
    }
    assert_eq!((session[5], session[3_000], session[4_000]), (3, 3, 0));
    // New memory, and page 0, which every commit changes.
    session.scope().unwrap().root_mut().extend_from_slice(&[1; 200_000]).unwrap();
    let map = session.map().unwrap();
    assert!(map.uncommitted && map.totals().dirty_bytes > 2_000_000, "{:?}", map.totals());
    agrees(&map, &session.info().unwrap());
    session.close().unwrap();
}

#[test]
fn maps_agree_with_the_allocator_after_any_operations() {
    let seed = std::env::var("EVERMAP_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(11u64);
    println!("EVERMAP_SEED={seed}");
    let mut state = seed;
    let mut below = move |bound: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % bound
    };
    let test = TestStore::new();
    test.create_raw("heap").unwrap();
    let mut session = test.write_raw("heap").unwrap();
    let mut blocks = Vec::new();
    for _ in 0..30 {
        for _ in 0..100 {
            let bits = 4 + below(15);
            let size = 1 + below(1 << bits);
            blocks.push(session.heap().allocate(size as usize, 16).unwrap());
            if below(2) == 0 {
                let at = below(blocks.len() as u64) as usize;
                // SAFETY: nothing refers to the block.
                unsafe { session.heap().try_free(blocks.swap_remove(at)) }.unwrap();
            }
        }
        let map = session.map().unwrap();
        agrees(&map, &session.info().unwrap());
        session.commit().unwrap();
        let stored = tools::map(test.path(), "heap").unwrap();
        agrees(&stored, &session.info().unwrap());
    }
}

#[test]
fn released_space_was_never_written() {
    let test = TestStore::new();
    test.create_raw("heap").unwrap();
    let mut session = test.write_raw("heap").unwrap();
    let large = session.heap().allocate_zeroed(4 << 20, 16).unwrap();
    let behind = session.heap().allocate_zeroed(2 << 20, 16).unwrap();
    // SAFETY: the tag belongs to no Rust type.
    unsafe { session.set_root(Some(behind), 0, [0; 16], "") }.unwrap();
    session.commit().unwrap();
    // SAFETY: nothing refers to the block.
    unsafe { session.heap().try_free(large) }.unwrap();
    if session.shrink().unwrap() == 0 {
        eprintln!("SKIPPED: the file system has no holes");
        return;
    }
    for map in [session.map().unwrap(), tools::map(test.path(), "heap").unwrap()] {
        let (chunk, _) = chunk_at(&map, large.as_ptr());
        assert_eq!(chunk.content, ChunkContent::Free);
        assert!(chunk.pages.iter().all(|page| !page.stored && page.allocated_bytes == 0));
        let totals = map.totals();
        assert!(totals.stored_bytes + (4 << 20) <= totals.backed_bytes, "{totals:?}");
    }
}

#[test]
fn damaged_metadata_is_unknown_and_never_used() {
    let test = TestStore::new();
    test.create_raw("heap").unwrap();
    let mut session = test.write_raw("heap").unwrap();
    for size in [64, 5000, 200_000] {
        session.heap().allocate(size, 16).unwrap();
    }
    session.commit().unwrap();
    session.close().unwrap();
    let path = test.path();
    let file = std::fs::File::options().write(true).open(object_file(&path)).unwrap();
    file.write_all_at(&[0x7c], 4096 + 1).unwrap();
    let map = tools::map(&path, "heap").unwrap();
    let mut chunks = map.regions.iter().flat_map(|region| &region.chunks);
    assert!(chunks.any(|chunk| chunk.content == ChunkContent::Unknown));
    // Random bytes in the chunk map and its records.
    for round in 0..200u32 {
        let noise: Vec<u8> = (0..12_000u32)
            .map(|n| (n.wrapping_mul(2_654_435_761).rotate_left(round) >> 7) as u8)
            .collect();
        file.write_all_at(&noise, 4096).unwrap();
        let map = tools::map(&path, "heap").unwrap();
        let pages: usize = map.regions.iter().map(|region| region.pages().count()).sum();
        assert_eq!(pages as u64 * PAGE_BYTES, map.totals().backed_bytes);
        map.classes();
    }
}

#[test]
fn a_missing_object_has_no_map() {
    let test = TestStore::new();
    assert!(matches!(tools::map(test.path(), "no such"), Err(Error::NotFound { .. })));
    let nowhere = test.path().join("nowhere");
    assert!(matches!(tools::map(nowhere, "heap"), Err(Error::NoStore { .. })));
}
