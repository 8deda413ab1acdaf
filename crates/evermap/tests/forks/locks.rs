//! Locks after a parent was killed while its children live.

use std::io::{BufRead, BufReader};
use std::path::Path;

use evermap::{Error, PVec, Store};

use crate::common::{TestStore, argument};
use crate::process::{LIMIT, Numbers, Way, fork, run, start, succeeds, wait_for};
use crate::snapshots::{one_number, store_of_numbers};

/// Tells the child to end, and receives its result.
const END: usize = 0;
const SEEN: usize = 1;

#[test]
#[ignore = "a part of other tests: a parent that is killed while its child lives"]
fn role_parent_that_is_killed() {
    let (Some(path), Some(shared), Some(way)) = (argument(0), argument(1), argument(2)) else {
        return;
    };
    let way = if way == "clone" { Way::Clone } else { Way::Fork };
    let numbers = Numbers::new(shared.as_ref());
    let store = Store::open(path).unwrap();
    store.create::<PVec<u64>, _>("made here", [1, 2, 3]).unwrap();
    let snapshot = store.read::<PVec<u64>>("made here").unwrap();
    let mut session = store.write::<PVec<u64>>("numbers").unwrap();
    session.root_mut().as_mut_slice().fill(1);
    session.commit().unwrap();
    session.root_mut().as_mut_slice().fill(2);
    // Addresses and files that this process holds exclusively while it lives.
    let mut batch = store.batch().unwrap();
    batch.create::<u64, _>("unfinished", 1).unwrap();
    fork(way, || {
        wait_for(|| numbers.get(END) == 1);
        let session_holds = way == Way::Clone || one_number(&session) == Some(2);
        let holds = session_holds && snapshot.iter().copied().eq([1, 2, 3]);
        numbers.set(SEEN, if holds { 1 } else { 2 });
        holds
    });
    println!("\nforked");
    std::thread::sleep(LIMIT);
}

/// Returns the open and mapped files of this process in a store, without logs, which are never
/// locked.
fn files_of(store: &Path) -> Vec<String> {
    let links = std::fs::read_dir("/proc/self/fd").unwrap();
    let opened = links.filter_map(|link| std::fs::read_link(link.unwrap().path()).ok());
    let opened = opened.map(|path| path.to_string_lossy().into_owned());
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mapped = maps.lines().filter_map(|line| Some(line[line.find('/')?..].to_string()));
    let store = store.to_string_lossy();
    let is_locked = |path: &str| {
        path.starts_with(&*store) && !path.ends_with(".log") && Path::new(path).is_file()
    };
    let mut files: Vec<String> = opened.chain(mapped).filter(|path| is_locked(path)).collect();
    files.sort_unstable();
    files.dedup();
    files
}

#[test]
#[ignore = "a part of another test"]
fn role_files() {
    let Some(store) = argument(0).map(|path| Store::open(path).unwrap()) else { return };
    store.create::<u64, _>("read", 1).unwrap();
    store.create::<PVec<u64>, _>("written", [2]).unwrap();
    let snapshot = store.read::<u64>("read").unwrap();
    let mut session = store.write::<PVec<u64>>("written").unwrap();
    session.root_mut().as_mut_slice()[0] = 3;
    session.commit().unwrap();
    let mut batch = store.batch().unwrap();
    batch.create::<u64, _>("unfinished", 1).unwrap();
    let uuids = [snapshot.info().unwrap().uuid, session.info().unwrap().uuid];
    let object = |uuid| store.path().join("objects").join(uuid).to_string_lossy().into_owned();
    let mut objects = uuids.map(object);
    objects.sort_unstable();
    succeeds(fork(Way::Fork, || files_of(store.path()) == objects));
    assert!(files_of(store.path()).len() >= objects.len() + 2, "catalog and leases");
    drop((snapshot, session, batch));
    succeeds(fork(Way::Fork, || files_of(store.path()).is_empty()));
}

#[test]
fn a_child_inherits_no_lockable_file_except_open_objects() {
    let test = TestStore::in_memory();
    run("locks::role_files", &[test.path().to_str().unwrap()]);
}

#[test]
#[ignore = "a part of other tests: makes an object"]
fn role_creator() {
    let Some(path) = argument(0) else { return };
    Store::open(path).unwrap().create::<PVec<u64>, _>("another", [4]).unwrap();
}

fn a_dead_parent_locks_nothing(way: &str, directory: &Path) {
    let test = TestStore {
        store: Store::create_new(directory.join("store")).unwrap(),
        directory: tempfile::tempdir_in(directory).unwrap(),
    };
    let path = directory.join("store");
    test.create::<PVec<u64>, _>("numbers", vec![0; crate::snapshots::LENGTH as usize]).unwrap();
    let shared = directory.join("shared numbers");
    let numbers = Numbers::new(&shared);
    let mut parent = start(
        "locks::role_parent_that_is_killed",
        &[path.to_str().unwrap(), shared.to_str().unwrap(), way],
    );
    let mut output = BufReader::new(parent.0.stdout.take().unwrap());
    let mut line = String::new();
    while line.trim() != "forked" {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0, "the parent ended early");
    }
    assert!(matches!(test.write::<PVec<u64>>("numbers"), Err(Error::Busy { .. })));
    parent.0.kill().unwrap();
    parent.0.wait().unwrap();
    // Immediately, while the child lives: the object, the catalog, and the objects that the parent
    // had created.
    let mut session = test.write::<PVec<u64>>("numbers").unwrap();
    assert_eq!(one_number(&session), Some(1), "the last commit of the parent");
    for number in 3..6 {
        session.root_mut().as_mut_slice().fill(number);
        session.commit().unwrap();
        session.checkpoint().unwrap();
    }
    session.close().unwrap();
    // Another process creates an object, which cleans up after dead processes.
    run("locks::role_creator", &[path.to_str().unwrap()]);
    let mut session = test.write::<PVec<u64>>("made here").unwrap();
    session.root_mut().as_mut_slice().fill(9);
    session.commit().unwrap();
    session.close().unwrap();
    test.rename("made here", "renamed").unwrap();
    // A child of a bare clone keeps the lock on unfinished objects while it lives.
    let unfinished = || std::fs::read_dir(path.join("building")).unwrap().count();
    assert_eq!(unfinished() > 0, way == "clone", "{} files of the dead parent", unfinished());
    assert_eq!(numbers.get(SEEN), 0, "the child lives");
    numbers.set(END, 1);
    assert!(wait_for(|| numbers.get(SEEN) != 0));
    assert_eq!(numbers.get(SEEN), 1, "the memory of the child changed");
    assert_eq!(one_number(&test.read::<PVec<u64>>("numbers").unwrap()), Some(5));
}

#[test]
fn a_killed_parent_leaves_no_locks_while_its_forked_child_lives() {
    let directory = tempfile::tempdir().unwrap();
    a_dead_parent_locks_nothing("fork", directory.path());
}

#[test]
fn a_killed_parent_leaves_no_object_locked_while_a_bare_clone_lives() {
    let directory = tempfile::tempdir().unwrap();
    a_dead_parent_locks_nothing("clone", directory.path());
}

#[test]
fn a_snapshot_keeps_its_lock_exactly_until_it_is_dropped() {
    let test = store_of_numbers();
    let snapshot = test.read::<PVec<u64>>("numbers").unwrap();
    drop(snapshot);
    let mut session = test.write::<PVec<u64>>("numbers").unwrap();
    session.root_mut().as_mut_slice().fill(1);
    session.commit().unwrap();
    assert!(session.checkpoint().unwrap());
    session.close().unwrap();
}
