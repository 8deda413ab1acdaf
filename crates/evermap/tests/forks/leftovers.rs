//! Objects of the parent that a child drops: the parent keeps them.

use std::sync::atomic::{AtomicBool, Ordering};

use evermap::{Error, PVec, Store, tools};

use crate::common::{TestStore, argument};
use crate::process::{Way, fork, run, succeeds};
use crate::snapshots::LENGTH;

fn with_store(role: &str) -> TestStore {
    let test = TestStore::in_memory();
    run(&format!("leftovers::{role}"), &[test.path().to_str().unwrap()]);
    let report = tools::check(test.path(), &tools::CheckOptions::new()).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    test
}

#[test]
#[ignore = "a part of another test: children of a parent that fills a batch"]
fn role_batch() {
    let Some(store) = argument(0).map(|path| Store::open(path).unwrap()) else { return };
    for way in [Way::Fork, Way::Clone] {
        let mut batch = store.batch().unwrap();
        for number in 0..20 {
            batch.create::<u64, _>(&format!("{way:?} {number}"), number).unwrap();
        }
        // One child drops the batch, one commits it, one continues to fill it.
        let mut batch = Some(batch);
        succeeds(fork(way, || batch.take().is_some()));
        succeeds(fork(way, || matches!(batch.take().unwrap().commit(), Err(Error::Forked { .. }))));
        succeeds(fork(way, || {
            let more = batch.as_mut().unwrap().create::<u64, _>("of a child", 1);
            matches!(more, Err(Error::Forked { .. }))
        }));
        batch.unwrap().commit().unwrap();
    }
    // Another thread fills a batch while this one forks.
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..10 {
                let mut batch = store.batch().unwrap();
                for number in 0..10 {
                    let name = format!("{round} {number}");
                    batch.create::<PVec<u64>, _>(&name, vec![round; LENGTH as usize]).unwrap();
                }
                batch.commit().unwrap();
            }
            stop.store(true, Ordering::Relaxed);
        });
        while !stop.load(Ordering::Relaxed) {
            succeeds(fork(Way::Fork, || matches!(store.list(), Err(Error::Forked { .. }))));
        }
    });
}

#[test]
fn a_child_that_drops_a_batch_does_not_affect_its_parent() {
    let test = with_store("role_batch");
    assert_eq!(test.list().unwrap().len(), 140);
    for round in 0..10 {
        let last = test.read::<PVec<u64>>(&format!("{round} 9")).unwrap();
        assert!(last.iter().all(|word| *word == round) && last.len() as u64 == LENGTH);
    }
}

#[test]
#[ignore = "a part of another test: children of a parent that copies and restores a store"]
fn role_copies() {
    let Some(path) = argument(0) else { return };
    let store = Store::open(&path).unwrap();
    for number in 0..20 {
        let name = format!("object {number}");
        store.create::<PVec<u64>, _>(&name, vec![number; LENGTH as usize]).unwrap();
    }
    let place = std::path::Path::new(&path).parent().unwrap();
    let stop = AtomicBool::new(false);
    let children = std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..10 {
                let copy = place.join(format!("copy {round}"));
                store.backup(&copy).unwrap();
                let restored = place.join(format!("restored {round}"));
                tools::restore(&copy, &restored, false, &tools::BackupOptions::new()).unwrap();
            }
            stop.store(true, Ordering::Relaxed);
        });
        let mut children = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            // Some children live on and must hold nothing that is being copied.
            match children.len() < 20 {
                true => children.push(fork(Way::Fork, || {
                    std::thread::sleep(std::time::Duration::from_secs(100));
                    true
                })),
                false => succeeds(fork(Way::Fork, || true)),
            }
        }
        children
    });
    drop(store);
    let opened = ["copy 9", "restored 9"].map(|name| {
        let store = Store::open(place.join(name)).unwrap();
        let mut session = store.write::<PVec<u64>>("object 19").unwrap();
        let before = session[0];
        session.root_mut().as_mut_slice()[0] = 1;
        session.commit().unwrap();
        assert!(session.checkpoint().unwrap(), "a child reads it");
        session.close().unwrap();
        before
    });
    assert_eq!(opened, [19, 19]);
    for child in children {
        // SAFETY: the child belongs to this process and was not waited for.
        unsafe { libc::kill(child, libc::SIGKILL) };
        crate::process::end_of(child);
    }
}

#[test]
fn children_forked_during_a_backup_or_a_restore_hold_none_of_its_files() {
    with_store("role_copies");
}

#[test]
#[ignore = "a part of another test: a child fills the addresses that it does not have"]
fn role_addresses() {
    let Some(store) = argument(0).map(|path| Store::open(path).unwrap()) else { return };
    for way in [Way::Fork, Way::Clone] {
        let name = format!("{way:?}");
        store.create::<PVec<u64>, _>(&name, vec![0; LENGTH as usize]).unwrap();
        let snapshot = store.read::<PVec<u64>>(&name).unwrap();
        drop(snapshot);
        let mut session = store.write::<PVec<u64>>(&name).unwrap();
        for number in 1..4 {
            session.root_mut().as_mut_slice().fill(number);
            session.commit().unwrap();
            session.checkpoint().unwrap();
        }
        let mut owned = Some(session);
        let child = fork(way, || {
            // In every size that the library maps, so that each hole is filled.
            let mut mapped = Vec::new();
            for shift in (12..=31).rev() {
                for _ in 0..8 {
                    mapped.push((map(1 << shift), 1usize << shift));
                }
            }
            drop(owned.take());
            mapped.into_iter().all(|(at, bytes)| is_mapped(at, bytes))
        });
        succeeds(child);
        owned.unwrap().close().unwrap();
    }
}

fn map(bytes: usize) -> usize {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: the kernel chooses the address.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    at as usize
}

/// `mincore` fails where a page of the range is not mapped.
fn is_mapped(at: usize, bytes: usize) -> bool {
    let mut pages = vec![0u8; bytes / 4096];
    // SAFETY: there is a byte for each page; the range is not accessed.
    unsafe { libc::mincore(at as *mut libc::c_void, bytes, pages.as_mut_ptr()) == 0 }
}

#[test]
fn dropping_a_session_in_a_child_keeps_the_childs_own_mappings() {
    with_store("role_addresses");
}
