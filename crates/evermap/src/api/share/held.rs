//! List of the shared objects that the calling thread reads or writes.
//!
//! A thread that reads may read again without a look at the lock, so that a waiting writer cannot
//! come between the two. A thread that would wait for itself is refused instead.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::lock::Place;

/// A thread's part in one lock, known by the lock's number.
#[derive(Clone, Copy, Debug)]
struct Holding {
    lock: u64,
    /// Guards of this thread for reading; they share one place.
    reads: u64,
    /// The place; `None` for a writer.
    place: Option<Place>,
}

thread_local! {
    static HOLDINGS: RefCell<Vec<Holding>> = const { RefCell::new(Vec::new()) };
    /// The thread's number, from one on; zero before it is asked for.
    static NUMBER: Cell<usize> = const { Cell::new(0) };
}

/// State of a lock for one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    Not,
    Reading,
    Writing,
}

/// The calling thread's number: threads have different ones, and neighbours follow each other.
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

/// Counts a further read of a thread that holds the lock. Says how it did before.
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

/// Notes that the calling thread reads, or with no place, that it writes.
#[inline]
pub(super) fn note(lock: u64, place: Option<Place>) {
    HOLDINGS.with_borrow_mut(|holdings| holdings.push(Holding { lock, reads: 1, place }));
}

/// Result of giving a lock up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GivenUp {
    /// It did not hold the lock that way.
    Nothing,
    /// It still reads.
    OneOfSeveral,
    /// Its last read, or its write.
    Last(Option<Place>),
}

/// Forgets one read of the calling thread, or its write.
#[inline]
pub(super) fn give_up(lock: u64, reading: bool) -> GivenUp {
    HOLDINGS.with_borrow_mut(|holdings| {
        let found = holdings
            .iter()
            .position(|h| h.lock == lock)
            .filter(|&at| holdings[at].place.is_some() == reading);
        let Some(at) = found else { return GivenUp::Nothing };
        holdings[at].reads -= 1;
        match holdings[at].reads {
            0 => GivenUp::Last(holdings.swap_remove(at).place),
            _ => GivenUp::OneOfSeveral,
        }
    })
}
