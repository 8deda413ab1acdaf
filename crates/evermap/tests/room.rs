//! Objects created with reserved room, and the log that a large object keeps between sessions.

#![allow(clippy::unwrap_used)]

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use evermap::Store;

const MIB: u64 = 1 << 20;

fn store() -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::create_new(directory.path().join("store")).unwrap();
    (directory, store)
}

fn object_file(store: &Path) -> PathBuf {
    let names = std::fs::read_dir(store.join("objects")).unwrap().map(|e| e.unwrap().path());
    let mut files: Vec<PathBuf> = names.filter(|path| path.extension().is_none()).collect();
    assert_eq!(files.len(), 1);
    files.pop().unwrap()
}

fn log_of(store: &Path) -> PathBuf {
    object_file(store).with_extension("log")
}

fn assert_clean(store: &Store) {
    let report = evermap::tools::check(store.path(), &Default::default()).unwrap();
    assert!(report.is_clean(), "{report:?}");
}

/// Stores a number into its own block, commits, and returns the block.
fn commit_number(store: &Store, number: u64) -> *mut u64 {
    let mut session = store.write_raw("o").unwrap();
    let block = session.heap().allocate(8, 8).unwrap().cast::<u64>();
    // SAFETY: the block belongs to this function.
    unsafe { block.write(number) };
    // SAFETY: the tag belongs to no Rust type.
    unsafe { session.set_root(Some(block.cast()), 8, [0; 16], "a number") }.unwrap();
    session.commit().unwrap();
    session.close().unwrap();
    block.as_ptr()
}

fn number(store: &Store) -> u64 {
    let snapshot = store.read_raw("o").unwrap();
    // SAFETY: the root is the number that `commit_number` stored.
    unsafe { snapshot.root().address.cast::<u64>().read() }
}

#[test]
fn an_object_created_with_room_has_it_from_the_start() {
    let (_directory, store) = store();
    store.create_raw_sized("o", 5 * MIB).unwrap();
    assert_clean(&store);
    let file = object_file(store.path());
    let made = std::fs::metadata(&file).unwrap();
    assert!(made.len() > 5 * MIB && made.blocks() * 512 > 5 * MIB, "{} bytes", made.len());

    let mut session = store.write_raw("o").unwrap();
    session.heap().allocate(5 * MIB as usize, 16).unwrap();
    session.commit().unwrap();
    assert_eq!(std::fs::metadata(&file).unwrap().len(), made.len(), "the room was used");
    session.reserve(4 * MIB).unwrap();
    assert_eq!(session.regions().len(), 1, "there are addresses for the same size again");
    session.close().unwrap();
    assert_clean(&store);
}

/// Upper bound of the disk's read-ahead; up to 8 MiB occur.
#[test]
fn reserved_room_is_not_read_into_memory() {
    const EXT4: i64 = 0xef53;
    let (_directory, store) = store();
    store.create_raw_sized("o", 32 * MIB).unwrap();
    let file = std::fs::File::open(object_file(store.path())).unwrap();
    if rustix::fs::fstatfs(&file).unwrap().f_type as i64 != EXT4 {
        println!("skipped: only ext4 reports reserved room as a hole");
        return;
    }
    // There, reserved room is a hole until it has pages in memory.
    let hole = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0)).unwrap();
    assert!(hole <= MIB, "{hole} bytes from the beginning");
}

#[test]
fn the_first_session_keeps_the_reserved_room() {
    let (_directory, store) = store();
    store.create_raw_sized("o", 5 * MIB).unwrap();
    let file = object_file(store.path());
    let made = std::fs::metadata(&file).unwrap();
    commit_number(&store, 1);
    let after = std::fs::metadata(&file).unwrap();
    assert_eq!((after.len(), after.blocks() >= made.blocks()), (made.len(), true));
    commit_number(&store, 2);
    let later = std::fs::metadata(&file).unwrap();
    assert!(later.blocks() * 512 < 2 * MIB, "a later session releases free space");
    assert_eq!(number(&store), 2);
    assert_clean(&store);
}

#[test]
fn room_that_fits_into_no_arena_is_an_error_and_leaves_nothing() {
    let (_directory, store) = store();
    for bytes in [1 << 44, u64::MAX] {
        let refused = store.create_raw_sized("o", bytes);
        assert!(
            matches!(
                refused,
                Err(evermap::Error::OutOfAddresses { .. } | evermap::Error::DiskFull { .. })
            ),
            "{refused:?}"
        );
    }
    assert!(!store.contains("o").unwrap());
    assert_eq!(std::fs::read_dir(store.path().join("building")).unwrap().count(), 0);
    store.create_raw_sized("o", 0).unwrap();
    assert_clean(&store);
}

#[test]
fn a_large_object_keeps_its_log_and_the_next_session_continues_it() {
    let (_directory, store) = store();
    store.create_raw_sized("o", 2 * MIB).unwrap();
    let log = log_of(store.path());
    assert!(!log.exists(), "there is no log before the first commit");
    commit_number(&store, 1);
    let first = std::fs::metadata(&log).unwrap();
    assert_eq!(first.len(), 64 * 1024);
    assert_clean(&store);
    for next in 2..100 {
        commit_number(&store, next);
        assert_eq!(number(&store), next);
    }
    assert_clean(&store);
    // A large log is removed, and another one is created.
    assert!(!log.exists() || std::fs::metadata(&log).unwrap().len() == first.len());
    store.remove("o").unwrap();
    assert_eq!(std::fs::read_dir(store.path().join("objects")).unwrap().count(), 0);
}

#[test]
fn a_small_object_keeps_no_log() {
    let (_directory, store) = store();
    store.create_raw("o").unwrap();
    commit_number(&store, 1);
    assert!(!log_of(store.path()).exists());
}

#[test]
fn a_closed_object_does_not_need_the_log_that_it_keeps() {
    let (_directory, store) = store();
    store.create_raw_sized("o", 2 * MIB).unwrap();
    commit_number(&store, 1);
    let log = log_of(store.path());
    for spoil in [None, Some(&b""[..]), Some(&b"EVERLOG\nnot of this object"[..])] {
        match spoil {
            None => std::fs::remove_file(&log).unwrap(),
            Some(bytes) => std::fs::write(&log, bytes).unwrap(),
        }
        assert_eq!(number(&store), 1);
        commit_number(&store, 1);
        assert!(log.exists());
        assert_clean(&store);
    }
}

#[test]
fn a_kept_log_that_does_not_match_is_not_continued() {
    let (_directory, store) = store();
    store.create_raw_sized("o", 2 * MIB).unwrap();
    commit_number(&store, 1);
    let file = object_file(store.path());
    let old = std::fs::read(&file).unwrap();
    commit_number(&store, 2);
    std::fs::write(&file, &old).unwrap();
    assert_eq!(number(&store), 1);
    commit_number(&store, 3);
    assert_eq!(number(&store), 3);
    assert_clean(&store);
}
