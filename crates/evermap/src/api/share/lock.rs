//! The lock of a shared object: many readers, one writer at a time, and neither starves.
//!
//! A reader counts itself in a slot with its own cache line, so that readers on different
//! processors do not write to the same line. Without a writer, entering and leaving cost one atomic
//! addition each. A writer closes the lock and waits until every slot is empty. Readers wait while
//! the lock is closed. When the writer opens the lock, it lets in all waiting readers before the
//! next writer can close it. Writers take turns in the order of their arrival.
//!
//! A writer can also open the lock and keep its turn: readers enter, other writers do not. This
//! lets readers run during a flush.
//!
//! The parent module defines the atomics and the mutex, so that `tests/share_lock.rs` can run this
//! file under loom, which tries every interleaving.
//!
//! Invariants: `closed` changes only under the mutex, by the writer whose turn it is. After a
//! writer has seen a slot empty while the lock is closed, no reader enters through that slot,
//! because a reader that counts itself there sees `closed` and leaves. The writer that opens the
//! lock counts the waiting readers in.

use super::sync::{
    AtomicBool, AtomicU64, Condvar, Mutex, MutexGuard, Ordering, PoisonError, order,
};

/// Number of reader slots, a power of two. Further threads share them.
pub(super) const SLOTS: usize = if cfg!(evermap_loom) { 2 } else { 32 };
/// Slot of readers that a writer counted in.
const ADMITTED: usize = SLOTS;

/// Reader slot. Takes two cache lines, because the processor fetches lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Slot(AtomicU64);

/// Reason for refusing a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The lock was [broken](SlotLock::break_down), for this reason.
    Broken(String),
    /// This process was forked from the creator of the lock. No thread writes here, and if a writer
    /// of the parent had closed the lock, no thread opens it here.
    Forked,
}

/// Place of a reader in the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(usize);

#[derive(Debug)]
pub(super) struct SlotLock {
    slots: [Slot; SLOTS + 1],
    /// True while a writer stores or waits for readers to leave.
    closed: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Ticket for the next writer, and `serving`, the ticket whose turn it is.
    next_ticket: u64,
    serving: u64,
    /// Number of readers that wait for the lock to open.
    waiting: u64,
    /// Number of times that the lock was opened.
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

    /// Enters as a reader. `number` is the thread's number.
    #[inline]
    pub(super) fn enter(&self, number: usize) -> Result<Place, Refused> {
        let place = Place(number % SLOTS);
        self.slots[place.0].0.fetch_add(1, Ordering::SeqCst);
        // The addition above precedes this load, and a writer's store to `closed` precedes its
        // loads of the slots. So either the writer sees this reader, or the reader sees `closed`.
        order();
        if !self.closed.load(Ordering::SeqCst) {
            return Ok(place);
        }
        self.wait_to_enter(place)
    }

    /// Enters as a reader if no writer has closed the lock. Returns `None` otherwise.
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
        Ok(Place(ADMITTED))
    }

    /// Leaves as a reader.
    #[inline]
    pub(super) fn leave(&self, place: Place) {
        let before = self.slots[place.0].0.fetch_sub(1, Ordering::SeqCst);
        order();
        if before == 1 && self.closed.load(Ordering::SeqCst) {
            self.wake_writer();
        }
    }

    #[cold]
    fn wake_writer(&self) {
        if self.check_process().is_ok() {
            // Holding the mutex: the writer either has not read the slots yet, or already waits.
            let _state = self.lock();
            self.changed.notify_all();
        }
    }

    /// Waits for the calling thread's turn as a writer. Readers may be inside.
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

    /// Closes the lock to readers and waits until none is inside. Called by the writer whose turn
    /// it is.
    pub(super) fn close(&self) {
        if self.check_process().is_err() {
            // A forked child has only the calling thread, so there is no reader to wait for.
            return;
        }
        let mut state = self.lock();
        self.closed.store(true, Ordering::SeqCst);
        order();
        while self.slots.iter().any(|slot| slot.0.load(Ordering::SeqCst) != 0) {
            state = self.wait(state);
        }
    }

    /// Opens the lock to readers. Waiting readers enter before the next writer can close the lock
    /// again.
    pub(super) fn open(&self) {
        if self.check_process().is_err() {
            return;
        }
        let mut state = self.lock();
        if state.broken.is_some() {
            return;
        }
        self.slots[ADMITTED].0.fetch_add(state.waiting, Ordering::SeqCst);
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

    /// Closes the lock permanently, so that every later attempt to take it fails. Called by the
    /// writer whose turn it is. Readers that are inside stay.
    pub(super) fn break_down(&self, why: String) {
        if self.check_process().is_ok() {
            let mut state = self.lock();
            self.closed.store(true, Ordering::SeqCst);
            state.broken.get_or_insert(why);
            self.changed.notify_all();
        }
    }

    /// Returns true while threads are inside or waiting. Returns false in a forked child.
    pub(super) fn is_in_use(&self) -> bool {
        if self.check_process().is_err() {
            return false;
        }
        let state = self.lock();
        state.serving != state.next_ticket
            || state.waiting > 0
            || self.slots.iter().any(|slot| slot.0.load(Ordering::SeqCst) != 0)
    }

    /// Fails in a forked child, where the mutex may be locked by a thread that does not exist.
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
