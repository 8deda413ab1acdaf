//! A program keeps a store open while other processes replace it. Its handles lead to the store
//! that has the path now, and changes never go to the replaced one.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use evermap::tools::{BackupOptions, RebaseOptions, backup, rebase, restore, undo_rebase};
use evermap::{Error, PVec, ShareOptions, Store};

type Numbers = PVec<u64>;

/// Replaces the store at a path by another one.
type Replace = fn(&Path);

/// Runs the test of this name in another process, in which no store is open.
fn elsewhere(path: &Path, way: &str) {
    let program = std::env::current_exe().unwrap();
    let mut command = std::process::Command::new(program);
    command.args(["child_replaces", "--exact", "--nocapture"]);
    command.env("EVERMAP_REPLACE_AT", path).env("EVERMAP_REPLACE_BY", way);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{way}: {output:?}");
}

fn beside(path: &Path, name: &str) -> PathBuf {
    path.parent().unwrap().join(name)
}

#[test]
fn child_replaces() {
    let Ok(path) = std::env::var("EVERMAP_REPLACE_AT") else { return };
    let path = Path::new(&path);
    match &*std::env::var("EVERMAP_REPLACE_BY").unwrap() {
        "restore" => {
            drop(restore(beside(path, "backup"), path, true, &BackupOptions::new()).unwrap())
        }
        "rebase" => drop(rebase(path, &RebaseOptions::new()).unwrap()),
        "undo" => drop(undo_rebase(path, true).unwrap()),
        "write" => {
            let store = Store::open(path).unwrap();
            store.replace::<Numbers, _>("numbers", [7, 7]).unwrap();
        }
        other => panic!("{other}"),
    }
}

fn by_restore(path: &Path) {
    elsewhere(path, "restore");
}

fn by_rebase(path: &Path) {
    elsewhere(path, "rebase");
}

fn by_undo(path: &Path) {
    elsewhere(path, "undo");
}

fn by_move(path: &Path) {
    std::fs::rename(path, beside(path, "aside")).unwrap();
    backup(beside(path, "backup"), path, &BackupOptions::new()).unwrap();
}

fn by_link(path: &Path) {
    // A deployment that changes the target of a symbolic link.
    let target = beside(path, "target");
    std::fs::rename(path, &target).unwrap();
    backup(beside(path, "backup"), beside(path, "other"), &BackupOptions::new()).unwrap();
    std::os::unix::fs::symlink(beside(path, "other"), path).unwrap();
}

const WAYS: [(&str, Replace); 4] =
    [("restore", by_restore), ("rebase", by_rebase), ("mv", by_move), ("link", by_link)];

/// Creates a store that has `numbers`, and a backup of it.
fn store(directory: &Path) -> PathBuf {
    let path = directory.join("store");
    let store = Store::create_new(&path).unwrap();
    store.create::<Numbers, _>("numbers", [1, 2, 3]).unwrap();
    store.create::<Numbers, _>("others", [4]).unwrap();
    store.create_raw("raw").unwrap();
    store.backup(directory.join("backup")).unwrap();
    path
}

fn numbers(store: &Store) -> Vec<u64> {
    store.read::<Numbers>("numbers").unwrap().to_vec()
}

#[test]
fn a_handle_uses_the_store_that_has_its_path_now() {
    for (way, replace) in WAYS {
        let directory = tempfile::tempdir().unwrap();
        let path = store(directory.path());
        // Two handles that share only the store.
        let (kept, other) = (Store::open(&path).unwrap(), Store::open(&path).unwrap());
        assert_eq!(numbers(&kept), [1, 2, 3]);
        assert_eq!(numbers(&other), [1, 2, 3]);
        replace(&path);
        // Commits of another process to the new store are visible, and the old store's are not.
        elsewhere(&path, "write");
        assert_eq!(numbers(&kept), [7, 7], "{way}");
        assert_eq!(numbers(&other), [7, 7], "{way}");
        assert_eq!(kept.list().unwrap().len(), 3, "{way}");
        assert!(kept.contains("raw").unwrap() && !kept.contains("none").unwrap(), "{way}");
        assert_eq!(kept.info("numbers").unwrap().name, "numbers", "{way}");
        assert_eq!(kept.path(), path, "{way}");

        let mut session = kept.write::<Numbers>("numbers").unwrap();
        session.root_mut().push(8u64).unwrap();
        session.commit().unwrap();
        session.close().unwrap();
        kept.create::<Numbers, _>("made", [9]).unwrap();
        kept.rename("others", "renamed").unwrap();
        kept.remove("raw").unwrap();
        let shared = kept.share_raw("made", &ShareOptions::new()).unwrap();
        shared.close().unwrap();
        let copy = beside(&path, "copy");
        assert_eq!(kept.backup(&copy).unwrap().objects, 3, "{way}");
        drop((kept, other));
        // Another process finds all of it.
        let found = Store::open(&path).unwrap();
        assert_eq!(found.list().unwrap(), ["numbers", "made", "renamed"], "{way}");
        assert_eq!(numbers(&found), [7, 7, 8], "{way}");
    }
}

#[test]
fn each_kind_of_call_can_detect_a_replaced_store() {
    type Call = fn(&Store) -> Result<(), Error>;
    let calls: [(&str, Call); 12] = [
        ("read", |store| store.read::<Numbers>("numbers").map(drop)),
        ("read_raw", |store| store.read_raw("raw").map(drop)),
        ("info", |store| store.info("numbers").map(drop)),
        ("list", |store| store.list().map(drop)),
        ("contains", |store| store.contains("numbers").map(|found| assert!(found))),
        ("write", |store| store.write::<Numbers>("numbers")?.close()),
        ("write_raw", |store| store.write_raw("raw")?.close()),
        ("share", |store| store.share::<Numbers>("numbers")?.close()),
        ("create", |store| store.create::<Numbers, _>("made", [1])),
        ("replace", |store| store.replace::<Numbers, _>("numbers", [1])),
        ("rename", |store| store.rename("numbers", "renamed")),
        ("remove", |store| store.remove("numbers")),
    ];
    for (way, replace) in [WAYS[0], WAYS[2]] {
        for (name, call) in calls {
            let directory = tempfile::tempdir().unwrap();
            let path = store(directory.path());
            let kept = Store::open(&path).unwrap();
            replace(&path);
            call(&kept).unwrap_or_else(|error| panic!("{name} after {way}: {error}"));
        }
    }
}

#[test]
fn open_objects_of_the_old_store_can_be_read_but_not_changed() {
    let directory = tempfile::tempdir().unwrap();
    let path = store(directory.path());
    let kept = Store::open(&path).unwrap();
    let snapshot = kept.read::<Numbers>("others").unwrap();
    by_move(&path);
    elsewhere(&path, "write");
    // The new store has the addresses of the old one.
    assert_eq!(numbers(&kept), [1, 2, 3]);
    assert_eq!(*snapshot, [4]);
    let refused = |result: Result<(), Error>| {
        let error = result.unwrap_err();
        assert!(matches!(&error, Error::Busy { .. }), "{error:?}");
        assert!(error.to_string().contains("was replaced"), "{error}");
    };
    refused(kept.rename("numbers", "renamed"));
    refused(kept.write::<Numbers>("numbers").map(drop));
    refused(kept.create::<Numbers, _>("made", [9]));
    drop(snapshot);
    assert_eq!(numbers(&kept), [7, 7]);
    kept.rename("numbers", "renamed").unwrap();
    drop(kept);
    let aside = Store::open(beside(&path, "aside")).unwrap();
    assert_eq!(aside.list().unwrap(), ["numbers", "others", "raw"]);
}

#[test]
fn a_moved_store_without_a_successor_stays_the_store_of_its_handles() {
    let directory = tempfile::tempdir().unwrap();
    let path = store(directory.path());
    let kept = Store::open(&path).unwrap();
    std::fs::rename(&path, beside(&path, "aside")).unwrap();
    assert_eq!(numbers(&kept), [1, 2, 3]);
    kept.create::<Numbers, _>("made", [9]).unwrap();
    drop(kept);
    let aside = Store::open(beside(&path, "aside")).unwrap();
    assert!(aside.contains("made").unwrap());
}

#[test]
fn a_handle_that_created_objects_does_not_keep_other_processes_from_replacing_the_store() {
    for replace in [by_rebase as Replace, by_restore] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store");
        let store = Store::create_new(&path).unwrap();
        store.create::<Numbers, _>("numbers", [1, 2, 3]).unwrap();
        store.backup(directory.path().join("backup")).unwrap();
        replace(&path);
        assert_eq!(numbers(&store), [1, 2, 3]);
    }
}

#[test]
fn a_rebase_and_its_undo_are_both_followed() {
    let directory = tempfile::tempdir().unwrap();
    let path = store(directory.path());
    let kept = Store::open(&path).unwrap();
    for replace in [by_rebase as Replace, by_undo, by_rebase, by_restore] {
        assert_eq!(numbers(&kept), [1, 2, 3]);
        kept.write::<Numbers>("numbers").unwrap().close().unwrap();
        replace(&path);
    }
    assert_eq!(numbers(&kept), [1, 2, 3]);
}

#[test]
fn a_batch_started_in_the_old_store_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = store(directory.path());
    let kept = Store::open(&path).unwrap();
    let mut batch = kept.batch().unwrap();
    by_move(&path);
    batch.create::<Numbers, _>("made", [9]).unwrap();
    let error = batch.commit().unwrap_err();
    assert!(matches!(&error, Error::Busy { .. }), "{error:?}");
    kept.create::<Numbers, _>("made", [9]).unwrap();
}
