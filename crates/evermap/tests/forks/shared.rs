//! Shared objects in children: which calls can read them, and that no call waits for a thread that
//! does not exist in the child.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use evermap::{Error, PVec, ShareOptions, Shared, Store};

use crate::common::{TestStore, argument};
use crate::process::{Numbers, Way, end_if_it_hangs, fork, run, succeeds};
use crate::snapshots::{one_number, store_of_numbers};

/// Index of the counter of the parent's commits.
const COMMITS: usize = 0;

fn with_store(role: &str) -> TestStore {
    let test = store_of_numbers();
    let shared = test.directory.path().join("numbers");
    run(&format!("shared::{role}"), &[test.path().to_str().unwrap(), shared.to_str().unwrap()]);
    test
}

fn arguments() -> Option<(Store, Numbers)> {
    let (path, shared) = (argument(0)?, argument(1)?);
    Some((Store::open(path).unwrap(), Numbers::new(shared.as_ref())))
}

fn write(shared: &Shared<PVec<u64>>, value: u64) {
    let mut writer = shared.write().unwrap();
    writer.root_mut().as_mut_slice().fill(value);
    writer.commit().unwrap();
}

fn is_forked<T>(result: evermap::Result<T>) -> bool {
    matches!(result, Err(Error::Forked { .. }))
}

#[test]
#[ignore = "a part of another test: another thread reads while this one forks"]
fn role_readers() {
    let Some((store, numbers)) = arguments() else { return };
    let shared = store.share::<PVec<u64>>("numbers").unwrap();
    write(&shared, 1);
    let (inside, forked) = (Barrier::new(2), Barrier::new(2));
    let child = std::thread::scope(|scope| {
        scope.spawn(|| {
            let _reader = shared.read().unwrap();
            inside.wait();
            forked.wait();
        });
        inside.wait();
        let own = shared.read().unwrap();
        let mut handle = Some(shared.clone());
        let child = fork(Way::Fork, || {
            end_if_it_hangs();
            let handle = handle.take().unwrap();
            let reads =
                |value| handle.read().is_ok_and(|reader| one_number(&reader) == Some(value));
            // With the guard of this thread, without it, and in a grandchild.
            let before = one_number(&own) == Some(1) && reads(1);
            drop(own);
            let refused = is_forked(handle.write())
                && is_forked(handle.sync())
                && is_forked(handle.checkpoint())
                && is_forked(store.share::<PVec<u64>>("numbers"))
                && is_forked(store.share_raw("numbers", &ShareOptions::new()));
            let grandchild = fork(Way::Fork, || numbers.reaches(COMMITS, 3) && reads(1));
            let after = numbers.reaches(COMMITS, 3) && reads(1);
            succeeds(grandchild);
            before && refused && after && handle.close().is_ok()
        });
        forked.wait();
        child
    });
    for value in 2..5 {
        write(&shared, value);
        shared.checkpoint().unwrap();
        numbers.set(COMMITS, value);
    }
    succeeds(child);
    assert_eq!(one_number(&shared.read().unwrap()), Some(4));
    shared.close().unwrap();
}

#[test]
fn a_child_reads_a_shared_object_as_of_the_fork_while_another_thread_of_its_parent_reads() {
    let test = with_store("role_readers");
    assert_eq!(one_number(&test.read::<PVec<u64>>("numbers").unwrap()), Some(4));
}

#[test]
#[ignore = "a part of another test: a thread writes while this one forks"]
fn role_writer() {
    let Some((store, _)) = arguments() else { return };
    let shared = store.share::<PVec<u64>>("numbers").unwrap();
    let raw = store.share_raw("numbers", &ShareOptions::new()).unwrap();
    let refuses = || {
        end_if_it_hangs();
        is_forked(shared.read())
            && is_forked(raw.try_begin_read())
            && is_forked(shared.write())
            && is_forked(raw.commit())
            && raw.root().bytes > 0
            && raw.sequence() > 0
            && !raw.regions().is_empty()
            && !raw.is_in_use()
    };
    let (inside, forked) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = shared.write().unwrap();
            writer.root_mut().as_mut_slice()[0] = 9;
            inside.wait();
            forked.wait();
        });
        inside.wait();
        succeeds(fork(Way::Fork, refuses));
        forked.wait();
    });
    // The writing thread forks: its guard ends in the child and discards nothing.
    let mut writer = shared.write().unwrap();
    writer.root_mut().as_mut_slice().fill(7);
    let mut owned = Some(writer);
    let child = fork(Way::Fork, || {
        end_if_it_hangs();
        let mut writer = owned.take().unwrap();
        let sees = one_number(&writer) == Some(7);
        sees && is_forked(writer.commit()) && is_forked(writer.rollback()) && {
            drop(writer);
            is_forked(shared.read())
        }
    });
    succeeds(child);
    let mut writer = owned.unwrap();
    assert!(writer.commit().unwrap());
    drop(writer);
    drop(raw);
    shared.close().unwrap();
}

#[test]
fn a_child_of_a_parent_that_was_writing_is_refused_and_never_waits() {
    let test = with_store("role_writer");
    assert_eq!(one_number(&test.read::<PVec<u64>>("numbers").unwrap()), Some(7));
}

#[test]
#[ignore = "a part of another test: forks at any moment of another thread's writing"]
fn role_any_moment() {
    let Some((store, numbers)) = arguments() else { return };
    let shared = store.share::<PVec<u64>>("numbers").unwrap();
    let raw = store.share_raw("numbers", &ShareOptions::new()).unwrap();
    let stop = AtomicBool::new(false);
    let mut read = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut value = 0;
            while !stop.load(Ordering::Relaxed) {
                value += 1;
                write(&shared, value);
                numbers.set(COMMITS, value);
            }
        });
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                assert!(one_number(&shared.read().unwrap()).is_some() && raw.sequence() > 0);
            }
        });
        for _ in 0..crate::process::count().min(300) {
            let later = numbers.get(COMMITS) + 2;
            let child = fork(Way::Fork, || {
                end_if_it_hangs();
                let seen = match shared.read() {
                    Ok(reader) => one_number(&reader).map(Some),
                    Err(Error::Forked { .. }) => Some(None),
                    Err(_) => None,
                };
                let Some(before) = seen else { return false };
                let facts = raw.root().bytes > 0 && raw.sequence() > 0;
                let unchanged = numbers.reaches(COMMITS, later)
                    && before.is_none_or(|n| one_number(&shared.read().unwrap()) == Some(n));
                numbers.set(1, numbers.get(1) + u64::from(before.is_some()));
                facts && unchanged
            });
            succeeds(child);
        }
        read = numbers.get(1);
        stop.store(true, Ordering::Relaxed);
    });
    assert!(read > 0, "every fork interrupted a writer");
    drop(raw);
    shared.close().unwrap();
}

#[test]
fn a_child_forked_at_any_moment_reads_one_commit_or_is_refused() {
    with_store("role_any_moment");
}

#[test]
#[ignore = "a part of another test"]
fn role_bare_clone() {
    let Some((store, _)) = arguments() else { return };
    let shared = store.share::<PVec<u64>>("numbers").unwrap();
    let raw = store.share_raw("numbers", &ShareOptions::new()).unwrap();
    succeeds(fork(Way::Clone, || {
        end_if_it_hangs();
        is_forked(shared.read())
            && is_forked(raw.try_begin_read())
            && is_forked(shared.write())
            && raw.root_address() != 0
            && !raw.is_in_use()
    }));
    write(&shared, 3);
    drop(raw);
    shared.close().unwrap();
}

#[test]
fn a_child_of_a_bare_clone_is_refused_a_shared_object() {
    with_store("role_bare_clone");
}
