//! Commits of an open session behind a wall. The results are checked from outside.

use std::path::Path;

use evermap::{RawSession, Store};
use evermap_compartment::wall::Wall;

use super::inside;

const BYTES: usize = 8000;

/// Creates a store with an object whose root is bytes of value 1.
fn make(directory: &Path) {
    let store = Store::create_new(directory.join("store")).unwrap();
    store.create_raw("heap").unwrap();
    let mut session = store.write_raw("heap").unwrap();
    let block = session.heap().allocate(BYTES, 16).unwrap();
    // SAFETY: the tag belongs to no Rust type.
    unsafe { session.set_root(Some(block), BYTES as u64, [0; 16], "bytes") }.unwrap();
    fill(&session, 1);
    session.commit().unwrap();
    session.close().unwrap();
}

fn fill(session: &RawSession, byte: u8) {
    // SAFETY: the root has that size, and no other reader exists.
    unsafe { session.root().address.write_bytes(byte, BYTES) };
}

/// Checks the object and returns the byte that the last commit left in it.
fn left(directory: &Path) -> u8 {
    let report = evermap::tools::check(directory.join("store"), &Default::default()).unwrap();
    assert!(report.is_clean(), "{report:?}");
    let store = Store::open(directory.join("store")).unwrap();
    let snapshot = store.read_raw("heap").unwrap();
    // SAFETY: the root has that size.
    let bytes = unsafe { std::slice::from_raw_parts(snapshot.root().address, BYTES) };
    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "partial commit");
    bytes[0]
}

/// Opens the object and commits twice, which creates its log and its watch over changed pages.
fn opened(directory: &Path) -> (Store, RawSession) {
    let store = Store::open(directory.join("store")).unwrap();
    let mut session = store.write_raw("heap").unwrap();
    for byte in [2, 3] {
        fill(&session, byte);
        session.commit().unwrap();
    }
    (store, session)
}

/// Runs a part on a new store and returns the byte it left.
fn left_by(part: &str) -> u8 {
    let directory = tempfile::tempdir().unwrap();
    make(directory.path());
    inside(part, directory.path());
    left(directory.path())
}

pub fn commits() {
    assert_eq!(left_by("commits"), 30);
}

pub fn commits_inside(directory: &Path) {
    let (_store, mut session) = opened(directory);
    Wall::new().allow_commits().close().unwrap();
    super::attempts::all_are_refused(super::attempts::DANGEROUS);
    for byte in 10..=20 {
        fill(&session, byte);
        assert!(session.commit().unwrap());
    }
    fill(&session, 99);
    session.rollback().unwrap();
    // SAFETY: the root has that size.
    assert_eq!(unsafe { *session.root().address }, 20);
    assert!(session.checkpoint().unwrap());
    for byte in 21..=30 {
        fill(&session, byte);
        assert!(session.commit().unwrap());
    }
    session.sync().unwrap();
    assert!(std::fs::File::open(directory.join("store")).is_err());
}

pub fn grows_in_place() {
    assert_eq!(left_by("grows-in-place"), 42);
}

pub fn grows_in_place_inside(directory: &Path) {
    let (_store, mut session) = opened(directory);
    session.reserve(1 << 20).unwrap();
    session.commit().unwrap();
    let regions = session.regions().len();
    Wall::new().allow_commits().close().unwrap();
    let block = session.heap().allocate_zeroed(700 << 10, 16).unwrap();
    fill(&session, 41);
    assert!(session.commit().unwrap());
    // SAFETY: the block was just allocated with that size.
    unsafe { block.write_bytes(5, 700 << 10) };
    fill(&session, 42);
    assert!(session.commit().unwrap());
    assert_eq!(session.regions().len(), regions);

    // Addresses past the regions need the catalog.
    session.heap().allocate(64 << 20, 16).unwrap();
    assert!(session.regions().len() > regions);
    fill(&session, 43);
    let error = session.commit().unwrap_err();
    assert!(matches!(error, evermap::Error::NotPermitted { .. }), "{error:?}");
    session.rollback().unwrap();
    // SAFETY: the root has that size.
    assert_eq!(unsafe { *session.root().address }, 42);
}

pub fn gains_regions() {
    assert_eq!(left_by("gains-regions"), 51);
}

pub fn gains_regions_inside(directory: &Path) {
    let (_store, mut session) = opened(directory);
    let regions = session.regions().len();
    Wall::new().allow_commits_in(directory.join("store")).close().unwrap();
    for _ in 0..3 {
        let block = session.heap().allocate(40 << 20, 16).unwrap();
        // SAFETY: the block was just allocated with that size.
        unsafe { block.write_bytes(6, 40 << 20) };
        assert!(session.commit().unwrap());
    }
    fill(&session, 51);
    assert!(session.commit().unwrap());
    assert!(session.regions().len() > regions);
    assert!(std::fs::File::open("/proc/version").is_err());
    session.close().unwrap();
}

pub fn without_permission() {
    assert_eq!(left_by("without-permission"), 3);
}

pub fn without_permission_inside(directory: &Path) {
    let (_store, mut session) = opened(directory);
    Wall::new().close().unwrap();
    fill(&session, 4);
    assert!(session.commit().is_err());
}
