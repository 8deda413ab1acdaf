//! Threads of one process read and write one object through a shared handle.
//!
//! `EVERMAP_RACE_SECONDS` sets the duration of the tests with many threads.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{BufRead, BufReader, Read};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, mpsc};
use std::time::{Duration, Instant};

use common::{TestStore, argument, child};
use evermap::{Error, PVec, Reads, ShareOptions, Shared, Store};

/// Elements of an object; in state `n` all of them are `n`. They fill many pages.
const NUMBERS: usize = 5_000;
const READERS: usize = 8;

fn work_time(default: f64) -> Duration {
    let given = std::env::var("EVERMAP_RACE_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs_f64(given.unwrap_or(default))
}

fn store_of_zeros() -> TestStore {
    let test = TestStore::new();
    test.create::<PVec<u64>, _>("v", vec![0; NUMBERS]).unwrap();
    test
}

fn early() -> ShareOptions {
    ShareOptions::new().reads(Reads::EarlyRead)
}

/// Returns the state that a reader sees, and asserts that it is one state.
fn state_of(numbers: &PVec<u64>) -> u64 {
    let first = numbers[0];
    assert!(numbers.iter().all(|n| *n == first), "a torn state");
    first
}

/// Stores state `n`. Every fourth state also extends the object, up to some MiB.
fn store_state(writer: &mut evermap::SharedWrite<'_, PVec<u64>>, n: u64) {
    writer.root_mut().as_mut_slice().fill(n);
    if n.is_multiple_of(4) && writer.len() < 500_000 {
        let longer = writer.len() + 2_000;
        writer.root_mut().resize(longer, n).unwrap();
    }
}

/// Runs readers and a writer for a while. `check` gets the state that a reader sees, and the newest
/// acknowledged state before and after its read. Returns the numbers of commits and reads.
fn run_readers_and_writer(
    shared: &Shared<PVec<u64>>,
    check: impl Fn(u64, u64, u64) + Sync,
) -> (u64, u64) {
    let end = Instant::now() + work_time(1.0);
    let (acknowledged, reads) = (AtomicU64::new(0), AtomicU64::new(0));
    let mut commits = 0;
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                while Instant::now() < end {
                    let before = acknowledged.load(Ordering::SeqCst);
                    let state = state_of(&shared.read().unwrap());
                    check(state, before, acknowledged.load(Ordering::SeqCst));
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while Instant::now() < end {
            let mut writer = shared.write().unwrap();
            let n = state_of(&writer) + 1;
            store_state(&mut writer, n);
            if n.is_multiple_of(5) {
                // Not visible to readers.
                writer.root_mut().as_mut_slice()[7] = u64::MAX;
                writer.rollback().unwrap();
                store_state(&mut writer, n);
            }
            writer.commit().unwrap();
            acknowledged.store(n, Ordering::SeqCst);
            drop(writer);
            commits += 1;
        }
    });
    (commits, reads.into_inner())
}

#[test]
fn concurrent_readers_see_no_torn_and_no_older_state() {
    let test = store_of_zeros();
    let shared = test.share::<PVec<u64>>("v").unwrap();
    let (commits, reads) = run_readers_and_writer(&shared, |state, before, after| {
        assert!(state >= before, "state {state} after {before} was acknowledged");
        assert!(state <= after, "state {state}, but {after} is the last acknowledged one");
    });
    println!("{commits} commits, {reads} reads");
    assert!(commits > 0 && reads > 0);
    shared.close().unwrap();
    let (path, _directory) = test.close();
    assert_eq!(state_of(&Store::open(path).unwrap().read::<PVec<u64>>("v").unwrap()), commits);
}

#[test]
fn early_readers_see_no_torn_state() {
    let test = store_of_zeros();
    let shared = test.share_with::<PVec<u64>>("v", &early()).unwrap();
    let (commits, reads) = run_readers_and_writer(&shared, |state, before, _| {
        assert!(state >= before, "state {state} after {before} was acknowledged");
    });
    println!("{commits} commits, {reads} reads");
    assert!(commits > 0 && reads > 0);
    shared.close().unwrap();
}

#[test]
fn writers_in_several_threads_take_turns_and_none_starves() {
    let test = TestStore::in_memory();
    test.create::<u64, _>("counter", 0).unwrap();
    let shared = test.share::<u64>("counter").unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    assert!(*shared.read().unwrap() <= 4 * 50);
                }
            });
        }
        let writers = [(); 4].map(|()| {
            scope.spawn(|| {
                for _ in 0..50 {
                    let mut writer = shared.write().unwrap();
                    *writer.root_mut() += 1;
                    writer.commit().unwrap();
                }
            })
        });
        let ended = writers.map(|writer| writer.join());
        done.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok));
    });
    assert_eq!(*shared.read().unwrap(), 200);
}

#[test]
fn uncommitted_changes_are_never_visible() {
    let test = store_of_zeros();
    for options in [ShareOptions::new(), early()] {
        let shared = test.share_with::<PVec<u64>>("v", &options).unwrap();
        let mut writer = shared.write().unwrap();
        store_state(&mut writer, 4);
        drop(writer);
        assert_eq!(state_of(&shared.read().unwrap()), 0);
        let panicked = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let mut writer = shared.write().unwrap();
                store_state(&mut writer, 8);
                panic!("in a write section");
            });
            thread.join()
        });
        panicked.unwrap_err();
        assert_eq!(state_of(&shared.read().unwrap()), 0);
        shared.write().unwrap().commit().unwrap();
        shared.close().unwrap();
    }
}

#[test]
fn a_thread_that_would_wait_for_itself_is_refused() {
    let test = store_of_zeros();
    for options in [ShareOptions::new(), early()] {
        let shared = test.share_with::<PVec<u64>>("v", &options).unwrap();
        let refused =
            |how| move |e: Error| matches!(e, Error::WouldDeadlock { how: h, .. } if h == how);
        let reader = shared.read().unwrap();
        assert!(shared.write().is_err_and(refused("reads")));
        assert!(shared.checkpoint().is_err_and(refused("reads")));
        // A second read of the thread; the two may end in any order.
        let again = shared.read().unwrap();
        drop(reader);
        assert!(shared.write().is_err_and(refused("reads")));
        drop(again);
        let mut writer = shared.write().unwrap();
        writer.root_mut().push(0).unwrap();
        assert!(shared.read().is_err_and(refused("writes")));
        assert!(shared.write().is_err_and(refused("writes")));
        writer.commit().unwrap();
        // Other readers are active now, so this thread would wait for itself at its next store.
        assert!(shared.read().is_err_and(refused("writes")));
        drop(writer);
        drop(shared.read().unwrap());
        shared.close().unwrap();
    }
}

#[test]
fn a_reading_thread_can_read_again_while_a_writer_waits() {
    let test = store_of_zeros();
    let shared = test.share::<PVec<u64>>("v").unwrap();
    std::thread::scope(|scope| {
        let reader = shared.read().unwrap();
        let (waits, waiting) = mpsc::channel();
        let shared = &shared;
        let writer = scope.spawn(move || {
            waits.send(()).unwrap();
            let mut writer = shared.write().unwrap();
            store_state(&mut writer, 1);
            writer.commit().unwrap();
        });
        waiting.recv().unwrap();
        // Whether the writer has taken the lock by now or not, this thread does not wait.
        for _ in 0..1_000 {
            assert_eq!(state_of(&shared.read().unwrap()), 0);
        }
        drop(reader);
        writer.join().unwrap();
    });
    assert_eq!(state_of(&shared.read().unwrap()), 1);
}

#[test]
fn readers_stay_during_a_checkpoint() {
    let test = store_of_zeros();
    let shared = test.share::<PVec<u64>>("v").unwrap();
    let mut writer = shared.write().unwrap();
    store_state(&mut writer, 1);
    writer.commit().unwrap();
    drop(writer);
    let (inside, checked) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let reader = shared.read().unwrap();
            inside.wait();
            checked.wait();
            state_of(&reader)
        });
        inside.wait();
        assert!(shared.checkpoint().unwrap());
        shared.sync().unwrap();
        checked.wait();
        assert_eq!(reader.join().unwrap(), 1);
    });
}

#[test]
fn snapshots_and_sessions_of_a_shared_object_are_busy_and_name_share() {
    let test = store_of_zeros();
    let names_share = |error: Error| {
        let text = error.to_string();
        assert!(matches!(error, Error::Busy { .. }) && text.contains("Store::share"), "{text}");
    };
    let shared = test.share::<PVec<u64>>("v").unwrap();
    names_share(test.read::<PVec<u64>>("v").err().unwrap());
    names_share(test.write::<PVec<u64>>("v").err().unwrap());
    names_share(test.info("v").unwrap_err());
    // All handles refer to the same object, and other options are refused.
    let other = test.share::<PVec<u64>>("v").unwrap();
    names_share(test.share_with::<PVec<u64>>("v", &early()).err().unwrap());
    assert!(matches!(test.share::<u64>("v"), Err(Error::SchemaMismatch { .. })));
    let mut writer = other.write().unwrap();
    store_state(&mut writer, 1);
    writer.commit().unwrap();
    drop(writer);
    assert_eq!(state_of(&shared.read().unwrap()), 1);
    shared.close().unwrap();
    assert_eq!(state_of(&other.clone().read().unwrap()), 1);
    other.close().unwrap();

    let snapshot = test.read::<PVec<u64>>("v").unwrap();
    names_share(test.write::<PVec<u64>>("v").err().unwrap());
    names_share(test.share::<PVec<u64>>("v").err().unwrap());
    drop(snapshot);
    let session = test.write::<PVec<u64>>("v").unwrap();
    names_share(test.read::<PVec<u64>>("v").err().unwrap());
    names_share(test.share::<PVec<u64>>("v").err().unwrap());
    session.close().unwrap();
}

#[test]
fn threads_that_share_at_the_same_time_get_the_same_object() {
    let test = store_of_zeros();
    for _ in 0..20 {
        let start = Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    start.wait();
                    let shared = test.share::<PVec<u64>>("v").unwrap();
                    let mut writer = shared.write().unwrap();
                    let n = writer[0] + 1;
                    writer.root_mut().as_mut_slice().fill(n);
                    writer.commit().unwrap();
                });
            }
        });
    }
    assert_eq!(state_of(&test.read::<PVec<u64>>("v").unwrap()), 80);
}

#[test]
#[ignore = "a child"]
fn child_reads_snapshots() {
    let Some(path) = argument(0) else { return };
    let store = Store::open(&path).unwrap();
    let (mut newest, end) = (0, Instant::now() + work_time(1.0));
    while Instant::now() < end {
        let state = state_of(&store.read::<PVec<u64>>("v").unwrap());
        assert!(state >= newest, "{state} after {newest}");
        newest = state;
    }
    println!("\n> newest {newest}");
}

#[test]
fn another_process_can_read_a_shared_object() {
    let test = store_of_zeros();
    let shared = test.share::<PVec<u64>>("v").unwrap();
    let mut reader = child("child_reads_snapshots", &[test.path().to_str().unwrap()]);
    let (commits, _) = run_readers_and_writer(&shared, |_, _, _| {});
    let mut output = String::new();
    reader.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    assert!(reader.wait().unwrap().success());
    let newest = output.lines().find_map(|line| line.strip_prefix("> newest ")).unwrap();
    assert!(newest.parse::<u64>().unwrap() <= commits + 1);
}

#[test]
#[ignore = "a child"]
fn child_prints_what_its_readers_see() {
    let Some(path) = argument(0) else { return };
    let store = Store::open(&path).unwrap();
    let shared = store.share::<PVec<u64>>("v").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let state = state_of(&shared.read().unwrap());
                    println!("> {state}");
                }
            });
        }
        loop {
            let mut writer = shared.write().unwrap();
            let n = writer[0] + 1;
            store_state(&mut writer, n);
            writer.commit().unwrap();
        }
    });
}

#[test]
fn no_state_that_was_seen_is_lost_by_a_kill() {
    let test = store_of_zeros();
    let (path, _directory) = test.close();
    let kills = std::env::var("EVERMAP_TEST_KILLS").ok().and_then(|text| text.parse().ok());
    for round in 0..kills.unwrap_or(10) {
        let mut running = child("child_prints_what_its_readers_see", &[path.to_str().unwrap()]);
        let mut lines = BufReader::new(running.stdout.take().unwrap()).lines();
        let mut newest = 0;
        let mut seen = |line: String| {
            if let Some(state) = line.strip_prefix("> ").and_then(|text| text.parse().ok()) {
                newest = newest.max(state);
            }
        };
        lines.by_ref().take(20 + round * 7).for_each(|line| seen(line.unwrap()));
        running.kill().unwrap();
        running.wait().unwrap();
        lines.for_each(|line| seen(line.unwrap()));
        let state = state_of(&Store::open(&path).unwrap().read::<PVec<u64>>("v").unwrap());
        assert!(state >= newest, "{newest} was seen, but {state} was found");
    }
}

#[test]
fn a_forked_child_is_refused_and_does_not_wait_for_its_parents_writer() {
    let test = store_of_zeros();
    let shared = test.share::<PVec<u64>>("v").unwrap();
    let (inside, forked) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _writer = shared.write().unwrap();
            inside.wait();
            forked.wait();
        });
        inside.wait();
        // SAFETY: the child calls nothing that waits for a lock of another thread, and ends with
        // `_exit`.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: sets a timer that kills this process if it waits.
            unsafe { libc::alarm(20) };
            let refused = [shared.read().map(drop), shared.write().map(drop), shared.sync()];
            let forked = |r: &evermap::Result<()>| matches!(r, Err(Error::Forked { .. }));
            // SAFETY: ends this process immediately.
            unsafe { libc::_exit(if refused.iter().all(forked) { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: waits for the child.
        assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
        forked.wait();
        assert_eq!(status, 0, "the child ended with status {status:#x}");
    });
}

/// Number of read sections of each thread in the test below.
const SECTIONS: usize = 2_000;

#[test]
#[ignore = "a child"]
fn child_reads_in_sections() {
    let Some(path) = argument(0) else { return };
    let store = Store::open(&path).unwrap();
    let shared = store.share::<PVec<u64>>("v").unwrap();
    let ready = Barrier::new(READERS);
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                // Sets up each thread's state and maps all pages.
                assert_eq!(state_of(&shared.read().unwrap()), 0);
                ready.wait();
                // A call that is visible in the strace log and does not allocate.
                let mark = |path: &std::ffi::CStr| {
                    // SAFETY: the path ends with a zero.
                    unsafe { libc::access(path.as_ptr(), libc::F_OK) };
                };
                mark(c"/sections-begin");
                for at in 0..SECTIONS {
                    assert_eq!(shared.read().unwrap()[at % NUMBERS], 0);
                }
                mark(c"/sections-end");
            });
        }
    });
}

#[test]
fn a_read_section_without_a_writer_makes_no_system_call() {
    let test = store_of_zeros();
    let log = test.directory.path().join("calls");
    let probe =
        std::process::Command::new("strace").args(["-f", "-o", "/dev/null", "true"]).output();
    if !probe.is_ok_and(|output| output.status.success()) {
        return eprintln!("SKIPPED: strace cannot trace here");
    }
    let plain = common::child_command("child_reads_in_sections", &[test.path().to_str().unwrap()]);
    let mut strace = std::process::Command::new("strace");
    strace.args(["-f", "-qq", "-e", "signal=none", "-o"]).arg(&log);
    strace.arg(plain.get_program()).args(plain.get_args());
    strace.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    assert!(strace.output().unwrap().status.success());
    let calls = std::fs::read_to_string(&log).unwrap();
    let mut inside = std::collections::BTreeMap::new();
    let (mut ended, mut unwanted) = (0, Vec::new());
    for line in calls.lines() {
        let (thread, call) = line.split_once(' ').unwrap();
        let is_inside = inside.entry(thread).or_insert(false);
        if call.contains("/sections-begin") {
            *is_inside = true;
        } else if call.contains("/sections-end") {
            *is_inside = false;
            ended += 1;
        } else if *is_inside && !call.contains("<... access resumed>") {
            unwanted.push(line);
        }
    }
    assert_eq!(ended, READERS);
    assert!(unwanted.is_empty(), "{} calls, as {:?}", unwanted.len(), unwanted.first());
}
