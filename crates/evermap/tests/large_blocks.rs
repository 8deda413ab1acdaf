//! Large blocks: what they take of the disk, and what a full disk does to them.

#![allow(clippy::unwrap_used)]

mod common;

use std::path::Path;
use std::ptr::NonNull;

use common::mount::Mount;
use evermap::tools::{CheckOptions, check};
use evermap::{Error, Options, RawSession, Store, Verify};

const BLOCK_BYTES: usize = 256 << 20;
const PAGE_BYTES: usize = 4096;
/// A commit reserves disk space in steps of so many bytes.
const STEP_BYTES: usize = 2 << 20;

/// A place on the disk, or in memory where that is all there is.
fn place() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// An object with one block, which is its root.
fn with_block(store: &Store) -> (RawSession, NonNull<u8>) {
    store.create_raw("block").unwrap();
    let mut session = store.write_raw("block").unwrap();
    let block = session.heap().allocate(BLOCK_BYTES, 16).unwrap();
    // SAFETY: the tag is no Rust type's.
    unsafe { session.set_root(Some(block), BLOCK_BYTES as u64, [9; 16], "a block") }.unwrap();
    (session, block)
}

fn store_to(block: NonNull<u8>, pages: impl IntoIterator<Item = usize>, byte: u8) {
    for page in pages {
        // SAFETY: within the block, to which this thread alone stores.
        unsafe { block.add(page * PAGE_BYTES + page % PAGE_BYTES).write(byte) };
    }
}

/// Whether these pages, and no others, hold the byte.
fn assert_holds(block: *const u8, pages: &[usize], byte: u8) {
    // SAFETY: the block is mapped, and nobody stores to it.
    let bytes = unsafe { std::slice::from_raw_parts(block, BLOCK_BYTES) };
    for &page in pages {
        assert_eq!(bytes[page * PAGE_BYTES + page % PAGE_BYTES], byte, "page {page}");
    }
    assert_eq!(bytes.iter().filter(|found| **found != 0).count(), pages.len());
}

/// Opens the store anew, with every checksum, and looks at the block.
fn assert_kept(store: &Path, pages: &[usize], byte: u8) {
    let store = Options::new().verify(Verify::Full).open(store).unwrap();
    assert_holds(store.read_raw("block").unwrap().root().address, pages, byte);
    let report = check(store.path(), &CheckOptions::new()).unwrap();
    assert!(report.is_clean(), "{report:?}");
}

fn disk_bytes(store: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let objects = std::fs::read_dir(store.join("objects")).unwrap();
    objects.map(|object| object.unwrap().metadata().unwrap().blocks() * 512).sum()
}

/// Every so many pages of the block.
fn every(pages: usize) -> Vec<usize> {
    (0..BLOCK_BYTES / PAGE_BYTES).step_by(pages).collect()
}

#[test]
fn a_large_block_takes_disk_space_only_where_it_was_stored_to() {
    let place = place();
    let path = place.path().join("store");
    let store = Store::create_new(&path).unwrap();
    let (mut session, block) = with_block(&store);
    let before = disk_bytes(&path);
    assert!(before < BLOCK_BYTES as u64 / 8, "{before} bytes before the first store");
    let pages = every(16 * STEP_BYTES / PAGE_BYTES);
    store_to(block, pages.iter().copied(), 7);
    assert!(session.map().unwrap().totals().dirty_bytes >= (pages.len() * PAGE_BYTES) as u64);
    session.commit().unwrap();
    let taken = disk_bytes(&path) - before;
    // A log is a part of it.
    let most = (pages.len() * STEP_BYTES) as u64 + (1 << 20);
    assert!(taken <= most, "{taken} bytes for {} pages", pages.len());
    assert_holds(block.as_ptr(), &pages, 7);
    session.close().unwrap();
    drop(store);
    assert_kept(&path, &pages, 7);
}

#[test]
fn later_commits_and_sessions_store_to_parts_that_have_no_space_yet() {
    let place = place();
    let path = place.path().join("store");
    let store = Store::create_new(&path).unwrap();
    let (mut session, block) = with_block(&store);
    session.commit().unwrap();
    let pages = every(9 * STEP_BYTES / PAGE_BYTES);
    for part in pages.chunks(4) {
        store_to(block, part.iter().copied(), 3);
        session.commit().unwrap();
    }
    session.close().unwrap();
    drop(store);
    assert_kept(&path, &pages, 3);
    let store = Store::open(&path).unwrap();
    let mut session = store.write_raw("block").unwrap();
    let block = NonNull::new(session.root().address).unwrap();
    let more: Vec<usize> = pages.iter().map(|page| page + 1000).collect();
    store_to(block, more.iter().copied(), 3);
    session.commit().unwrap();
    // What was reserved for these commits is all that their log needs.
    session.checkpoint().unwrap();
    session.close().unwrap();
    drop(store);
    assert_kept(&path, &[pages, more].concat(), 3);
}

#[test]
fn a_full_disk_is_an_error_of_the_commit_and_the_stores_stay() {
    if let Some(mount) = Mount::new("ext4", 96) {
        let path = mount.path().join("store");
        let store = Store::create_new(&path).unwrap();
        let (mut session, block) = with_block(&store);
        // 128 steps of 2 MiB are more than the file system has.
        let pages = every(STEP_BYTES / PAGE_BYTES);
        store_to(block, pages.iter().copied(), 5);
        for _ in 0..2 {
            let error = session.commit().unwrap_err();
            assert!(matches!(error, Error::DiskFull { .. }), "{}: {error}", mount.name);
            assert_holds(block.as_ptr(), &pages, 5);
        }
        // With fewer pages there is room.
        store_to(block, pages[16..].iter().copied(), 0);
        session.commit().unwrap();
        // A later commit finds the disk full, too, and loses nothing.
        mount.fill();
        store_to(block, pages[100..].iter().copied(), 5);
        let error = session.commit().unwrap_err();
        assert!(matches!(error, Error::DiskFull { .. }), "{}: {error}", mount.name);
        session.rollback().unwrap();
        mount.empty();
        store_to(block, [pages[100]], 5);
        session.commit().unwrap();
        session.close().unwrap();
        drop(store);
        assert_kept(&path, &[&pages[..16], &pages[100..101]].concat(), 5);
    }
}

#[test]
fn a_rollback_gives_a_large_block_back() {
    let place = place();
    let path = place.path().join("store");
    let store = Store::create_new(&path).unwrap();
    store.create_raw("block").unwrap();
    let mut session = store.write_raw("block").unwrap();
    for byte in [1, 2] {
        let block = session.heap().allocate(BLOCK_BYTES, 16).unwrap();
        store_to(block, every(1000), byte);
        session.rollback().unwrap();
    }
    let block = session.heap().allocate(BLOCK_BYTES, 16).unwrap();
    assert_holds(block.as_ptr(), &[], 0);
    // SAFETY: the tag is no Rust type's.
    unsafe { session.set_root(Some(block), BLOCK_BYTES as u64, [9; 16], "a block") }.unwrap();
    session.commit().unwrap();
    session.close().unwrap();
    drop(store);
    assert_kept(&path, &[], 0);
}

#[test]
fn a_forked_child_has_the_large_block_as_it_was() {
    let place = place();
    let path = place.path().join("store");
    let store = Store::create_new(&path).unwrap();
    let (mut session, block) = with_block(&store);
    let pages = every(5000);
    store_to(block, pages.iter().copied(), 4);
    // Small growth behind it is mapped from the file.
    let small = session.heap().allocate(100_000, 16).unwrap();
    // SAFETY: within the block; the child calls nothing but `_exit`.
    let child = unsafe {
        small.write_bytes(6, 100_000);
        match libc::fork() {
            0 => {
                let is_whole = pages
                    .iter()
                    .all(|page| *block.add(page * PAGE_BYTES + page % PAGE_BYTES).as_ref() == 4)
                    && *block.add(PAGE_BYTES).as_ref() == 0
                    && *small.add(99_999).as_ref() == 6;
                libc::_exit(if is_whole { 0 } else { 1 });
            }
            child => child,
        }
    };
    let mut status = 0;
    // SAFETY: waits for the child of this test.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child saw other bytes, or died");
    session.commit().unwrap();
    session.close().unwrap();
    drop(store);
    let store = Store::open(&path).unwrap();
    let snapshot = store.read_raw("block").unwrap();
    // SAFETY: the root is mapped, and so is the small block behind it.
    unsafe {
        assert_eq!(*snapshot.root().address.add(pages[1] * PAGE_BYTES + pages[1] % PAGE_BYTES), 4);
        assert_eq!(*small.add(99_999).as_ref(), 6);
    }
}

#[test]
#[ignore = "runs in a process of its own"]
fn commits_and_is_killed() {
    let Some(path) = common::argument(0) else { return };
    let store = Store::create_new(path).unwrap();
    let (mut session, block) = with_block(&store);
    store_to(block, every(3000), 8);
    session.commit().unwrap();
    store_to(block, every(3000).iter().map(|page| page + 1), 8);
    // SAFETY: this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

#[test]
fn a_kill_between_commits_leaves_the_last_one() {
    use std::os::unix::process::ExitStatusExt;
    let place = place();
    let path = place.path().join("store");
    let mut child = common::child("commits_and_is_killed", &[path.to_str().unwrap()]);
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    assert_kept(&path, &every(3000), 8);
}
