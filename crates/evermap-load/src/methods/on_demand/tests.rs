//! What a load on demand promises when something goes wrong.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::counters::Counters;
use crate::part::Part;
use crate::source::Source;
use crate::sys::HUGE_PAGE_BYTES;
use crate::sys::thread::vanish;
use evermap_observe::Span;

/// Nowhere.
const NONE: usize = usize::MAX;

/// What goes wrong, and where.
#[derive(Debug)]
pub(crate) struct Injected {
    /// The loader thread is gone before it reads this window; once.
    vanish_before_reading: AtomicUsize,
    /// It is gone when this window is in its place, and before it says so; once.
    vanish_before_publishing: AtomicUsize,
    /// This window cannot be read.
    unreadable: AtomicUsize,
    /// It can't past the cache.
    unreadable_directly: AtomicUsize,
}

impl Default for Injected {
    fn default() -> Injected {
        let none = || AtomicUsize::new(NONE);
        Injected {
            vanish_before_reading: none(),
            vanish_before_publishing: none(),
            unreadable: none(),
            unreadable_directly: none(),
        }
    }
}

fn vanish_at(at: &AtomicUsize, window: usize) {
    if at.compare_exchange(window, NONE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
        vanish();
    }
}

impl Injected {
    pub(crate) fn before_read(&self, window: usize) {
        vanish_at(&self.vanish_before_reading, window);
    }

    pub(crate) fn before_publishing(&self, window: usize) {
        vanish_at(&self.vanish_before_publishing, window);
    }

    pub(crate) fn result(
        &self,
        window: usize,
        result: Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        let is_lost = [&self.unreadable, &self.unreadable_directly]
            .iter()
            .any(|at| at.load(Ordering::Acquire) == window);
        if is_lost { Err(Errno::IO) } else { result }
    }

    pub(crate) fn refill(
        &self,
        window: usize,
        job: &Job,
        fill: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        if self.unreadable.load(Ordering::Acquire) != window {
            return fill();
        }
        let window = job.part.window(window);
        Err(Error::Unreadable {
            path: job.source.path().into(),
            offset_bytes: window.offset,
            length_bytes: window.bytes as u64,
            source: Errno::IO.into(),
        })
    }
}

struct File {
    _directory: tempfile::TempDir,
    path: PathBuf,
    bytes: Vec<u8>,
}

/// Of so many bytes, beside this program: on a disk, where there is direct I/O.
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

/// None, with a word to whoever watches, where the kernel or its rights don't have what it takes.
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
    // SAFETY: the image's memory, which lives as long as the load.
    unsafe { std::slice::from_raw_parts(load.shared().region.address(), len) }
}

fn of(counter: &std::sync::atomic::AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[test]
fn all_bytes_come_when_they_are_touched_in_whatever_order() {
    let file = file(9 * HUGE_PAGE_BYTES + 4097);
    let job = job(&file);
    let Some(load) = start(&job, Start::default()) else { return };
    let seen = bytes(&load, file.bytes.len());
    for at in [file.bytes.len() - 1, 5 * HUGE_PAGE_BYTES, 1, 7 * HUGE_PAGE_BYTES + 4095] {
        assert_eq!(seen[at], file.bytes[at], "byte {at}");
    }
    assert!(seen == file.bytes);
    load.wait().unwrap();
    // SAFETY: behind the file's last byte is memory of the image: the rest of its last page.
    assert_eq!(unsafe { *load.shared().region.address().add(file.bytes.len()) }, 0);
    assert_eq!(job.counters.loaded_bytes(), file.bytes.len() as u64);
}

#[test]
fn a_loader_thread_that_is_killed_before_a_read_is_replaced() {
    killed(|injected| &injected.vanish_before_reading);
}

#[test]
fn a_loader_thread_that_is_killed_between_a_move_and_saying_so_is_replaced() {
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
fn a_window_that_cannot_be_read_is_an_error_and_all_others_are_there() {
    let file = file(6 * HUGE_PAGE_BYTES);
    let job = job(&file);
    let injected = Injected::default();
    injected.unreadable.store(2, Ordering::Release);
    let Some(load) = start(&job, Start { injected, ..Start::default() }) else { return };
    let Err(Error::Unreadable { offset_bytes, length_bytes, .. }) = load.wait() else {
        panic!("it was read")
    };
    assert_eq!((offset_bytes, length_bytes), (2 * HUGE_PAGE_BYTES as u64, HUGE_PAGE_BYTES as u64));
    assert!(load.ensure(2..3).is_err());
    load.ensure(3..6).unwrap();
    let seen = bytes(&load, file.bytes.len());
    assert!(seen[..2 * HUGE_PAGE_BYTES] == file.bytes[..2 * HUGE_PAGE_BYTES]);
    assert!(seen[3 * HUGE_PAGE_BYTES..] == file.bytes[3 * HUGE_PAGE_BYTES..]);
}

#[test]
fn what_cannot_be_read_past_the_cache_is_read_through_it() {
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
fn a_file_that_changes_meanwhile_is_an_error_and_no_window_has_the_new_bytes() {
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
fn many_threads_at_one_window_all_get_its_bytes() {
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
fn a_load_that_is_dropped_ends() {
    let file = file(16 * HUGE_PAGE_BYTES);
    let job = job(&file);
    let Some(load) = start(&job, Start::default()) else { return };
    let shared = load.shared.clone();
    drop(load);
    assert!(shared.has_ended());
}
