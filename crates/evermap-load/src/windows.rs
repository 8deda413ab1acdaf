//! Which windows of an image are there, and who waits for which.
//!
//! No locks: a thread that loads may be killed at any instruction, and leaves nothing locked. Each window is one byte that changes by
//! compare-and-swap; waiting is sleeping on a word that counts events. `Present` is stored after the window's bytes are where they belong and
//! never changes again.

use std::ops::Range;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::io::Errno;

use crate::sys::thread::{count_up, sleep_while};

/// What is with a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// Not there; its turn will come.
    Missing = 0,
    /// Not there, and somebody waits for it.
    Wanted = 1,
    /// Being read.
    Reading = 2,
    /// There.
    Present = 3,
    /// Cannot be had.
    Failed = 4,
    /// Not there, and read only when it is touched.
    Left = 5,
    /// The file's pages: there, as far as pages of a file are.
    Mapped = 6,
}

impl State {
    fn of(byte: u8) -> State {
        match byte {
            1 => State::Wanted,
            2 => State::Reading,
            3 => State::Present,
            4 => State::Failed,
            5 => State::Left,
            6 => State::Mapped,
            _ => State::Missing,
        }
    }

    /// Nothing is to be done, and nothing will change by itself.
    fn is_settled(self) -> bool {
        matches!(self, State::Present | State::Failed | State::Mapped)
    }
}

/// The windows of one image.
#[derive(Debug)]
pub(crate) struct Windows {
    states: Box<[AtomicU8]>,
    /// Why windows failed.
    errors: Box<[AtomicI32]>,
    /// Windows in `Missing`, `Wanted` or `Reading`.
    unsettled: AtomicUsize,
    /// Windows in `Left`.
    left: AtomicUsize,
    present: AtomicUsize,
    failed: AtomicUsize,
    /// Counts what happened to windows; slept on.
    events: AtomicU32,
    sleepers: AtomicU32,
}

impl Windows {
    /// All missing.
    pub(crate) fn new(count: usize) -> Windows {
        Windows {
            states: (0..count).map(|_| AtomicU8::new(0)).collect(),
            errors: (0..count).map(|_| AtomicI32::new(0)).collect(),
            unsettled: AtomicUsize::new(count),
            left: AtomicUsize::new(0),
            present: AtomicUsize::new(0),
            failed: AtomicUsize::new(0),
            events: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.states.len()
    }

    pub(crate) fn state(&self, window: usize) -> State {
        State::of(self.states[window].load(Ordering::Acquire))
    }

    /// How many are there.
    #[cfg(test)]
    pub(crate) fn present(&self) -> usize {
        self.present.load(Ordering::Acquire)
    }

    pub(crate) fn failed(&self) -> usize {
        self.failed.load(Ordering::Acquire)
    }

    /// Nothing is being loaded, or waits for its turn. Windows that were left out may be missing.
    pub(crate) fn are_settled(&self) -> bool {
        self.unsettled() == 0
    }

    /// How many are still to come.
    pub(crate) fn unsettled(&self) -> usize {
        self.unsettled.load(Ordering::Acquire)
    }

    /// The same, and none was left out.
    pub(crate) fn are_complete(&self) -> bool {
        self.are_settled() && self.left.load(Ordering::Acquire) == 0
    }

    /// The first of some that failed, and why.
    pub(crate) fn failure(&self, range: Range<usize>) -> Option<(usize, Errno)> {
        if self.failed() == 0 {
            return None;
        }
        range.into_iter().find(|window| self.state(*window) == State::Failed).map(|window| {
            let error = self.errors[window].load(Ordering::Relaxed);
            (window, Errno::from_raw_os_error(error))
        })
    }

    fn change(&self, window: usize, from: State, to: State) -> bool {
        let swapped = self.states[window].compare_exchange(
            from as u8,
            to as u8,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if swapped.is_err() {
            return false;
        }
        match (from, to) {
            (State::Left, _) => {
                self.unsettled.fetch_add(1, Ordering::AcqRel);
                self.left.fetch_sub(1, Ordering::AcqRel);
            }
            (_, State::Left) => {
                self.left.fetch_add(1, Ordering::AcqRel);
                self.unsettled.fetch_sub(1, Ordering::AcqRel);
            }
            (from, to) if !from.is_settled() && to.is_settled() => {
                match to {
                    State::Present => self.present.fetch_add(1, Ordering::AcqRel),
                    State::Failed => self.failed.fetch_add(1, Ordering::AcqRel),
                    _ => 0,
                };
                self.unsettled.fetch_sub(1, Ordering::AcqRel);
            }
            _ => {}
        }
        true
    }

    /// Somebody waits for it: whether that is news.
    pub(crate) fn want(&self, window: usize) -> bool {
        self.change(window, State::Missing, State::Wanted)
            || self.change(window, State::Left, State::Wanted)
    }

    /// The caller reads it: unless somebody does, or did.
    pub(crate) fn claim(&self, window: usize) -> bool {
        self.change(window, State::Wanted, State::Reading)
            || self.change(window, State::Missing, State::Reading)
    }

    /// What was being read is wanted, as nobody reads it any more.
    pub(crate) fn take_back(&self) {
        for window in 0..self.len() {
            self.change(window, State::Reading, State::Wanted);
        }
    }

    /// It is there.
    pub(crate) fn publish(&self, window: usize) {
        self.change(window, State::Reading, State::Present);
        self.tell();
    }

    /// It cannot be had, whatever it was before, unless it is there.
    pub(crate) fn fail(&self, window: usize, errno: Errno) {
        self.errors[window].store(errno.raw_os_error(), Ordering::Relaxed);
        for from in [State::Missing, State::Wanted, State::Reading] {
            self.change(window, from, State::Failed);
        }
        if self.change(window, State::Left, State::Wanted) {
            self.change(window, State::Wanted, State::Failed);
        }
        self.tell();
    }

    /// It is not read before it is touched: if it is missing.
    pub(crate) fn leave(&self, window: usize) -> bool {
        let is_left = self.change(window, State::Missing, State::Left);
        self.tell();
        is_left
    }

    /// It shows the file: if it is missing.
    pub(crate) fn give_back(&self, window: usize) -> bool {
        let is_given = self.change(window, State::Missing, State::Mapped)
            || (self.change(window, State::Left, State::Missing)
                && self.change(window, State::Missing, State::Mapped));
        self.tell();
        is_given
    }

    /// Wakes all who wait.
    pub(crate) fn tell(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            count_up(&self.events);
        } else {
            self.events.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Sleeps until something happens, unless `is_enough` already; for `patience` at most. Says whether it is enough.
    pub(crate) fn wait(&self, patience: Duration, is_enough: impl Fn() -> bool) -> bool {
        let seen = self.events.load(Ordering::SeqCst);
        if is_enough() {
            return true;
        }
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        sleep_while(&self.events, seen, patience);
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        is_enough()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_window_is_claimed_once_and_published_for_good() {
        let windows = Windows::new(2);
        assert!(windows.want(0) && !windows.want(0));
        assert!(windows.claim(0) && !windows.claim(0));
        windows.publish(0);
        assert!(!windows.want(0) && !windows.claim(0) && !windows.leave(0));
        windows.fail(0, Errno::IO);
        assert_eq!((windows.state(0), windows.present(), windows.failed()), (State::Present, 1, 0));
        assert!(!windows.are_settled());
        assert!(windows.claim(1));
        windows.fail(1, Errno::IO);
        assert!(windows.are_complete());
        assert_eq!(windows.failure(0..2), Some((1, Errno::IO)));
        assert_eq!(windows.failure(0..1), None);
    }

    #[test]
    fn what_is_left_out_is_settled_and_not_complete_until_it_is_wanted() {
        let windows = Windows::new(1);
        assert!(windows.leave(0));
        assert!(windows.are_settled() && !windows.are_complete());
        assert!(windows.want(0));
        assert!(!windows.are_settled());
        assert!(windows.claim(0));
        windows.publish(0);
        assert!(windows.are_complete());
    }

    #[test]
    fn what_a_lost_thread_was_reading_is_wanted_again() {
        let windows = Windows::new(3);
        assert!(windows.claim(1));
        windows.take_back();
        assert_eq!(windows.state(1), State::Wanted);
        assert_eq!(windows.state(0), State::Missing);
    }

    #[test]
    fn who_waits_is_woken_by_what_it_waits_for() {
        let windows = Windows::new(1);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                while !windows.wait(Duration::from_secs(10), || windows.are_settled()) {}
            });
            assert!(windows.claim(0));
            windows.publish(0);
            waiting.join().unwrap();
        });
    }
}
