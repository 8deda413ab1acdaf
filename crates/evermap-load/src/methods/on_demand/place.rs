//! Moves a window's pages from staging into place, and handles the kernel's transient errors.

use rustix::io::Errno;

use crate::counters::{Counters, count};
use crate::sys::page_bytes;
use crate::sys::userfault::{FillMode, Userfault};

/// Number of retries for a page that the kernel holds before it is copied.
const BUSY_MAX: usize = 200;
/// Number of retries for pages after a copied one. All pages of a window may be held, and 200
/// retries for each of 512 pages take seconds.
const BUSY_MAX_AFTER: usize = 5;
/// Pause between retries.
const BUSY_PAUSE: std::time::Duration = std::time::Duration::from_micros(20);

/// Moves pages into place. Implemented by the kernel's userfaultfd, and in tests by a source of
/// rare errors.
pub(crate) trait Placer {
    /// Fills missing pages, see [`Userfault::place`].
    ///
    /// # Safety
    ///
    /// Same requirements as [`Userfault::place`].
    unsafe fn place(
        &self,
        fill: FillMode,
        target: usize,
        source: usize,
        bytes: usize,
    ) -> (usize, Result<(), Errno>);
}

impl Placer for Userfault {
    unsafe fn place(
        &self,
        fill: FillMode,
        target: usize,
        source: usize,
        bytes: usize,
    ) -> (usize, Result<(), Errno>) {
        // SAFETY: the caller meets the requirements of `Userfault::place`.
        unsafe { Userfault::place(self, fill, target, source, bytes) }
    }
}

/// Moves `bytes` of pages from `source` to `target`, where they are missing. Pages present at
/// `target` stay: a thread placed them and was killed before it could report it. Returns true if
/// `source` has no pages left.
///
/// # Safety
///
/// `source` is private memory with all pages present and no other user.
pub(crate) unsafe fn place(
    placer: &impl Placer,
    target: usize,
    source: usize,
    bytes: usize,
    counters: &Counters,
) -> Result<bool, Errno> {
    let page_bytes = page_bytes();
    let (mut done, mut busy, mut are_gone) = (0, 0, true);
    let mut busy_max = BUSY_MAX;
    while done < bytes {
        // SAFETY: `source` has all pages present and no other user, and moved pages are not
        // accessed again.
        let (moved, result) =
            unsafe { placer.place(FillMode::Move, target + done, source + done, bytes - done) };
        done += moved;
        if moved > 0 {
            (busy, busy_max) = (0, BUSY_MAX);
        }
        match result {
            Ok(()) if moved == 0 => return Err(Errno::IO),
            Ok(()) => {}
            Err(Errno::AGAIN) => {
                // The process's mappings are changing, or part was moved and the rest follows.
                count(&counters.moved_again);
                busy += usize::from(moved == 0);
                if busy > BUSY_MAX {
                    return Err(Errno::AGAIN);
                }
                if moved == 0 {
                    std::thread::sleep(BUSY_PAUSE);
                }
            }
            Err(Errno::EXIST) => (done, are_gone) = (done + page_bytes, false),
            Err(Errno::BUSY) if busy < busy_max => {
                busy += 1;
                count(&counters.moved_again);
                std::thread::sleep(BUSY_PAUSE);
            }
            // The page stays busy, or is shared with a forked child: copy it.
            Err(Errno::BUSY | Errno::INVAL | Errno::NOENT) => {
                // SAFETY: `source` has all pages present and no other user.
                unsafe { copy_page(placer, target + done, source + done, page_bytes) }?;
                count(&counters.copied_instead);
                (done, busy, are_gone) = (done + page_bytes, 0, false);
                busy_max = BUSY_MAX_AFTER;
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(are_gone)
}

/// Copies one page into place.
///
/// # Safety
///
/// Same requirements as [`Placer::place`].
unsafe fn copy_page(
    placer: &impl Placer,
    target: usize,
    source: usize,
    bytes: usize,
) -> Result<(), Errno> {
    for _ in 0..BUSY_MAX {
        // SAFETY: the caller owns a readable page at `source`.
        match unsafe { placer.place(FillMode::Copy, target, source, bytes) }.1 {
            Ok(()) | Err(Errno::EXIST) => return Ok(()),
            Err(Errno::AGAIN) => std::thread::sleep(BUSY_PAUSE),
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::AGAIN)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::cell::RefCell;
    use std::collections::VecDeque;

    /// Placer that returns scripted results, and then moves everything.
    struct Script {
        moves: RefCell<VecDeque<(usize, Errno)>>,
        copied: RefCell<Vec<usize>>,
        moved: RefCell<Vec<(usize, usize)>>,
    }

    impl Script {
        fn new(moves: impl IntoIterator<Item = (usize, Errno)>) -> Script {
            Script {
                moves: RefCell::new(moves.into_iter().collect()),
                copied: RefCell::default(),
                moved: RefCell::default(),
            }
        }
    }

    impl Placer for Script {
        unsafe fn place(
            &self,
            fill: FillMode,
            target: usize,
            _source: usize,
            bytes: usize,
        ) -> (usize, Result<(), Errno>) {
            if fill == FillMode::Copy {
                self.copied.borrow_mut().push(target);
                return (bytes, Ok(()));
            }
            let (moved, result) = match self.moves.borrow_mut().pop_front() {
                Some((moved, errno)) => (moved, Err(errno)),
                None => (bytes, Ok(())),
            };
            if moved > 0 {
                self.moved.borrow_mut().push((target, moved));
            }
            (moved, result)
        }
    }

    const BYTES: usize = 16 * 4096;

    fn placed(script: &Script) -> (Result<bool, Errno>, Counters) {
        let counters = Counters::new();
        // SAFETY: the script accesses no memory.
        let result = unsafe { place(script, 0x10_0000, 0x20_0000, BYTES, &counters) };
        (result, counters)
    }

    fn of(counter: &std::sync::atomic::AtomicU64) -> u64 {
        counter.load(std::sync::atomic::Ordering::Relaxed)
    }

    #[test]
    fn pages_moved_before_a_retry_are_not_moved_again() {
        let script = Script::new([(3 * 4096, Errno::AGAIN), (0, Errno::AGAIN)]);
        let (result, counters) = placed(&script);
        assert_eq!(result, Ok(true));
        assert_eq!(
            *script.moved.borrow(),
            [(0x10_0000, 3 * 4096), (0x10_0000 + 3 * 4096, BYTES - 3 * 4096)]
        );
        assert_eq!(of(&counters.moved_again), 2);
    }

    #[test]
    fn a_briefly_busy_page_is_moved_on_retry() {
        let (result, counters) = placed(&Script::new([(0, Errno::BUSY), (4096, Errno::BUSY)]));
        assert_eq!(result, Ok(true));
        assert_eq!((of(&counters.moved_again), of(&counters.copied_instead)), (2, 0));
    }

    #[test]
    fn only_a_page_that_stays_busy_is_copied() {
        let busy = std::iter::repeat_n((0, Errno::BUSY), BUSY_MAX + 1);
        let script = Script::new(busy);
        let (result, counters) = placed(&script);
        assert_eq!(result, Ok(false));
        assert_eq!(of(&counters.copied_instead), 1);
        assert_eq!(*script.copied.borrow(), [0x10_0000]);
        assert_eq!(*script.moved.borrow(), [(0x10_1000, BYTES - 4096)]);
    }

    #[test]
    fn later_pages_of_a_busy_window_are_retried_less() {
        let script = Script::new(std::iter::repeat_n((0, Errno::BUSY), 100_000));
        let (result, counters) = placed(&script);
        assert_eq!(result, Ok(false));
        assert_eq!(of(&counters.copied_instead), 16);
        assert_eq!(of(&counters.moved_again), (BUSY_MAX + 15 * BUSY_MAX_AFTER) as u64);
    }

    #[test]
    fn present_pages_stay() {
        let script = Script::new([(0, Errno::EXIST), (0, Errno::EXIST)]);
        assert_eq!(placed(&script).0, Ok(false));
        assert_eq!(*script.moved.borrow(), [(0x10_2000, BYTES - 2 * 4096)]);
    }

    #[test]
    fn permanent_failures_are_errors() {
        assert_eq!(placed(&Script::new([(0, Errno::NOMEM)])).0, Err(Errno::NOMEM));
        let for_ever = std::iter::repeat_n((0, Errno::AGAIN), 10_000);
        assert_eq!(placed(&Script::new(for_ever)).0, Err(Errno::AGAIN));
    }
}
