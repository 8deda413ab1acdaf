//! What stays locked when a parent is killed and its children live on.

use std::io::{BufRead, BufReader};
use std::path::Path;

use evermap::{Error, PVec, Store};

use crate::common::{TestStore, argument};
use crate::process::{LIMIT, Numbers, Way, fork, start, wait_for};
use crate::snapshots::{one_number, store_of_numbers};

/// Tells the child to end, and what it saw.
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
    // At once, while the child lives: the object, the catalog, and what the parent had made.
    let mut session = test.write::<PVec<u64>>("numbers").unwrap();
    assert_eq!(one_number(&session), Some(1), "the last commit of the parent");
    for number in 3..6 {
        session.root_mut().as_mut_slice().fill(number);
        session.commit().unwrap();
        session.checkpoint().unwrap();
    }
    session.close().unwrap();
    test.create::<PVec<u64>, _>("another", [4]).unwrap();
    let mut session = test.write::<PVec<u64>>("made here").unwrap();
    session.root_mut().as_mut_slice().fill(9);
    session.commit().unwrap();
    session.close().unwrap();
    test.rename("made here", "renamed").unwrap();
    assert_eq!(numbers.get(SEEN), 0, "the child lives");
    numbers.set(END, 1);
    assert!(wait_for(|| numbers.get(SEEN) != 0));
    assert_eq!(numbers.get(SEEN), 1, "what the child had has changed");
    assert_eq!(one_number(&test.read::<PVec<u64>>("numbers").unwrap()), Some(5));
}

#[test]
fn a_killed_parent_leaves_nothing_locked_though_its_forked_child_lives() {
    let directory = tempfile::tempdir().unwrap();
    a_dead_parent_locks_nothing("fork", directory.path());
}

#[test]
fn a_killed_parent_leaves_no_object_locked_though_a_child_of_a_bare_clone_lives() {
    let directory = tempfile::tempdir().unwrap();
    a_dead_parent_locks_nothing("clone", directory.path());
}

#[test]
fn a_snapshot_keeps_its_lock_until_it_is_dropped_and_no_longer() {
    let test = store_of_numbers();
    let snapshot = test.read::<PVec<u64>>("numbers").unwrap();
    drop(snapshot);
    let mut session = test.write::<PVec<u64>>("numbers").unwrap();
    session.root_mut().as_mut_slice().fill(1);
    session.commit().unwrap();
    assert!(session.checkpoint().unwrap());
    session.close().unwrap();
}
