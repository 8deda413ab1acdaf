//! A session's memory in children of its process.

use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use evermap::{Error, Heap, InChildren, Protection, RawSession, Store, WriteOptions};

use crate::common::{TestStore, argument};
use crate::process::{Numbers, Way, end_if_it_hangs, end_of, fork, run, succeeds};

/// Words of a block that spans several chunks, so that a part of it is after the last commit.
const WORDS: usize = 100_000;
/// Index of the parent's counter.
const STEPS: usize = 0;

fn words<'a>(block: NonNull<u8>, count: usize) -> &'a mut [u64] {
    // SAFETY: each caller names its own block with this many words, and keeps one reference.
    unsafe { std::slice::from_raw_parts_mut(block.as_ptr().cast(), count) }
}

fn are(block: NonNull<u8>, count: usize, expected: u64) -> bool {
    words(block, count).iter().all(|word| *word == expected)
}

fn session(store: &Store, options: &WriteOptions) -> RawSession {
    if !store.contains("memory").unwrap() {
        store.create_raw("memory").unwrap();
    }
    store.write_raw_with("memory", options).unwrap()
}

fn allocate(session: &RawSession, count: usize) -> NonNull<u8> {
    session.heap().allocate(8 * count, 8).unwrap()
}

/// Opens the object. From the next commit on, its root is a new block of words.
fn session_with_block(store: &Store, count: usize, value: u64) -> (RawSession, NonNull<u8>) {
    let mut session = session(store, &WriteOptions::new());
    let block = allocate(&session, count);
    words(block, count).fill(value);
    set_root(&mut session, block);
    (session, block)
}

fn set_root(session: &mut RawSession, block: NonNull<u8>) {
    // SAFETY: the tag belongs to no Rust type.
    unsafe { session.set_root(Some(block), 8, [0; 16], "words") }.unwrap();
}

/// Runs a role of this file with its own store and numbers.
fn with_store(role: &str) -> TestStore {
    let test = TestStore::in_memory();
    let shared = test.directory.path().join("numbers");
    run(&format!("memory::{role}"), &[test.path().to_str().unwrap(), shared.to_str().unwrap()]);
    test
}

fn with_undamaged_store(role: &str) {
    let test = with_store(role);
    let report = evermap::tools::check(test.path(), &evermap::tools::CheckOptions::new()).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

fn arguments() -> Option<(Store, Numbers)> {
    let (path, shared) = (argument(0)?, argument(1)?);
    Some((Store::open_or_create(path).unwrap(), Numbers::new(shared.as_ref())))
}

#[test]
#[ignore = "a part of another test"]
fn role_committed_and_uncommitted() {
    let Some((store, numbers)) = arguments() else { return };
    let (mut session, block) = session_with_block(&store, WORDS, 1);
    session.commit().unwrap();
    session.checkpoint().unwrap();
    // Half of it is changed since the last commit, half of it is clean.
    words(block, WORDS / 2).fill(2);
    let holds =
        || are(block, WORDS / 2, 2) && words(block, WORDS)[WORDS / 2..].iter().all(|w| *w == 1);
    let child = fork(Way::Fork, || {
        let grandchild = fork(Way::Fork, || numbers.reaches(STEPS, 2) && holds());
        let unchanged = numbers.reaches(STEPS, 2) && holds();
        succeeds(grandchild);
        unchanged
    });
    for step in 1..=4 {
        words(block, WORDS).fill(10 + step);
        assert!(session.commit().unwrap());
        let applied = session.checkpoint().unwrap();
        assert!(!applied || step > 2, "the child reads clean pages of the file");
        numbers.set(STEPS, step);
        if step == 2 {
            succeeds(child);
        }
    }
    assert!(session.checkpoint().unwrap());
    session.close().unwrap();
}

#[test]
fn a_child_sees_changed_and_clean_pages_as_of_the_fork() {
    with_store("role_committed_and_uncommitted");
}

#[test]
#[ignore = "a part of another test"]
fn role_gained_memory() {
    let Some((store, numbers)) = arguments() else { return };
    let (mut session, first) = session_with_block(&store, 10, 7);
    session.commit().unwrap();
    for round in 0..6 {
        let before = numbers.get(STEPS);
        // After the end of the last commit, and partly written.
        let block = allocate(&session, WORDS);
        words(block, WORDS / 2).fill(1);
        let holds =
            || are(block, WORDS / 2, 1) && words(block, WORDS)[WORDS / 2..].iter().all(|w| *w == 0);
        assert!(holds(), "new memory is zero");
        let children: Vec<i32> = (0..3)
            .map(|_| {
                fork(Way::Fork, || {
                    holds() && numbers.reaches(STEPS, before + 2) && holds() && are(first, 10, 7)
                })
            })
            .collect();
        // Memory gained after a fork, and stores to memory gained before.
        let more = allocate(&session, WORDS);
        words(more, WORDS).fill(3);
        words(block, WORDS).fill(2);
        match round % 3 {
            0 => assert!(session.commit().unwrap()),
            1 => session.rollback().unwrap(),
            _ => {
                assert!(session.commit().unwrap());
                words(block, WORDS).fill(4);
                assert!(session.commit().unwrap());
            }
        }
        numbers.set(STEPS, before + 1);
        session.checkpoint().unwrap();
        let value = match round % 3 {
            1 => None,
            0 => Some(2),
            _ => Some(4),
        };
        if let Some(value) = value {
            assert!(are(block, WORDS, value) && are(more, WORDS, 3));
            // Read it as another process does.
            set_root(&mut session, block);
            session.commit().unwrap();
            let path = argument(0).unwrap();
            let text =
                format!("{:x} {:x} {value}", block.as_ptr() as usize, more.as_ptr() as usize);
            run("memory::role_snapshot", &[&path, &text]);
        }
        numbers.set(STEPS, before + 2);
        children.into_iter().for_each(succeeds);
        set_root(&mut session, first);
        session.commit().unwrap();
        assert!(are(first, 10, 7));
    }
    session.close().unwrap();
    drop(store);
}

#[test]
#[ignore = "a part of another test: looks at committed words"]
fn role_snapshot() {
    let (Some(path), Some(what)) = (argument(0), argument(1)) else { return };
    let parts: Vec<&str> = what.split(' ').collect();
    let at =
        |text: &str| NonNull::new(usize::from_str_radix(text, 16).unwrap() as *mut u8).unwrap();
    let store = Store::open(path).unwrap();
    let snapshot = store.read_raw("memory").unwrap();
    assert!(are(at(parts[0]), WORDS, parts[2].parse().unwrap()));
    assert!(are(at(parts[1]), WORDS, 3));
    drop(snapshot);
}

#[test]
fn a_child_sees_new_memory_as_of_the_fork_and_the_parent_commits_all_of_it() {
    with_undamaged_store("role_gained_memory");
}

#[test]
#[ignore = "a part of another test"]
fn role_calls_in_a_child() {
    let Some((store, _)) = arguments() else { return };
    let (mut session, block) = session_with_block(&store, 10, 5);
    // The object gets a record of code in page 0.
    words(allocate(&session, 1), 1)[0] = role_calls_in_a_child as fn() as usize as u64;
    session.commit().unwrap();
    let mut owned = Some(session);
    let child = fork(Way::Fork, || {
        let session = owned.as_mut().unwrap();
        let forked = |result: Result<bool, Error>| matches!(result, Err(Error::Forked { .. }));
        let refused = forked(session.commit())
            && forked(session.rollback().map(|()| true))
            && forked(session.sync().map(|()| true))
            && forked(session.checkpoint())
            && forked(session.reserve(1 << 20).map(|()| true))
            && forked(session.release(1 << 20).map(|_| true))
            && forked(session.shrink().map(|_| true))
            && forked(session.register_code().map(|()| true))
            && forked(session.forget_code().map(|()| true))
            && forked(store.list().map(|_| true))
            && forked(store.read_raw("memory").map(|_| true))
            && forked(store.create_raw("other").map(|_| true))
            && forked(Store::open(store.path()).map(|_| true));
        let read = session.root().bytes == 8 && are(block, 10, 5) && session.sequence() > 0;
        refused && read && owned.take().is_some_and(|session| session.close().is_ok())
    });
    succeeds(child);
    let mut session = owned.unwrap();
    words(block, 10).fill(6);
    assert!(session.commit().unwrap());
    session.close().unwrap();
    assert!(store.read_raw("memory").is_ok());
}

#[test]
fn calls_that_write_are_refused_by_name_in_a_child_and_reads_work() {
    with_store("role_calls_in_a_child");
}

#[test]
#[ignore = "a part of another test"]
fn role_stores() {
    let Some((store, _)) = arguments() else { return };
    for (stores, protection) in [
        (InChildren::ReadOnly, Protection::Off),
        (InChildren::Private, Protection::Off),
        (InChildren::ReadOnly, Protection::Pages),
    ] {
        let options = WriteOptions::new().in_children(stores);
        let mut session = session(&store, &options);
        let old = allocate(&session, 10);
        words(old, 10).fill(1);
        set_root(&mut session, old);
        session.commit().unwrap();
        let gained = allocate(&session, WORDS);
        words(gained, WORDS).fill(1);
        let session = session.protect(protection).unwrap();
        for block in [old, gained] {
            let child = fork(Way::Fork, || {
                words(block, 10)[3] = 9;
                words(block, 10)[3] == 9
            });
            let status = end_of(child);
            match stores {
                InChildren::ReadOnly => {
                    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV);
                }
                InChildren::Private => assert_eq!(status, 0),
            }
            assert!(are(block, 10, 1), "stores of a child are private");
        }
        session.close().unwrap();
    }
}

#[test]
fn stores_in_a_child_fault_or_stay_private_as_configured() {
    with_store("role_stores");
}

#[test]
#[ignore = "a part of another test"]
fn role_untouched_memory() {
    // More than is prefaulted.
    const WORDS: usize = 1 << 20;
    let Some((store, numbers)) = arguments() else { return };
    let mut session = session(&store, &WriteOptions::new());
    let block = allocate(&session, WORDS);
    let children: Vec<i32> = (0..2)
        .map(|round| {
            // Without and with reading the previous pages.
            fork(Way::Fork, || {
                (round == 0 || are(block, WORDS, 0))
                    && numbers.reaches(STEPS, 1)
                    && are(block, WORDS, 0)
            })
        })
        .collect();
    words(block, WORDS).fill(1);
    set_root(&mut session, block);
    assert!(session.commit().unwrap());
    words(block, WORDS).fill(2);
    assert!(session.commit().unwrap());
    session.checkpoint().unwrap();
    numbers.set(STEPS, 1);
    children.into_iter().for_each(succeeds);
    assert!(are(block, WORDS, 2));
    session.close().unwrap();
}

#[test]
fn unwritten_new_memory_stays_zero_in_a_child() {
    with_store("role_untouched_memory");
}

/// Allocates and frees blocks of every kind. Memory that would need growth of the object is
/// refused.
fn uses_heap(heap: &Heap) -> bool {
    let sizes = (4..18).map(|shift| 1usize << shift).chain([24, 1000, 40_000]);
    let blocks: Vec<_> = sizes.map(|size| (size, heap.allocate(size, 8))).collect();
    blocks.into_iter().all(|(size, block)| match block {
        Ok(block) => {
            // SAFETY: the block belongs to this call and has this many bytes.
            unsafe { block.as_ptr().write_bytes(7, size) };
            // SAFETY: allocated above, and not used after.
            unsafe { heap.try_free(block) }.is_ok()
        }
        Err(error) => matches!(Error::from(error), Error::Forked { .. }),
    })
}

#[test]
#[ignore = "a part of another test"]
fn role_private_heap() {
    let Some((store, _)) = arguments() else { return };
    let options = WriteOptions::new().in_children(InChildren::Private);
    let mut session = session(&store, &options);
    let block = allocate(&session, 10);
    set_root(&mut session, block);
    session.commit().unwrap();
    let (heap, stop) = (session.heap(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    assert!(uses_heap(heap));
                }
            });
        }
        for _ in 0..crate::process::count().min(200) {
            succeeds(fork(Way::Fork, || {
                end_if_it_hangs();
                (0..20).all(|_| uses_heap(heap))
            }));
        }
        stop.store(true, Ordering::Relaxed);
    });
    session.commit().unwrap();
    session.close().unwrap();
}

#[test]
fn a_child_with_private_memory_can_allocate_whatever_its_parents_threads_were_doing() {
    with_undamaged_store("role_private_heap");
}

#[test]
#[ignore = "a part of another test"]
fn role_bare_clone() {
    let Some((store, numbers)) = arguments() else { return };
    let (mut session, block) = session_with_block(&store, WORDS, 1);
    session.commit().unwrap();
    // Large enough to take no disk space yet on a disk.
    let large = allocate(&session, 10 << 20);
    words(large, 10)[0] = 1;
    let child = fork(Way::Clone, || {
        // Read with a system call, which returns an error instead of raising a signal.
        let is_absent = |block: NonNull<u8>| {
            let (_reading, writing) = std::io::pipe().unwrap();
            // SAFETY: the kernel verifies the address.
            let wrote = unsafe { libc::write(writing.as_raw_fd(), block.as_ptr().cast(), 8) };
            wrote == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT)
        };
        let absent = is_absent(block) && is_absent(large);
        numbers.reaches(STEPS, 1) && absent && matches!(session.commit(), Err(Error::Forked { .. }))
    });
    words(block, WORDS).fill(2);
    session.commit().unwrap();
    numbers.set(STEPS, 1);
    succeeds(child);
    session.close().unwrap();
}

#[test]
fn a_child_of_a_bare_clone_has_no_session_memory_and_its_calls_are_refused() {
    with_store("role_bare_clone");
    let test = TestStore::new();
    let shared = test.directory.path().join("numbers");
    let arguments = [test.path(), shared].map(|path| path.to_str().unwrap().to_string());
    run("memory::role_bare_clone", &[&arguments[0], &arguments[1]]);
}
