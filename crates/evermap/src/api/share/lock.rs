//! The lock of a shared object: many readers, one writer at a time, and neither starves.
//!
//! A reader counts itself in a slot of its own cache line, so that readers on different processors
//! share no line that changes. With no writer there, entering and leaving cost one atomic addition
//! each. A writer closes the lock and waits until every slot is empty. While it is closed, readers
//! wait; the writer lets all that wait in when it opens the lock, before the next writer can close
//! it. Writers take turns in the order in which they came.
//!
//! A writer can also open the lock and keep its turn: readers come in, other writers do not. That is
//! how readers run beside a flush.
//!
//! The module around this file says what an atomic and a mutex are: `tests/share_lock.rs` has loom
//! try every interleaving.
//!
//! Invariants: `closed` changes only under the mutex, by the writer whose turn it is. After a writer
//! has seen a slot empty while the lock is closed, no reader enters by that slot: a reader that counts
//! itself there sees `closed` and leaves. The writer that opens counts the readers in that waited.

use super::sync::{
    AtomicBool, AtomicU64, Condvar, Mutex, MutexGuard, Ordering, PoisonError, order,
};

/// Slots of readers; threads beyond that share them. A power of two.
pub(super) const SLOTS: usize = if cfg!(evermap_loom) { 2 } else { 32 };
/// The slot of readers that a writer counted in.
const LET_IN: usize = SLOTS;

/// Readers that count themselves here. Two lines: the processor fetches lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Slot(AtomicU64);

/// Why a lock cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It was [broken](SlotLock::break_down), for this reason.
    Broken(String),
    /// This process was forked from the one that made the lock. Nobody writes here, and a writer of the
    /// parent that had the lock closed will never open it here.
    Forked,
}

/// A place in the lock that a reader has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(usize);

#[derive(Debug)]
pub(super) struct SlotLock {
    slots: [Slot; SLOTS + 1],
    /// A writer stores, or waits for readers to leave.
    closed: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The ticket that the next writer gets, and the one whose turn it is.
    next_ticket: u64,
    serving: u64,
    /// Readers that wait until the lock is opened.
    waiting: u64,
    /// Number of openings.
    openings: u64,
    broken: Option<String>,
}

impl SlotLock {
    pub(super) fn new() -> SlotLock {
        SlotLock {
            slots: std::array::from_fn(|_| Slot::default()),
            closed: AtomicBool::new(false),
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
        }
    }

    /// Enters as a reader. `number` is the thread's own.
    #[inline]
    pub(super) fn enter(&self, number: usize) -> Result<Place, Refused> {
        let place = Place(number % SLOTS);
        self.slots[place.0].0.fetch_add(1, Ordering::SeqCst);
        // The addition above comes before this load, as a writer's closing comes before its look at
        // the slots: either it sees us, or we see that it has closed.
        order();
        if !self.closed.load(Ordering::SeqCst) {
            return Ok(place);
        }
        self.wait_to_enter(place)
    }

    /// Enters as a reader if no writer is in the way; `None` if one is.
    #[inline]
    pub(super) fn try_enter(&self, number: usize) -> Result<Option<Place>, Refused> {
        let place = Place(number % SLOTS);
        self.slots[place.0].0.fetch_add(1, Ordering::SeqCst);
        order();
        if !self.closed.load(Ordering::SeqCst) {
            return Ok(Some(place));
        }
        self.leave(place);
        self.check_process().map(|()| None)
    }

    #[cold]
    fn wait_to_enter(&self, place: Place) -> Result<Place, Refused> {
        if let Err(forked) = self.check_process() {
            self.slots[place.0].0.fetch_sub(1, Ordering::SeqCst);
            return Err(forked);
        }
        let mut state = self.lock();
        if !self.closed.load(Ordering::SeqCst) {
            return Ok(place);
        }
        self.slots[place.0].0.fetch_sub(1, Ordering::SeqCst);
        self.changed.notify_all();
        if let Some(why) = &state.broken {
            return Err(Refused::Broken(why.clone()));
        }
        state.waiting += 1;
        let openings = state.openings;
        while state.openings == openings {
            if let Some(why) = &state.broken {
                let broken = Refused::Broken(why.clone());
                state.waiting -= 1;
                return Err(broken);
            }
            state = self.wait(state);
        }
        // The writer that opened the lock has counted us in.
        Ok(Place(LET_IN))
    }

    /// Leaves as a reader.
    #[inline]
    pub(super) fn leave(&self, place: Place) {
        let before = self.slots[place.0].0.fetch_sub(1, Ordering::SeqCst);
        order();
        if before == 1 && self.closed.load(Ordering::SeqCst) {
            self.tell_writer();
        }
    }

    #[cold]
    fn tell_writer(&self) {
        if self.check_process().is_ok() {
            // With the mutex: the writer has not looked at the slots yet, or it waits already.
            let _state = self.lock();
            self.changed.notify_all();
        }
    }

    /// Waits for the turn of the calling thread as a writer. Readers may be inside.
    pub(super) fn take_turn(&self) -> Result<(), Refused> {
        self.check_process()?;
        let mut state = self.lock();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        while state.serving != ticket {
            state = self.wait(state);
        }
        match &state.broken {
            None => Ok(()),
            Some(why) => {
                let broken = Refused::Broken(why.clone());
                state.serving += 1;
                self.changed.notify_all();
                Err(broken)
            }
        }
    }

    /// Closes the lock to readers and waits until none is inside. By the writer whose turn it is.
    pub(super) fn close(&self) {
        if self.check_process().is_err() {
            // A forked child has the calling thread alone: no reader is there to leave.
            return;
        }
        let mut state = self.lock();
        self.closed.store(true, Ordering::SeqCst);
        order();
        while self.slots.iter().any(|slot| slot.0.load(Ordering::SeqCst) != 0) {
            state = self.wait(state);
        }
    }

    /// Lets readers in, those that wait before the next writer can close the lock again.
    pub(super) fn open(&self) {
        if self.check_process().is_err() {
            return;
        }
        let mut state = self.lock();
        if state.broken.is_some() {
            return;
        }
        self.slots[LET_IN].0.fetch_add(state.waiting, Ordering::SeqCst);
        state.waiting = 0;
        state.openings += 1;
        self.closed.store(false, Ordering::SeqCst);
        self.changed.notify_all();
    }

    /// Ends the writer's turn.
    pub(super) fn end_turn(&self) {
        if self.check_process().is_ok() {
            self.lock().serving += 1;
            self.changed.notify_all();
        }
    }

    /// Closes the lock for good: every thread that wants it from now on is refused. By the writer whose
    /// turn it is; readers that are inside stay.
    pub(super) fn break_down(&self, why: String) {
        if self.check_process().is_ok() {
            let mut state = self.lock();
            self.closed.store(true, Ordering::SeqCst);
            state.broken.get_or_insert(why);
            self.changed.notify_all();
        }
    }

    /// Returns true while threads are inside or wait. False in a forked child.
    pub(super) fn is_in_use(&self) -> bool {
        if self.check_process().is_err() {
            return false;
        }
        let state = self.lock();
        state.serving != state.next_ticket
            || state.waiting > 0
            || self.slots.iter().any(|slot| slot.0.load(Ordering::SeqCst) != 0)
    }

    /// In a forked child the mutex may have been locked by a thread that is not there.
    fn check_process(&self) -> Result<(), Refused> {
        match super::sync::is_child() {
            false => Ok(()),
            true => Err(Refused::Forked),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }
}
