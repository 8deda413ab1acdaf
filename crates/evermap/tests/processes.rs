//! Many processes and many objects.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::Read;

use common::{TestStore, argument, child};
use evermap::{PVec, Store};

#[test]
#[ignore = "a child"]
fn child_creates_and_edits() {
    let (Some(path), Some(number)) = (argument(0), argument(1)) else { return };
    let store = Store::open(&path).unwrap();
    for i in 0..25u64 {
        let name = format!("{number}-{i}");
        store.create::<PVec<u64>, _>(&name, vec![i; 3000]).unwrap();
        let mut session = store.write::<PVec<u64>>(&name).unwrap();
        for n in 0..40_000 {
            session.root_mut().push(n).unwrap();
        }
        session.commit().unwrap();
        session.close().unwrap();
        if i % 5 == 0 {
            store.remove(&name).unwrap();
        }
        if i % 5 == 1 {
            store.rename(&name, &format!("{number}-{i}-renamed")).unwrap();
        }
    }
}

#[test]
fn objects_of_four_concurrent_processes_never_overlap() {
    let test = TestStore::new();
    let path = test.path();
    let children: Vec<_> = (0..4)
        .map(|n| child("child_creates_and_edits", &[path.to_str().unwrap(), &n.to_string()]))
        .collect();
    for mut child in children {
        let mut output = String::new();
        child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
        assert!(child.wait().unwrap().success(), "{output}");
    }
    let names = test.list().unwrap();
    assert_eq!(names.len(), 80);
    let mut regions = Vec::new();
    for name in &names {
        let v = test.read::<PVec<u64>>(name).unwrap();
        let i: u64 = name.split('-').nth(1).unwrap().parse().unwrap();
        assert_eq!((v.len(), v[0], v[42_999]), (43_000, i, 39_999));
        regions.extend(v.info().unwrap().regions);
    }
    regions.sort_unstable();
    assert!(regions.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0), "regions overlap");
}

#[test]
fn ten_thousand_objects_in_one_store_open_like_one() {
    let test = TestStore::in_memory();
    let mut batch = test.batch().unwrap();
    for n in 0..10_000u64 {
        batch.replace_sized::<PVec<u64>, _>(&format!("object {n}"), [n, n + 1], 4096).unwrap();
    }
    batch.commit().unwrap();
    let (path, _directory) = test.close();
    let store = Store::open(&path).unwrap();
    assert_eq!(store.list().unwrap().len(), 10_000);
    for n in (0..10_000u64).step_by(97) {
        let v = store.read::<PVec<u64>>(&format!("object {n}")).unwrap();
        assert_eq!(**v, [n, n + 1]);
    }
    // All are open at once.
    let open: Vec<_> = (0..500u64)
        .map(|n| store.read::<PVec<u64>>(&format!("object {}", n * 20)).unwrap())
        .collect();
    assert!(open.iter().enumerate().all(|(n, v)| v[0] == n as u64 * 20));
}
