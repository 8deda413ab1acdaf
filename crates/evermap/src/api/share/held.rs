//! List of the shared objects that the calling thread reads or writes.
//!
//! A thread that reads may read again without taking the lock, so that a waiting writer cannot come
//! in between. A thread that would wait for itself gets an error instead. A holding must be
//! released in the thread that recorded it.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::lock::Place;

/// Holding of a thread in one lock, identified by the lock's number.
#[derive(Clone, Copy, Debug)]
struct Holding {
    lock: u64,
    /// Number of read guards of this thread. They share one place.
    reads: u64,
    /// Place in the lock. `None` for a writer.
    place: Option<Place>,
}

thread_local! {
    static HOLDINGS: RefCell<Vec<Holding>> = const { RefCell::new(Vec::new()) };
    /// Number of the thread, from one. Zero before the first use.
    static NUMBER: Cell<usize> = const { Cell::new(0) };
}

/// State of a lock for one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    Not,
    Reading,
    Writing,
}

/// Returns the calling thread's number. Numbers are unique and consecutive.
#[inline]
pub(super) fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}

/// Returns the state of a lock for the calling thread.
pub(super) fn held(lock: u64) -> Held {
    HOLDINGS.with_borrow(|holdings| match holdings.iter().find(|h| h.lock == lock) {
        None => Held::Not,
        Some(Holding { place: Some(_), .. }) => Held::Reading,
        Some(Holding { place: None, .. }) => Held::Writing,
    })
}

/// Counts a further read if the calling thread already reads. Returns the thread's state before.
#[inline]
pub(super) fn read_again(lock: u64) -> Held {
    HOLDINGS.with_borrow_mut(|holdings| match holdings.iter_mut().find(|h| h.lock == lock) {
        None => Held::Not,
        Some(Holding { place: None, .. }) => Held::Writing,
        Some(holding) => {
            holding.reads += 1;
            Held::Reading
        }
    })
}

/// Records that the calling thread reads or, without a place, that it writes.
#[inline]
pub(super) fn note(lock: u64, place: Option<Place>) {
    HOLDINGS.with_borrow_mut(|holdings| holdings.push(Holding { lock, reads: 1, place }));
}

/// Result of releasing a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Released {
    /// The thread did not hold the lock in this way.
    Nothing,
    /// The thread still reads.
    OneOfSeveral,
    /// Released the thread's last read, or its write.
    Last(Option<Place>),
}

/// Releases one read of the calling thread, or its write.
#[inline]
pub(super) fn release(lock: u64, reading: bool) -> Released {
    HOLDINGS.with_borrow_mut(|holdings| {
        let found = holdings
            .iter()
            .position(|h| h.lock == lock)
            .filter(|&at| holdings[at].place.is_some() == reading);
        let Some(at) = found else { return Released::Nothing };
        holdings[at].reads -= 1;
        match holdings[at].reads {
            0 => Released::Last(holdings.swap_remove(at).place),
            _ => Released::OneOfSeveral,
        }
    })
}
