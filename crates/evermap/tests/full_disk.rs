//! Freeing space works on a full disk: objects can be removed from a file system that is full to
//! its last block.

#![allow(clippy::unwrap_used)]

mod common;

use common::mount::Mount;
use evermap::tools::{CheckOptions, check};
use evermap::{Error, PVec, Store, from_iter};

/// Number of objects of a store. Their names have many lengths, so that the catalog's blocks have
/// many sizes.
fn name(number: usize) -> String {
    format!("{number}-{}", "n".repeat(number * 7 % 120))
}

/// Creates a store with objects, either without any removal or with some.
fn store_with(mount: &Mount, objects: usize, also_removed: usize) -> Store {
    let store = Store::create_new(mount.path().join(format!("store-{objects}"))).unwrap();
    let mut batch = store.batch().unwrap();
    (0..objects + also_removed).for_each(|n| batch.create::<u64, _>(&name(n), n as u64).unwrap());
    batch.commit().unwrap();
    (objects..objects + also_removed).for_each(|n| store.remove(&name(n)).unwrap());
    store
}

fn is_clean(store: &Store) {
    let report = check(store.path(), &CheckOptions::new()).unwrap();
    assert!(report.is_clean(), "{report:?}");
}

#[test]
fn every_object_of_a_store_can_be_removed_from_a_full_disk() {
    for mount in Mount::each(48) {
        for (objects, also_removed) in [(1, 0), (2, 0), (3, 1), (5, 0), (12, 5), (70, 0)] {
            let mut store = store_with(&mount, objects, also_removed);
            // In a different order, by one process or by several.
            for turn in 0..objects {
                let gone = name(turn * 31 % objects.next_multiple_of(2).max(31) % objects);
                let gone = match store.contains(&gone).unwrap() {
                    true => gone,
                    false => store.list().unwrap().pop().unwrap(),
                };
                mount.fill();
                store.remove(&gone).unwrap_or_else(|e| {
                    panic!("{}: {gone} of {objects}, turn {turn}: {e}", mount.name)
                });
                assert!(!store.contains(&gone).unwrap());
                if turn % 3 == 0 {
                    let path = store.path().to_path_buf();
                    drop(store);
                    store = Store::open(path).unwrap();
                }
            }
            assert!(store.list().unwrap().is_empty());
            mount.empty();
            is_clean(&store);
            store.create::<u64, _>("again", 7).unwrap();
            std::fs::remove_dir_all(store.path()).unwrap();
        }
    }
}

#[test]
fn a_large_object_can_release_space_on_a_full_disk() {
    for mount in Mount::each(48) {
        let store = Store::create_new(mount.path().join("store")).unwrap();
        store.create::<PVec<u64>, _>("o", from_iter(0..1_000_000)).unwrap();
        // The first session leaves its log to the next ones.
        let mut session = store.write::<PVec<u64>>("o").unwrap();
        session.root_mut().truncate(1000);
        session.root_mut().shrink_to_fit().unwrap();
        session.commit().unwrap();
        session.root_mut().push(1).unwrap();
        session.commit().unwrap();
        mount.fill();
        let given_back = session.shrink().unwrap();
        assert!(given_back > 6 << 20, "{}: {given_back}", mount.name);
        session.close().unwrap();
        mount.empty();
        is_clean(&store);
    }
}

#[test]
fn a_full_disk_accepts_a_new_object_after_another_is_removed() {
    for mount in Mount::each(16) {
        let store = store_with(&mount, 4, 0);
        mount.fill();
        let refused = store.create::<PVec<u64>, _>("new", from_iter(0..1000));
        assert!(matches!(refused, Err(Error::DiskFull { .. })), "{}: {refused:?}", mount.name);
        store.remove(&name(0)).unwrap();
        store.remove(&name(1)).unwrap();
        store.create::<PVec<u64>, _>("new", from_iter(0..1000)).unwrap();
        mount.empty();
        is_clean(&store);
    }
}
