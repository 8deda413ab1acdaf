//! States of an image's windows, and waiting for them.
//!
//! There are no locks, because a loading thread can be killed at any instruction. Each window is
//! one byte changed by compare-and-swap, and waiting means sleeping on an event counter. `Present`
//! is stored after the window's bytes are in place, and never changes again.

use std::ops::Range;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::io::Errno;

use crate::sys::thread::{count_up, sleep_while};

/// State of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// Missing, to be loaded in turn.
    Missing = 0,
    /// Missing, and a thread waits for it or asked for it.
    Wanted = 1,
    /// A loading thread is reading it.
    Reading = 2,
    /// Loaded.
    Present = 3,
    /// Cannot be loaded.
    Failed = 4,
    /// Missing, and loaded only on access.
    Skipped = 5,
    /// Mapped from the file.
    Mapped = 6,
    /// Missing, and being mapped from the file. The loading threads leave it alone.
    Mapping = 7,
}

impl State {
    fn of(byte: u8) -> State {
        match byte {
            1 => State::Wanted,
            2 => State::Reading,
            3 => State::Present,
            4 => State::Failed,
            5 => State::Skipped,
            6 => State::Mapped,
            7 => State::Mapping,
            _ => State::Missing,
        }
    }

    /// Returns true if the state no longer changes.
    fn is_settled(self) -> bool {
        matches!(self, State::Present | State::Failed | State::Mapped)
    }
}

/// The windows of one image.
#[derive(Debug)]
pub(crate) struct Windows {
    states: Box<[AtomicU8]>,
    /// Error numbers of failed windows.
    errors: Box<[AtomicI32]>,
    /// Windows in `Missing`, `Wanted`, `Reading` or `Mapping`.
    unsettled: AtomicUsize,
    /// Windows in `Skipped`.
    skipped: AtomicUsize,
    present: AtomicUsize,
    failed: AtomicUsize,
    /// Event counter on which threads sleep.
    events: AtomicU32,
    sleepers: AtomicU32,
}

impl Windows {
    /// Creates windows that are all missing.
    pub(crate) fn new(count: usize) -> Windows {
        Windows {
            states: (0..count).map(|_| AtomicU8::new(0)).collect(),
            errors: (0..count).map(|_| AtomicI32::new(0)).collect(),
            unsettled: AtomicUsize::new(count),
            skipped: AtomicUsize::new(0),
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

    /// Returns the number of loaded windows.
    #[cfg(test)]
    pub(crate) fn present(&self) -> usize {
        self.present.load(Ordering::Acquire)
    }

    pub(crate) fn failed(&self) -> usize {
        self.failed.load(Ordering::Acquire)
    }

    /// Returns true if no window is being loaded or waits for its turn. Skipped windows may be
    /// missing.
    pub(crate) fn are_settled(&self) -> bool {
        self.unsettled() == 0
    }

    /// Returns the number of windows still to be loaded.
    pub(crate) fn unsettled(&self) -> usize {
        self.unsettled.load(Ordering::Acquire)
    }

    /// Returns true if all windows are settled and none is skipped.
    pub(crate) fn are_complete(&self) -> bool {
        self.are_settled() && self.skipped.load(Ordering::Acquire) == 0
    }

    /// Returns the first failed window in a range, with its error.
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
            (State::Skipped, _) => {
                self.unsettled.fetch_add(1, Ordering::AcqRel);
                self.skipped.fetch_sub(1, Ordering::AcqRel);
            }
            (_, State::Skipped) => {
                self.skipped.fetch_add(1, Ordering::AcqRel);
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

    /// Marks a window as waited for. Returns true if the state changed.
    pub(crate) fn want(&self, window: usize) -> bool {
        self.change(window, State::Missing, State::Wanted)
            || self.change(window, State::Skipped, State::Wanted)
    }

    /// Claims a window for reading. Returns false if it is being read or settled.
    pub(crate) fn claim(&self, window: usize) -> bool {
        self.change(window, State::Wanted, State::Reading)
            || self.change(window, State::Missing, State::Reading)
    }

    /// Returns all windows being read to `Wanted`, after their reader was lost.
    pub(crate) fn requeue_lost(&self) {
        for window in 0..self.len() {
            self.change(window, State::Reading, State::Wanted);
        }
    }

    /// Marks a window as loaded and wakes waiters.
    pub(crate) fn publish(&self, window: usize) {
        self.change(window, State::Reading, State::Present);
        self.notify();
    }

    /// Marks a window as failed unless it is loaded, and wakes waiters.
    pub(crate) fn fail(&self, window: usize, errno: Errno) {
        self.errors[window].store(errno.raw_os_error(), Ordering::Relaxed);
        for from in [State::Missing, State::Wanted, State::Reading, State::Mapping] {
            self.change(window, from, State::Failed);
        }
        if self.change(window, State::Skipped, State::Wanted) {
            self.change(window, State::Wanted, State::Failed);
        }
        self.notify();
    }

    /// Skips a missing window until it is accessed. Returns true if the state changed.
    pub(crate) fn skip(&self, window: usize) -> bool {
        let is_skipped = self.change(window, State::Missing, State::Skipped);
        self.notify();
        is_skipped
    }

    /// Claims a missing window for mapping the file. Returns true if the state changed.
    pub(crate) fn begin_mapping(&self, window: usize) -> bool {
        self.change(window, State::Missing, State::Mapping)
            || self.change(window, State::Skipped, State::Mapping)
    }

    /// Marks a window as mapped from the file, or as wanted if mapping failed. Returns true if the
    /// state changed: all windows may have failed in the meantime.
    pub(crate) fn end_mapping(&self, window: usize, is_mapped: bool) -> bool {
        let to = if is_mapped { State::Mapped } else { State::Wanted };
        let is_changed = self.change(window, State::Mapping, to);
        self.notify();
        is_changed
    }

    /// Wakes all waiting threads.
    pub(crate) fn notify(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            count_up(&self.events);
        } else {
            self.events.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Sleeps until an event or `timeout`, unless `is_enough` is true already. Returns `is_enough`.
    pub(crate) fn wait(&self, timeout: Duration, is_enough: impl Fn() -> bool) -> bool {
        let seen = self.events.load(Ordering::SeqCst);
        if is_enough() {
            return true;
        }
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        sleep_while(&self.events, seen, timeout);
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
        assert!(!windows.want(0) && !windows.claim(0) && !windows.skip(0));
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
    fn a_skipped_window_is_settled_and_incomplete_until_wanted() {
        let windows = Windows::new(1);
        assert!(windows.skip(0));
        assert!(windows.are_settled() && !windows.are_complete());
        assert!(windows.want(0));
        assert!(!windows.are_settled());
        assert!(windows.claim(0));
        windows.publish(0);
        assert!(windows.are_complete());
    }

    #[test]
    fn a_window_being_mapped_is_neither_settled_nor_loaded() {
        let windows = Windows::new(2);
        assert!(windows.skip(1));
        for window in 0..2 {
            assert!(windows.begin_mapping(window) && !windows.begin_mapping(window));
            assert!(!windows.claim(window) && !windows.want(window));
        }
        windows.requeue_lost();
        assert_eq!(windows.unsettled(), 2);
        assert!(windows.end_mapping(0, true) && windows.end_mapping(1, false));
        assert_eq!((windows.state(0), windows.state(1)), (State::Mapped, State::Wanted));
        assert_eq!(windows.unsettled(), 1);
        windows.fail(1, Errno::IO);
        assert!(windows.are_complete());
    }

    #[test]
    fn windows_of_a_lost_thread_are_wanted_again() {
        let windows = Windows::new(3);
        assert!(windows.claim(1));
        windows.requeue_lost();
        assert_eq!(windows.state(1), State::Wanted);
        assert_eq!(windows.state(0), State::Missing);
    }

    #[test]
    fn publishing_wakes_a_waiting_thread() {
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
