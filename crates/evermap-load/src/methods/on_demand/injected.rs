//! Faults that a kernel and a disk rarely have, put where a test wants them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::io::Errno;

use super::place::Places;
use crate::error::Error;
use crate::methods::Job;
use crate::sys::thread::vanish;
use crate::sys::userfault::{How, Userfault};

/// Nowhere.
pub(super) const NONE: usize = usize::MAX;

/// What goes wrong, and where.
#[derive(Debug)]
pub(crate) struct Injected {
    /// The loader thread is gone before it reads this window; once.
    pub(super) vanish_before_reading: AtomicUsize,
    /// It is gone when this window is in its place, and before it says so; once.
    pub(super) vanish_before_publishing: AtomicUsize,
    /// Each loader thread is gone before it reads anything.
    pub(super) vanish_always: AtomicBool,
    /// So many deputies are gone at once.
    pub(super) vanish_deputies: AtomicUsize,
    /// The kernel moves no page of this window.
    pub(super) unmovable: AtomicUsize,
    /// Each read begins so much later.
    pub(super) pause_ms: AtomicUsize,
    /// This window cannot be read.
    pub(super) unreadable: AtomicUsize,
    /// It can't past the cache.
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

/// The kernel, or one that refuses to move pages and does everything else.
pub(crate) struct Moves<'u> {
    userfault: &'u Userfault,
    are_refused: bool,
}

impl Places for Moves<'_> {
    unsafe fn place(
        &self,
        how: How,
        target: usize,
        source: usize,
        bytes: usize,
    ) -> (usize, Result<(), Errno>) {
        if self.are_refused && how == How::Move {
            return (0, Err(Errno::INVAL));
        }
        // SAFETY: passed on.
        unsafe { self.userfault.place(how, target, source, bytes) }
    }
}
