//! Fault injection for failures that a kernel or disk rarely shows.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::io::Errno;

use super::place::Placer;
use crate::error::Error;
use crate::job::Job;
use crate::sys::thread::vanish;
use crate::sys::userfault::{FillMode, Userfault};

/// Matches no window.
pub(super) const NONE: usize = usize::MAX;

/// Injected failures and their positions.
#[derive(Debug)]
pub(crate) struct Injected {
    /// The loader thread vanishes before it reads this window, once.
    pub(super) vanish_before_reading: AtomicUsize,
    /// The loader thread vanishes after it moved this window, before it publishes it, once.
    pub(super) vanish_before_publishing: AtomicUsize,
    /// Every loader thread vanishes before its first read.
    pub(super) vanish_always: AtomicBool,
    /// This many deputies vanish at once.
    pub(super) vanish_deputies: AtomicUsize,
    /// The kernel refuses to move pages of this window.
    pub(super) unmovable: AtomicUsize,
    /// Every read starts with this delay, in milliseconds.
    pub(super) pause_ms: AtomicUsize,
    /// All reads of this window fail.
    pub(super) unreadable: AtomicUsize,
    /// Direct reads of this window fail.
    pub(super) unreadable_directly: AtomicUsize,
}

impl Default for Injected {
    fn default() -> Injected {
        let none = || AtomicUsize::new(NONE);
        Injected {
            vanish_before_reading: none(),
            vanish_before_publishing: none(),
            vanish_always: AtomicBool::new(false),
            vanish_deputies: AtomicUsize::new(0),
            unmovable: none(),
            pause_ms: AtomicUsize::new(0),
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
        std::thread::sleep(Duration::from_millis(self.pause_ms.load(Ordering::Acquire) as u64));
        if self.vanish_always.load(Ordering::Acquire) {
            vanish();
        }
        vanish_at(&self.vanish_before_reading, window);
    }

    pub(crate) fn moves<'u>(&self, userfault: &'u Userfault, window: usize) -> Moves<'u> {
        Moves { userfault, are_refused: self.unmovable.load(Ordering::Acquire) == window }
    }

    pub(crate) fn as_deputy(&self) {
        let fewer = |deputies: usize| deputies.checked_sub(1);
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        if self.vanish_deputies.fetch_update(success, failure, fewer).is_ok() {
            vanish();
        }
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

/// The kernel's userfaultfd, which optionally refuses to move pages.
pub(crate) struct Moves<'u> {
    userfault: &'u Userfault,
    are_refused: bool,
}

impl Placer for Moves<'_> {
    unsafe fn place(
        &self,
        fill: FillMode,
        target: usize,
        source: usize,
        bytes: usize,
    ) -> (usize, Result<(), Errno>) {
        if self.are_refused && fill == FillMode::Move {
            return (0, Err(Errno::INVAL));
        }
        // SAFETY: the caller meets the requirements of `Userfault::place`.
        unsafe { self.userfault.place(fill, target, source, bytes) }
    }
}
