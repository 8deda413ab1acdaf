//! Loom tests: every interleaving of readers and writers at the lock of a shared object.
//!
//! Compiled only with `--cfg evermap_loom`, by `make test-races`. Loom has no total order of
//! sequentially consistent accesses, so fences replace it. They order no more than the accesses do.
#![cfg(evermap_loom)]
#![allow(clippy::unwrap_used)]

use lock::{Refused, SlotLock};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

mod sync {
    pub(super) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
    pub(super) use loom::sync::{Condvar, Mutex, MutexGuard};
    pub(super) use std::sync::PoisonError;

    pub(super) fn order() {
        fence(Ordering::SeqCst);
    }

    pub(super) fn is_child() -> bool {
        false
    }
}

#[allow(dead_code)]
#[path = "../src/api/share/lock.rs"]
mod lock;

struct Guarded {
    lock: SlotLock,
    /// Two words that are equal whenever the lock is open. Loom reports a read that is concurrent
    /// with a write.
    words: UnsafeCell<[u64; 2]>,
}

// SAFETY: the lock guarantees exclusive access; loom reports a violation.
unsafe impl Sync for Guarded {}
// SAFETY: the lock guarantees exclusive access.
unsafe impl Send for Guarded {}

impl Guarded {
    fn new() -> Arc<Guarded> {
        Arc::new(Guarded { lock: SlotLock::new(), words: UnsafeCell::new([0; 2]) })
    }

    fn read(&self, thread: usize) -> Result<u64, Refused> {
        let place = self.lock.enter(thread)?;
        // SAFETY: loom reports a concurrent write.
        let [one, two] = self.words.with(|words| unsafe { *words });
        assert_eq!(one, two, "a torn state");
        self.lock.leave(place);
        Ok(one)
    }

    fn store(&self) {
        self.words.with_mut(|words| {
            // SAFETY: loom reports any concurrent access.
            let words = unsafe { &mut *words };
            words[0] += 1;
            words[1] += 1;
        });
    }

    fn write(&self) -> Result<(), Refused> {
        self.lock.take_turn()?;
        self.lock.close();
        self.store();
        self.lock.open();
        self.lock.end_turn();
        Ok(())
    }
}

fn explore(test: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(test);
}

#[test]
fn a_reader_with_its_own_slot_and_a_writer_exclude_each_other() {
    explore(|| {
        let guarded = Guarded::new();
        let reader = thread::spawn({
            let guarded = Arc::clone(&guarded);
            move || guarded.read(0).unwrap()
        });
        guarded.write().unwrap();
        assert!(reader.join().unwrap() <= 1);
        assert_eq!(guarded.read(1).unwrap(), 1);
    });
}

#[test]
fn two_readers_of_one_slot_and_a_writer_exclude_each_other_and_finish() {
    explore(|| {
        let guarded = Guarded::new();
        let readers = [0, 2].map(|thread| {
            let guarded = Arc::clone(&guarded);
            thread::spawn(move || guarded.read(thread).unwrap())
        });
        guarded.write().unwrap();
        for reader in readers {
            assert!(reader.join().unwrap() <= 1);
        }
    });
}

#[test]
fn two_writers_take_turns_with_a_reader() {
    explore(|| {
        let guarded = Guarded::new();
        let writer = thread::spawn({
            let guarded = Arc::clone(&guarded);
            move || guarded.write().unwrap()
        });
        let reader = thread::spawn({
            let guarded = Arc::clone(&guarded);
            move || guarded.read(0).unwrap()
        });
        guarded.write().unwrap();
        writer.join().unwrap();
        assert!(reader.join().unwrap() <= 2);
        assert_eq!(guarded.read(1).unwrap(), 2);
    });
}

#[test]
fn a_writer_that_let_readers_in_excludes_them_again() {
    explore(|| {
        let guarded = Guarded::new();
        let reader = thread::spawn({
            let guarded = Arc::clone(&guarded);
            move || guarded.read(0).unwrap()
        });
        guarded.lock.take_turn().unwrap();
        guarded.lock.close();
        guarded.store();
        guarded.lock.open();
        // The flush runs concurrently with readers; then the writer stores more.
        guarded.lock.close();
        guarded.store();
        guarded.lock.open();
        guarded.lock.end_turn();
        assert!(reader.join().unwrap() <= 2);
    });
}

#[test]
fn a_poisoned_lock_refuses_readers_and_writers_without_waiting() {
    explore(|| {
        let guarded = Guarded::new();
        let reader = thread::spawn({
            let guarded = Arc::clone(&guarded);
            move || guarded.read(0)
        });
        let writer = thread::spawn({
            let guarded = Arc::clone(&guarded);
            move || guarded.write()
        });
        if guarded.lock.take_turn().is_ok() {
            guarded.lock.close();
            guarded.lock.break_down("a flush failed".to_string());
            guarded.lock.open();
            guarded.lock.end_turn();
        }
        let broken = Refused::Broken("a flush failed".to_string());
        assert!(
            matches!(reader.join().unwrap(), Ok(0 | 1)) || guarded.read(0) == Err(broken.clone())
        );
        let _ = writer.join().unwrap();
        assert_eq!(guarded.read(1), Err(broken.clone()));
        assert_eq!(guarded.write(), Err(broken));
    });
}
