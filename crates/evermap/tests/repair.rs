//! Effects of a repair: what it restores, what it leaves unchanged, and where it puts removed
//! files.
#![allow(clippy::unwrap_used)]

mod common;

use std::path::{Path, PathBuf};

use common::{TestStore, object_file};
use evermap::tools::{CheckOptions, Report, Severity, check};
use evermap::{Error, Options, PVec, Store, from_iter};

fn look(path: &Path) -> Report {
    check(path, &CheckOptions::new()).unwrap()
}

fn repair(path: &Path) -> Report {
    check(path, &CheckOptions::new().repair(true)).unwrap()
}

#[track_caller]
fn assert_nothing_found(path: &Path) {
    let report = look(path);
    let nothing = report.findings.is_empty() && report.unchecked.is_empty();
    assert!(nothing, "{:#?}\n{:?}", report.findings, report.unchecked);
}

/// Creates a closed store with objects of several sizes, one of which was renamed while it was
/// being read.
fn several() -> (PathBuf, tempfile::TempDir, Vec<(String, u64)>) {
    let test = TestStore::in_memory();
    let mut sums = Vec::new();
    for n in 0..12u64 {
        let name = format!("object {n}");
        test.create::<PVec<u64>, _>(&name, from_iter(0..n * 5_000)).unwrap();
        sums.push((name, (0..n * 5_000).sum()));
    }
    // A second region, and a second arena.
    let mut session = test.write::<PVec<u64>>("object 3").unwrap();
    session.root_mut().extend(0..400_000u64).unwrap();
    session.commit().unwrap();
    session.close().unwrap();
    sums[3].1 += (0..400_000u64).sum::<u64>();
    let (path, directory) = test.close();
    (path, directory, sums)
}

#[track_caller]
fn assert_has(path: &Path, sums: &[(String, u64)]) {
    let store = Store::open(path).unwrap();
    let mut names = store.list().unwrap();
    let mut expected: Vec<String> = sums.iter().map(|(name, _)| name.clone()).collect();
    names.sort();
    expected.sort();
    assert_eq!(names, expected);
    for (name, sum) in sums {
        assert_eq!(store.read::<PVec<u64>>(name).unwrap().iter().sum::<u64>(), *sum, "{name}");
    }
    // The store remains usable: new objects get free addresses.
    store.create::<PVec<u64>, _>("one more", from_iter(0..100_000)).unwrap();
    let mut session = store.write::<PVec<u64>>(&sums[5].0).unwrap();
    session.root_mut().extend(0..300_000u64).unwrap();
    session.commit().unwrap();
    session.rollback().unwrap();
    session.close().unwrap();
    let mut session = store.write::<PVec<u64>>(&sums[5].0).unwrap();
    let len = session.len() - 300_000;
    session.root_mut().truncate(len);
    session.commit().unwrap();
    session.close().unwrap();
    store.remove("one more").unwrap();
}

#[test]
fn a_lost_catalog_is_recreated_with_every_object() {
    let (path, _directory, sums) = several();
    for lost in [&["catalog"][..], &["catalog.log"], &["catalog", "catalog.log"]] {
        for file in lost {
            std::fs::remove_file(path.join(file)).unwrap();
        }
        assert!(look(&path).is_damaged());
        let report = repair(&path);
        assert!(!report.is_damaged(), "{report:#?}");
        assert!(report.actions[0].contains("12 objects"), "{:?}", report.actions);
        assert_nothing_found(&path);
        assert_has(&path, &sums);
        assert_nothing_found(&path);
    }
}

#[test]
fn a_damaged_catalog_is_kept_and_replaced_and_its_readable_names_are_used() {
    let (path, _directory, mut sums) = several();
    {
        // The file of a renamed object with a reader keeps its old name.
        let store = Store::open(&path).unwrap();
        let snapshot = store.read::<PVec<u64>>("object 7").unwrap();
        store.rename("object 7", "renamed").unwrap();
        sums[7].0 = "renamed".to_string();
        drop(snapshot);
    }
    let catalog = path.join("catalog");
    let whole = std::fs::read(&catalog).unwrap();
    // The allocator's metadata is damaged; names and entries are still there.
    let mut bytes = whole.clone();
    bytes[4096] = 0x66;
    std::fs::write(&catalog, &bytes).unwrap();
    let report = repair(&path);
    assert!(!report.is_damaged(), "{report:#?}");
    let kept = report.kept_in.as_ref().unwrap();
    assert_eq!(std::fs::read(kept.join("catalog")).unwrap(), bytes);
    assert_has(&path, &sums);
    // Nothing is left of it, and the object files have the old name.
    std::fs::write(&catalog, b"nothing").unwrap();
    let report = repair(&path);
    assert!(!report.is_damaged(), "{report:#?}");
    sums[7].0 = "object 7".to_string();
    assert_has(&path, &sums);
}

#[test]
fn the_newer_of_two_files_with_one_name_keeps_it_and_the_other_gets_its_id() {
    let test = TestStore::in_memory();
    test.create::<u64, _>("twice", 1).unwrap();
    let old = object_file(&test.path());
    let bytes = std::fs::read(&old).unwrap();
    test.replace::<u64, _>("twice", 2).unwrap();
    let (path, _directory) = test.close();
    // As if the old one had not been removed when the catalog was lost.
    std::fs::write(&old, bytes).unwrap();
    std::fs::remove_file(path.join("catalog")).unwrap();
    let report = repair(&path);
    assert!(!report.is_damaged(), "{report:#?}");
    let store = Store::open(&path).unwrap();
    assert_eq!(*store.read::<u64>("twice").unwrap(), 2);
    let other = format!("recovered-{}", old.file_name().unwrap().to_str().unwrap());
    assert_eq!(*store.read::<u64>(&other).unwrap(), 1);
    assert!(report.actions.iter().any(|action| action.contains(&other)), "{report:#?}");
}

#[test]
fn a_removed_object_does_not_return_with_a_recreated_catalog() {
    let test = TestStore::in_memory();
    test.create::<u64, _>("removed", 1).unwrap();
    let old = object_file(&test.path());
    let bytes = std::fs::read(&old).unwrap();
    test.create::<u64, _>("stays", 2).unwrap();
    test.remove("removed").unwrap();
    let (path, _directory) = test.close();
    // A kill between the catalog's commit and the removal of the file; then damage.
    std::fs::write(&old, &bytes).unwrap();
    let catalog = path.join("catalog");
    let mut damaged = std::fs::read(&catalog).unwrap();
    damaged[4096] = 0x66;
    std::fs::write(&catalog, damaged).unwrap();
    let report = repair(&path);
    assert!(!report.is_damaged(), "{report:#?}");
    assert_nothing_found(&path);
    assert_eq!(Store::open(&path).unwrap().list().unwrap(), ["stays"]);
    let kept = report.kept_in.unwrap().join("objects").join(old.file_name().unwrap());
    assert_eq!(std::fs::read(kept).unwrap(), bytes);
}

#[test]
fn a_catalog_of_thousands_is_recreated() {
    let test = TestStore::in_memory();
    let mut batch = test.batch().unwrap();
    for n in 0..3_000u64 {
        batch.create::<u64, _>(&format!("{n}{}", "x".repeat(200)), n).unwrap();
    }
    batch.commit().unwrap();
    let (path, _directory) = test.close();
    std::fs::remove_file(path.join("catalog")).unwrap();
    let report = repair(&path);
    assert!(!report.is_damaged(), "{:#?}", report.findings);
    let store = Store::open(&path).unwrap();
    assert_eq!(store.list().unwrap().len(), 3_000);
    assert_eq!(*store.read::<u64>(&format!("77{}", "x".repeat(200))).unwrap(), 77);
    store.create::<u64, _>("new", 1).unwrap();
    drop(store);
    assert_nothing_found(&path);
}

#[test]
fn names_without_files_are_removed_and_files_without_names_get_one() {
    let (path, _directory, mut sums) = several();
    // An object whose file is missing, and (with an older catalog) an object that has no name.
    let (old, old_log) =
        (std::fs::read(path.join("catalog")), std::fs::read(path.join("catalog.log")));
    {
        let store = Store::open(&path).unwrap();
        store.create::<PVec<u64>, _>("unknown", from_iter(0..10)).unwrap();
        let gone = store.info("object 2").unwrap().uuid;
        drop(store);
        std::fs::remove_file(path.join("objects").join(gone)).unwrap();
    }
    std::fs::write(path.join("catalog"), old.unwrap()).unwrap();
    std::fs::write(path.join("catalog.log"), old_log.unwrap()).unwrap();
    let report = look(&path);
    assert_eq!(report.findings.len(), 2, "{report:#?}");
    assert!(report.findings.iter().all(|f| f.repairable && f.severity == Severity::Damage));
    let report = repair(&path);
    assert!(!report.is_damaged(), "{report:#?}");
    assert_eq!(report.actions.len(), 2, "{report:#?}");
    assert!(report.kept_in.as_ref().unwrap().join("catalog").exists());
    assert_nothing_found(&path);
    sums.remove(2);
    sums.push(("unknown".to_string(), 45));
    assert_has(&path, &sums);
}

#[test]
fn leftovers_are_moved_away_and_files_in_use_stay() {
    let (path, _directory, sums) = several();
    let litter = "00112233445566778899aabbccddeeff";
    std::fs::write(path.join("building").join(litter), b"half an object").unwrap();
    let store = Store::open(&path).unwrap();
    let file = path.join("objects").join(store.info("object 1").unwrap().uuid);
    let moved = store.info("object 4").unwrap().uuid;
    std::fs::write(file.with_extension("log"), b"an old log").unwrap();
    std::fs::rename(path.join("objects").join(&moved), path.join("building").join(&moved)).unwrap();
    // Another process is creating an object.
    let mut batch = store.batch().unwrap();
    batch.create::<u64, _>("in the making", 1).unwrap();
    let report = look(&path);
    assert_eq!(report.findings.len(), 3, "{report:#?}");
    assert!(report.findings.iter().all(|f| f.severity == Severity::Leftover && f.repairable));
    assert!(report.is_clean(), "leftovers are no damage");
    // The store is open here; a repair works in that case too.
    let report = repair(&path);
    assert_eq!(report.actions.len(), 3, "{report:#?}");
    let kept = report.kept_in.as_ref().unwrap();
    assert_eq!(std::fs::read(kept.join("building").join(litter)).unwrap(), b"half an object");
    batch.commit().unwrap();
    assert_eq!(*store.read::<u64>("in the making").unwrap(), 1);
    store.remove("in the making").unwrap();
    drop(store);
    assert_nothing_found(&path);
    assert_has(&path, &sums);
}

#[test]
fn a_damaged_object_is_removed_only_on_request() {
    let (path, _directory, mut sums) = several();
    let uuid = Store::open(&path).unwrap().info("object 6").unwrap().uuid;
    let file = path.join("objects").join(&uuid);
    let mut bytes = std::fs::read(&file).unwrap();
    bytes.truncate(bytes.len() / 2);
    std::fs::write(&file, &bytes).unwrap();
    let report = repair(&path);
    assert!(report.is_damaged() && report.actions.is_empty(), "{report:#?}");
    assert_eq!(std::fs::read(&file).unwrap(), bytes);
    let report = check(&path, &CheckOptions::new().repair(true).quarantine(true)).unwrap();
    assert!(!report.is_damaged(), "{report:#?}");
    let kept = report.kept_in.as_ref().unwrap();
    assert_eq!(std::fs::read(kept.join("objects").join(&uuid)).unwrap(), bytes);
    assert!(matches!(
        Store::open(&path).unwrap().read::<PVec<u64>>("object 6"),
        Err(Error::NotFound { .. })
    ));
    sums.remove(6);
    assert_has(&path, &sums);
}

#[test]
fn a_store_that_is_open_elsewhere_does_not_get_a_new_catalog() {
    let (path, _directory, _) = several();
    let store = Store::open(&path).unwrap();
    let snapshot = store.read::<PVec<u64>>("object 1").unwrap();
    std::fs::write(path.join("catalog.log"), b"").unwrap();
    let error = check(&path, &CheckOptions::new().repair(true)).unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    drop(snapshot);
}

#[test]
fn objects_after_the_first_arena_are_found() {
    let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let path = directory.path().join("store");
    let store = Options::new().arena_bytes(1 << 30).create_new(&path).unwrap();
    // Objects that are large in addresses, not in bytes, occupy the addresses.
    let mut sums = Vec::new();
    for n in 0..40u64 {
        let name = format!("object {n}");
        let mut batch = store.batch().unwrap();
        batch.replace_sized::<PVec<u64>, _>(&name, from_iter(0..n), 40 << 20).unwrap();
        batch.commit().unwrap();
        sums.push((name, (0..n).sum()));
    }
    drop(store);
    let first = look(&path);
    assert!(first.findings.is_empty(), "{first:#?}");
    std::fs::remove_file(path.join("catalog")).unwrap();
    let report = repair(&path);
    assert!(!report.is_damaged(), "{report:#?}");
    assert_has(&path, &sums);
}
