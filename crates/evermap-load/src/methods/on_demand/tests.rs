//! Guarantees of on-demand loads when failures occur.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::injected::{Injected, NONE};
use super::*;
use crate::advise::{Advice, advise_on_demand};
use crate::counters::Counters;
use crate::part::Part;
use crate::source::Source;
use crate::sys::HUGE_PAGE_BYTES;
use evermap_observe::Span;

struct File {
    _directory: tempfile::TempDir,
    path: PathBuf,
    bytes: Vec<u8>,
}

/// Creates a file next to this program, where the disk usually supports direct I/O.
fn file(bytes: usize) -> File {
    let directory =
        tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap();
    let path = directory.path().join("file");
    let bytes: Vec<u8> = (0..bytes).map(|at| (at / 4096 + at % 251) as u8).collect();
    std::fs::write(&path, &bytes).unwrap();
    File { _directory: directory, path, bytes }
}

fn job(file: &File) -> Job {
    let source = Arc::new(Source::open(&file.path).unwrap());
    let part = Part::new(0..file.bytes.len() as u64, source.block_bytes());
    Job {
        data: vec![Span::new(part.begin, part.end)].into(),
        part,
        counters: Arc::new(Counters::new()),
        is_partly_cached: false,
        source,
    }
}

/// Starts a load. Prints a notice and returns `None` if the kernel or its permissions do not allow
/// it.
fn start(job: &Job, start: Start) -> Option<OnDemand> {
    match OnDemand::start(job, start) {
        Ok(load) => Some(load),
        Err(Stop::Refused(why)) => {
            eprintln!("SKIPPED: {why}");
            None
        }
        Err(Stop::Failed(error)) => panic!("{error}"),
    }
}

fn bytes(load: &OnDemand, len: usize) -> &[u8] {
    // SAFETY: the image's memory lives as long as the load.
    unsafe { std::slice::from_raw_parts(load.shared().region.address(), len) }
}

fn of(counter: &std::sync::atomic::AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[test]
fn bytes_are_loaded_on_access_in_any_order() {
    let file = file(9 * HUGE_PAGE_BYTES + 4097);
    let job = job(&file);
    let Some(load) = start(&job, Start::default()) else { return };
    let seen = bytes(&load, file.bytes.len());
    for at in [file.bytes.len() - 1, 5 * HUGE_PAGE_BYTES, 1, 7 * HUGE_PAGE_BYTES + 4095] {
        assert_eq!(seen[at], file.bytes[at], "byte {at}");
    }
    assert!(seen == file.bytes);
    load.wait().unwrap();
    // SAFETY: the rest of the last page belongs to the image's memory.
    assert_eq!(unsafe { *load.shared().region.address().add(file.bytes.len()) }, 0);
    assert_eq!(job.counters.loaded_bytes(), file.bytes.len() as u64);
}

#[test]
fn a_loader_thread_killed_before_a_read_is_replaced() {
    killed(|injected| &injected.vanish_before_reading);
}

#[test]
fn a_loader_thread_killed_between_move_and_publish_is_replaced() {
    killed(|injected| &injected.vanish_before_publishing);
}

fn killed(which: impl Fn(&Injected) -> &AtomicUsize) {
    let file = file(12 * HUGE_PAGE_BYTES);
    let job = job(&file);
    let injected = Injected::default();
    which(&injected).store(3, Ordering::Release);
    let Some(load) = start(&job, Start { injected, ..Start::default() }) else { return };
    assert!(bytes(&load, file.bytes.len()) == file.bytes);
    load.wait().unwrap();
    assert!(of(&job.counters.threads_replaced) >= 1);
}

#[test]
fn a_killed_deputy_is_replaced() {
    let file = file(12 * HUGE_PAGE_BYTES);
    let job = job(&file);
    let injected = Injected::default();
    injected.vanish_deputies.store(2, Ordering::Release);
    // The loader thread checks every 20 ms.
    injected.pause_ms.store(20, Ordering::Release);
    let Some(load) = start(&job, Start { injected, ..Start::default() }) else { return };
    load.wait().unwrap();
    assert!(bytes(&load, file.bytes.len()) == file.bytes);
    assert!(of(&job.counters.threads_replaced) >= 2);
}

#[test]
fn killing_all_threads_is_an_error_and_loaded_windows_stay() {
    let file = file(12 * HUGE_PAGE_BYTES);
    let job = job(&file);
    let injected = Injected::default();
    injected.vanish_deputies.store(NONE, Ordering::Release);
    injected.vanish_before_reading.store(11, Ordering::Release);
    let Some(load) = start(&job, Start { injected, ..Start::default() }) else { return };
    let lost = load.wait().unwrap_err();
    assert!(matches!(lost, Error::ThreadsLost { .. }), "{lost}");
    assert!(matches!(load.ensure(11..12), Err(Error::ThreadsLost { .. })));
    load.ensure(0..1).unwrap();
    assert!(bytes(&load, HUGE_PAGE_BYTES) == &file.bytes[..HUGE_PAGE_BYTES]);
}

#[test]
fn a_load_fails_if_every_new_thread_is_killed() {
    let file = file(4 * HUGE_PAGE_BYTES);
    let job = job(&file);
    let injected = Injected::default();
    injected.vanish_always.store(true, Ordering::Release);
    let Some(load) = start(&job, Start { injected, ..Start::default() }) else { return };
    let lost = load.wait().unwrap_err();
    assert!(matches!(lost, Error::ThreadsLost { .. }), "{lost}");
    assert_eq!(load.shared().windows.failed(), 4);
}

#[test]
fn every_waiting_thread_gets_an_error_if_all_threads_are_killed() {
    let file = file(4 * HUGE_PAGE_BYTES);
    let job = job(&file);
    let injected = Injected::default();
    injected.vanish_deputies.store(NONE, Ordering::Release);
    injected.vanish_before_reading.store(2, Ordering::Release);
    let Some(load) = start(&job, Start { injected, ..Start::default() }) else { return };
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert!(matches!(load.wait(), Err(Error::ThreadsLost { .. }))));
        }
    });
    assert!(load.shared().has_ended());
}

#[test]
fn a_fork_that_waits_for_a_dropped_load_does_not_poison_later_images() {
    let (file, small) = (file(4 * HUGE_PAGE_BYTES), file(HUGE_PAGE_BYTES));
    let paused = |file: &File, pause_ms| {
        let injected = Injected::default();
        injected.pause_ms.store(pause_ms, Ordering::Release);
        start(&job(file), Start { injected, ..Start::default() })
    };
    let Some(dropped) = paused(&file, 20) else { return };
    // A forking thread holds the state of a load that it waits for.
    let held = dropped.shared.clone();
    std::thread::scope(|scope| {
        scope.spawn(|| Forked::finish(&*held));
        drop(dropped);
    });
    // Some of these get the addresses that were just unmapped. Another forking thread notices late
    // that the load has ended.
    let later: Vec<OnDemand> = (0..6).filter_map(|_| paused(&small, 300)).collect();
    Forked::finish(&*held);
    assert_eq!(held.windows.failed(), 0, "addresses were poisoned after they were unmapped");
    for load in &later {
        load.wait().unwrap();
        assert!(bytes(load, small.bytes.len()) == small.bytes);
    }
}

#[test]
fn an_unreadable_window_is_an_error_and_others_load() {
    let file = file(6 * HUGE_PAGE_BYTES);
    let job = job(&file);
    let injected = Injected::default();
    injected.unreadable.store(2, Ordering::Release);
    let Some(load) = start(&job, Start { injected, ..Start::default() }) else { return };
    let Err(Error::Unreadable { offset_bytes, length_bytes, .. }) = load.wait() else {
        panic!("the window was read")
    };
    assert_eq!((offset_bytes, length_bytes), (2 * HUGE_PAGE_BYTES as u64, HUGE_PAGE_BYTES as u64));
    assert!(load.ensure(2..3).is_err());
    load.ensure(3..6).unwrap();
    let seen = bytes(&load, file.bytes.len());
    assert!(seen[..2 * HUGE_PAGE_BYTES] == file.bytes[..2 * HUGE_PAGE_BYTES]);
    assert!(seen[3 * HUGE_PAGE_BYTES..] == file.bytes[3 * HUGE_PAGE_BYTES..]);
}

#[test]
fn a_failed_direct_read_falls_back_to_the_cache() {
    let file = file(3 * HUGE_PAGE_BYTES);
    let job = job(&file);
    let injected = Injected::default();
    injected.unreadable_directly.store(1, Ordering::Release);
    let Some(load) = start(&job, Start { injected, ..Start::default() }) else { return };
    load.wait().unwrap();
    assert!(bytes(&load, file.bytes.len()) == file.bytes);
    assert_eq!(of(&job.counters.read_again), 1);
}

#[test]
fn pages_that_cannot_be_moved_are_copied() {
    let file = file(4 * HUGE_PAGE_BYTES);
    let job = job(&file);
    let injected = Injected::default();
    injected.unmovable.store(1, Ordering::Release);
    let Some(load) = start(&job, Start { injected, ..Start::default() }) else { return };
    load.wait().unwrap();
    assert!(bytes(&load, file.bytes.len()) == file.bytes);
    assert_eq!(of(&job.counters.copied_instead), (HUGE_PAGE_BYTES / 4096) as u64);
}

#[test]
fn a_changed_file_is_an_error_and_new_bytes_are_never_visible() {
    let file = file(4 * HUGE_PAGE_BYTES);
    let job = job(&file);
    std::thread::sleep(Duration::from_millis(20));
    std::fs::write(&file.path, vec![9; file.bytes.len()]).unwrap();
    let Some(load) = start(&job, Start::default()) else { return };
    assert!(matches!(load.wait(), Err(Error::Changed { .. })));
    assert!(matches!(load.ensure(0..1), Err(Error::Changed { .. })));
    assert_eq!(load.shared().windows.present(), 0);
}

#[test]
fn many_threads_can_wait_for_one_window() {
    let file = file(2 * HUGE_PAGE_BYTES);
    let job = job(&file);
    let Some(load) = start(&job, Start::default()) else { return };
    let seen = bytes(&load, file.bytes.len());
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let expected = &file.bytes;
            scope.spawn(move || {
                let at = HUGE_PAGE_BYTES + thread * 4096;
                assert_eq!(seen[at], expected[at]);
            });
        }
    });
    load.wait().unwrap();
}

#[test]
fn dropping_a_load_ends_its_threads() {
    let file = file(16 * HUGE_PAGE_BYTES);
    let job = job(&file);
    let Some(load) = start(&job, Start::default()) else { return };
    let shared = load.shared.clone();
    drop(load);
    assert!(shared.has_ended());
}

/// Returns a start whose stream waits for the turns of other loads, which are returned too. Its
/// windows are only loaded on demand.
fn without_turn() -> (Start, Vec<turns::Turn>) {
    let turns = Arc::new(turns::Turns::default());
    let others = vec![turns.next(), turns.next()];
    (Start { turn: turns.next(), ..Start::default() }, others)
}

fn map(load: &OnDemand, job: &Job, windows: Range<usize>) -> Result<()> {
    let part = windows.start * HUGE_PAGE_BYTES..windows.end * HUGE_PAGE_BYTES;
    advise_on_demand(load, job, part, Advice::ReadOnly, true)
}

#[test]
fn mapped_windows_count_as_loaded() {
    let file = file(5 * HUGE_PAGE_BYTES + 4097);
    let job = job(&file);
    let (without_turn, others) = without_turn();
    let Some(load) = start(&job, without_turn) else { return };
    map(&load, &job, 1..4).unwrap();
    assert_eq!(job.counters.loaded_bytes(), 3 * HUGE_PAGE_BYTES as u64);
    drop(others);
    load.wait().unwrap();
    assert!(bytes(&load, file.bytes.len()) == file.bytes);
    assert_eq!(job.counters.loaded_bytes(), file.bytes.len() as u64);
}

#[test]
fn a_window_that_cannot_be_mapped_is_loaded() {
    let file = file(4 * HUGE_PAGE_BYTES);
    let job = job(&file);
    let (without_turn, _others) = without_turn();
    let Some(load) = start(&job, without_turn) else { return };
    // A file cannot be mapped from an offset within a page.
    let mut unmappable = job.clone();
    unmappable.part.begin += 1;
    assert!(map(&load, &unmappable, 1..2).is_err());
    assert_ne!(load.shared().windows.state(1), State::Mapped);
    let part = HUGE_PAGE_BYTES..2 * HUGE_PAGE_BYTES;
    assert!(bytes(&load, file.bytes.len())[part.clone()] == file.bytes[part]);
    load.ensure(1..2).unwrap();
    assert_eq!(job.counters.loaded_bytes(), HUGE_PAGE_BYTES as u64);
}
