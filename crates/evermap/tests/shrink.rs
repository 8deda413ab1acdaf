//! Disk space is returned to the file system by `shrink` and at close, but never while a reader
//! needs it.

#![allow(clippy::unwrap_used)]

use std::os::unix::fs::MetadataExt;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use evermap::{Options, RawSession, Store, Verify};

const MIB: usize = 1 << 20;

fn store() -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new().verify(Verify::Full);
    let store = options.create_new(directory.path().join("store")).unwrap();
    (directory, store)
}

/// Returns the disk usage of the object's file.
fn disk_bytes(store: &Store, name: &str) -> u64 {
    let file = store.path().join("objects").join(store.info(name).unwrap().uuid);
    std::fs::metadata(file).unwrap().blocks() * 512
}

fn filled(session: &RawSession, bytes: usize, with: u8) -> NonNull<u8> {
    let block = session.heap().allocate(bytes, 16).unwrap();
    // SAFETY: just allocated with this size.
    unsafe { block.as_ptr().write_bytes(with, bytes) };
    block
}

fn holds(block: NonNull<u8>, bytes: usize, with: u8) -> bool {
    // SAFETY: the callers pass blocks of mapped objects that were filled.
    unsafe { std::slice::from_raw_parts(block.as_ptr(), bytes) }.iter().all(|byte| *byte == with)
}

/// Creates an object of 16 blocks of 1 MiB, and frees every second one.
fn with_holes(store: &Store) -> (RawSession, Vec<NonNull<u8>>) {
    store.create_raw("heap").unwrap();
    let mut session = store.write_raw("heap").unwrap();
    let blocks: Vec<_> = (0..16).map(|n| filled(&session, MIB, n)).collect();
    // SAFETY: the tag belongs to no Rust type.
    unsafe { session.set_root(Some(blocks[0]), MIB as u64, [0; 16], "") }.unwrap();
    session.commit().unwrap();
    for block in blocks.iter().skip(1).step_by(2) {
        // SAFETY: nothing refers to the block.
        unsafe { session.heap().try_free(*block) }.unwrap();
    }
    (session, blocks.into_iter().step_by(2).collect())
}

fn assert_undamaged(store: &Store) {
    let report = evermap::tools::check(store.path(), &Default::default()).unwrap();
    assert!(report.is_clean(), "{report:?}");
}

#[test]
fn reading_a_hole_changes_nothing() {
    let (_directory, store) = store();
    store.create_raw("heap").unwrap();
    let mut session = store.write_raw("heap").unwrap();
    let hole = filled(&session, MIB, 1);
    let kept = filled(&session, MIB, 2);
    // SAFETY: the tag belongs to no Rust type.
    unsafe { session.set_root(Some(kept), MIB as u64, [0; 16], "") }.unwrap();
    session.commit().unwrap();
    // SAFETY: nothing refers to the block.
    unsafe { session.heap().try_free(hole) }.unwrap();
    assert!(session.shrink().unwrap() >= MIB as u64);
    for round in 0..4 {
        for page in (round..MIB / 4096).step_by(8) {
            // SAFETY: the memory of a free block stays mapped.
            let byte = unsafe { hole.as_ptr().add(page * 4096).read_volatile() };
            assert_eq!(byte, 0);
        }
        assert!(!session.commit().unwrap(), "round {round}");
    }
    assert!(holds(kept, MIB, 2));
}

#[test]
fn shrink_releases_free_chunks_and_keeps_the_rest() {
    let (_directory, store) = store();
    let (mut session, kept) = with_holes(&store);
    let given = session.shrink().unwrap();
    assert!(given >= 8 * MIB as u64, "{given}");
    let stored = |blocks: &[NonNull<u8>]| {
        blocks.iter().enumerate().all(|(n, block)| holds(*block, MIB, 2 * n as u8))
    };
    assert!(stored(&kept));
    session.close().unwrap();
    assert!(disk_bytes(&store, "heap") < 9 * MIB as u64);
    assert_undamaged(&store);
    let _snapshot = store.read_raw("heap").unwrap();
    assert!(stored(&kept));
}

#[test]
fn holes_are_reused_and_keep_their_new_contents() {
    let (_directory, store) = store();
    let (mut session, _) = with_holes(&store);
    session.shrink().unwrap();
    let before = session.info().unwrap();
    assert!(before.heap.holes > 0);
    let new: Vec<_> = (0..6).map(|n| filled(&session, MIB, 100 + n)).collect();
    let after = session.info().unwrap();
    assert!(after.file_bytes <= before.file_bytes + 3 * MIB as u64, "holes were not used");
    session.commit().unwrap();
    session.close().unwrap();
    assert_undamaged(&store);
    let _snapshot = store.read_raw("heap").unwrap();
    assert!(new.iter().enumerate().all(|(n, block)| holds(*block, MIB, 100 + n as u8)));
}

#[test]
fn closing_a_session_releases_the_space_it_freed() {
    let (_directory, store) = store();
    let (mut session, _) = with_holes(&store);
    let before = disk_bytes_of(&session, &store);
    session.commit().unwrap();
    session.close().unwrap();
    assert!(disk_bytes(&store, "heap") + 7 * MIB as u64 <= before);
    assert_undamaged(&store);
}

fn disk_bytes_of(session: &RawSession, store: &Store) -> u64 {
    let file = store.path().join("objects").join(session.info().unwrap().uuid);
    std::fs::metadata(file).unwrap().blocks() * 512
}

#[test]
fn reserved_room_stays_until_it_is_released() {
    let (_directory, store) = store();
    store.create_raw("heap").unwrap();
    for n in 0..3 {
        let mut session = store.write_raw("heap").unwrap();
        session.reserve(5 * MIB as u64).unwrap();
        filled(&session, MIB, n);
        session.commit().unwrap();
        session.close().unwrap();
    }
    let before = disk_bytes(&store, "heap");
    assert!(before >= 7 * MIB as u64);
    let mut session = store.write_raw("heap").unwrap();
    assert_eq!(session.release(MIB as u64).unwrap(), MIB as u64);
    assert!(session.release(u64::MAX).unwrap() >= 3 * MIB as u64);
    assert_eq!(session.release(u64::MAX).unwrap(), 0);
    session.close().unwrap();
    assert!(disk_bytes(&store, "heap") + 4 * MIB as u64 <= before);
    assert_undamaged(&store);
}

#[test]
fn a_session_can_continue_after_shrink() {
    let (_directory, store) = store();
    store.create_raw("heap").unwrap();
    let mut session = store.write_raw("heap").unwrap();
    let mut kept = Vec::new();
    for round in 0..6u8 {
        let blocks: Vec<_> = (0..8).map(|_| filled(&session, 700_000, round)).collect();
        kept.push(filled(&session, 5000, round));
        session.commit().unwrap();
        for block in blocks {
            // SAFETY: nothing refers to the block.
            unsafe { session.heap().try_free(block) }.unwrap();
        }
        session.shrink().unwrap();
        if round == 3 {
            filled(&session, MIB, 9);
            session.rollback().unwrap();
        }
    }
    assert!(disk_bytes_of(&session, &store) < 2 * MIB as u64);
    session.close().unwrap();
    assert_undamaged(&store);
    let _snapshot = store.read_raw("heap").unwrap();
    assert!(kept.iter().enumerate().all(|(n, block)| holds(*block, 5000, n as u8)));
}

#[test]
fn a_background_verification_ignores_pages_that_a_session_releases() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new().verify(Verify::Background);
    let store = options.create_new(directory.path().join("store")).unwrap();
    store.create_raw("heap").unwrap();
    let mut session = store.write_raw("heap").unwrap();
    // Comparing this block takes longer than releasing the next one.
    let first = filled(&session, 256 * MIB, 1);
    let last = filled(&session, 32 * MIB, 2);
    // SAFETY: the tag belongs to no Rust type.
    unsafe { session.set_root(Some(first), 256 * MIB as u64, [0; 16], "") }.unwrap();
    session.commit().unwrap();
    session.close().unwrap();
    let mut session = store.write_raw("heap").unwrap();
    // SAFETY: nothing refers to the block.
    unsafe { session.heap().try_free(last) }.unwrap();
    assert!(session.release(u64::MAX).unwrap() >= 32 * MIB as u64);
    // Uses the released part of the file again.
    let again = filled(&session, 8 * MIB, 3);
    let since = Instant::now();
    while !session.verified().unwrap() {
        assert!(since.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(1));
    }
    session.commit().unwrap();
    assert!(holds(again, 8 * MIB, 3));
    session.close().unwrap();
    assert_undamaged(&store);
}
