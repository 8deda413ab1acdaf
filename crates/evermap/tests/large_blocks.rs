//! Large blocks: their disk usage, and commits to them on a full disk.

#![allow(clippy::unwrap_used)]

mod common;

use std::path::Path;
use std::ptr::NonNull;

use common::mount::Mount;
use evermap::tools::{CheckOptions, check};
use evermap::{Error, Options, RawSession, Store, Verify, WriteOptions};

const BLOCK_BYTES: usize = 256 << 20;
const PAGE_BYTES: usize = 4096;
/// A commit reserves disk space in steps of this size.
const STEP_BYTES: usize = 2 << 20;

/// Returns a directory on a disk, or in memory if there is no disk.
fn place() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Creates an object with one block as its root.
fn with_block(store: &Store) -> (RawSession, NonNull<u8>) {
    store.create_raw("block").unwrap();
    let mut session = store.write_raw("block").unwrap();
    let block = session.heap().allocate(BLOCK_BYTES, 16).unwrap();
    // SAFETY: the tag belongs to no Rust type.
    unsafe { session.set_root(Some(block), BLOCK_BYTES as u64, [9; 16], "a block") }.unwrap();
    (session, block)
}

fn store_to(block: NonNull<u8>, pages: impl IntoIterator<Item = usize>, byte: u8) {
    for page in pages {
        // SAFETY: inside the block, to which only this thread stores.
        unsafe { block.add(page * PAGE_BYTES + page % PAGE_BYTES).write(byte) };
    }
}

/// Returns true if exactly these pages hold the byte.
fn assert_holds(block: *const u8, pages: &[usize], byte: u8) {
    // SAFETY: the block is mapped, and no thread stores to it.
    let bytes = unsafe { std::slice::from_raw_parts(block, BLOCK_BYTES) };
    for &page in pages {
        assert_eq!(bytes[page * PAGE_BYTES + page % PAGE_BYTES], byte, "page {page}");
    }
    assert_eq!(bytes.iter().filter(|found| **found != 0).count(), pages.len());
}

/// Reopens the store, verifies every checksum, and reads the block.
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

/// Returns every n-th page of the block.
fn every(pages: usize) -> Vec<usize> {
    (0..BLOCK_BYTES / PAGE_BYTES).step_by(pages).collect()
}

#[test]
fn a_large_block_takes_disk_space_only_where_it_was_written() {
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
    // Includes the log.
    let most = (pages.len() * STEP_BYTES) as u64 + (1 << 20);
    assert!(taken <= most, "{taken} bytes for {} pages", pages.len());
    assert_holds(block.as_ptr(), &pages, 7);
    session.close().unwrap();
    drop(store);
    assert_kept(&path, &pages, 7);
}

#[test]
fn later_commits_and_sessions_can_write_to_unallocated_parts() {
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
    // The log needs only the space that was reserved for these commits.
    session.checkpoint().unwrap();
    session.close().unwrap();
    drop(store);
    assert_kept(&path, &[pages, more].concat(), 3);
}

#[test]
fn a_full_disk_is_an_error_of_the_commit_and_keeps_the_changes() {
    if let Some(mount) = Mount::new("ext4", 96) {
        let path = mount.path().join("store");
        let store = Store::create_new(&path).unwrap();
        let (mut session, block) = with_block(&store);
        // 128 steps of 2 MiB do not fit into the file system.
        let pages = every(STEP_BYTES / PAGE_BYTES);
        store_to(block, pages.iter().copied(), 5);
        for _ in 0..2 {
            let error = session.commit().unwrap_err();
            assert!(matches!(error, Error::DiskFull { .. }), "{}: {error}", mount.name);
            assert_holds(block.as_ptr(), &pages, 5);
        }
        // Fewer pages fit.
        store_to(block, pages[16..].iter().copied(), 0);
        session.commit().unwrap();
        // A later commit meets the full disk too, and loses nothing.
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
fn a_rollback_frees_a_large_block() {
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
    // SAFETY: the tag belongs to no Rust type.
    unsafe { session.set_root(Some(block), BLOCK_BYTES as u64, [9; 16], "a block") }.unwrap();
    session.commit().unwrap();
    session.close().unwrap();
    drop(store);
    assert_kept(&path, &[], 0);
}

#[test]
fn a_forked_child_sees_the_large_block_as_of_the_fork() {
    let place = place();
    let path = place.path().join("store");
    let store = Store::create_new(&path).unwrap();
    let (mut session, block) = with_block(&store);
    let pages = every(5000);
    store_to(block, pages.iter().copied(), 4);
    // Later small growth is mapped from the file.
    let small = session.heap().allocate(100_000, 16).unwrap();
    // SAFETY: inside the block; the child calls only `_exit`.
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
    // SAFETY: the root and the small block after it are mapped.
    unsafe {
        assert_eq!(*snapshot.root().address.add(pages[1] * PAGE_BYTES + pages[1] % PAGE_BYTES), 4);
        assert_eq!(*small.add(99_999).as_ref(), 6);
    }
}

#[test]
fn growth_after_a_large_block_outlives_a_fork() {
    const SMALL_BYTES: usize = 4 << 20;
    const LARGE_BYTES: usize = 96 << 20;
    let place = place();
    let path = place.path().join("store");
    let store = Store::create_new(&path).unwrap();
    store.create_raw("block").unwrap();
    let mut session = store.write_raw("block").unwrap();
    // The next region has four times as many addresses, so both blocks fit into it.
    session.heap().allocate(32 << 20, 16).unwrap();
    let block = session.heap().allocate(LARGE_BYTES, 16).unwrap();
    // SAFETY: the tag belongs to no Rust type.
    unsafe { session.set_root(Some(block), LARGE_BYTES as u64, [9; 16], "a block") }.unwrap();
    let small = session.heap().allocate(SMALL_BYTES, 16).unwrap();
    assert_eq!(small.addr().get(), block.addr().get() + LARGE_BYTES);
    // SAFETY: inside the blocks; the child calls only `_exit`.
    let child = unsafe {
        small.write_bytes(5, SMALL_BYTES);
        match libc::fork() {
            0 => libc::_exit(0),
            child => child,
        }
    };
    // SAFETY: waits for the child of this test.
    assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
    // The commit writes the two blocks separately, and the pages at their border are adjacent.
    // SAFETY: inside the blocks.
    unsafe {
        block.add(LARGE_BYTES - 1).write(4);
        small.write_bytes(6, SMALL_BYTES);
    }
    session.commit().unwrap();
    session.close().unwrap();
    drop(store);
    let store = Options::new().verify(Verify::Full).open(&path).unwrap();
    let snapshot = store.read_raw("block").unwrap();
    assert_eq!(snapshot.root().address, block.as_ptr());
    // SAFETY: the snapshot maps both blocks, and no thread stores to them.
    unsafe {
        assert_eq!(block.add(LARGE_BYTES - 1).read(), 4);
        let kept = std::slice::from_raw_parts(small.as_ptr(), SMALL_BYTES);
        assert!(kept.iter().all(|byte| *byte == 6));
    }
}

#[test]
fn a_commit_evicts_pages_on_both_sides_of_a_border_between_regions() {
    const CHUNK_BYTES: usize = 64 << 10;
    let place = place();
    let store = Store::create_new(place.path().join("store")).unwrap();
    // Of these sizes, one makes the second region end where the third can begin.
    let adjacent = (256..256 + 32).any(|chunks| {
        let name = format!("object {chunks}");
        store.create_raw(&name).unwrap();
        let options = WriteOptions::new().hot_bytes_max(0);
        let mut session = store.write_raw_with(&name, &options).unwrap();
        for _ in 0..2 {
            session.heap().allocate(chunks * CHUNK_BYTES, 16).unwrap();
        }
        let regions = session.map().unwrap().regions;
        let is_border = |end: u64| regions.iter().any(|region| region.base == end);
        let Some(first) = regions.iter().find(|r| is_border(r.base + r.length_bytes)) else {
            session.close().unwrap();
            return false;
        };
        session.commit().unwrap();
        let end = first.base + first.length_bytes;
        // SAFETY: the page before the border belongs to the block that fills the region.
        unsafe { (end as *mut u8).sub(PAGE_BYTES).write(1) };
        // Changes the metadata with which the region after the border begins.
        session.heap().allocate(32 * CHUNK_BYTES, 16).unwrap();
        session.commit().unwrap();
        session.close().unwrap();
        true
    });
    assert!(adjacent);
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
    // SAFETY: only ends this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

#[test]
fn a_kill_between_commits_keeps_the_last_one() {
    use std::os::unix::process::ExitStatusExt;
    let place = place();
    let path = place.path().join("store");
    let mut child = common::child("commits_and_is_killed", &[path.to_str().unwrap()]);
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    assert_kept(&path, &every(3000), 8);
}
