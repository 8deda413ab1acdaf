//! Bringing a window's pages from staging to their place, whatever the kernel says on the way.

use rustix::io::Errno;

use crate::counters::{Counters, count};
use crate::sys::page_bytes;
use crate::sys::userfault::{How, Userfault};

/// How often a page that the kernel holds for a moment is tried again before it is copied.
const BUSY_MAX: usize = 200;
/// The same for pages behind one that was: whatever holds that may hold all of a window, and 200 times 512 pages are seconds.
const BUSY_MAX_AFTER: usize = 5;
/// For how long it is left alone in between.
const BUSY_PAUSE: std::time::Duration = std::time::Duration::from_micros(20);

/// What brings pages to their place. The kernel does; in tests, something that says what a kernel rarely says.
pub(crate) trait Places {
    /// As `Userfault::place`.
    ///
    /// # Safety
    ///
    /// As there.
    unsafe fn place(
        &self,
        how: How,
        target: usize,
        source: usize,
        bytes: usize,
    ) -> (usize, Result<(), Errno>);
}

impl Places for Userfault {
    unsafe fn place(
        &self,
        how: How,
        target: usize,
        source: usize,
        bytes: usize,
    ) -> (usize, Result<(), Errno>) {
        // SAFETY: passed on.
        unsafe { Userfault::place(self, how, target, source, bytes) }
    }
}

/// Brings `bytes` of pages from `source` to `target`, where they are missing. Pages that are there already stay: they were brought
/// by a thread that did not live to say so. Says whether `source` has no pages any more.
///
/// # Safety
///
/// `source` is private memory with all pages there, which nobody else uses.
pub(crate) unsafe fn place(
    places: &impl Places,
    target: usize,
    source: usize,
    bytes: usize,
    counters: &Counters,
) -> Result<bool, Errno> {
    let page_bytes = page_bytes();
    let (mut done, mut busy, mut are_gone) = (0, 0, true);
    let mut busy_max = BUSY_MAX;
    while done < bytes {
        // SAFETY: passed on from the caller; what was moved is not touched again.
        let (moved, result) =
            unsafe { places.place(How::Move, target + done, source + done, bytes - done) };
        done += moved;
        if moved > 0 {
            (busy, busy_max) = (0, BUSY_MAX);
        }
        match result {
            Ok(()) if moved == 0 => return Err(Errno::IO),
            Ok(()) => {}
            Err(Errno::AGAIN) => {
                // The process's memory is being rearranged, or some was moved and the rest is next.
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
            // A page that stays busy, or that is shared with a child that was forked: a copy does as well.
            Err(Errno::BUSY | Errno::INVAL | Errno::NOENT) => {
                // SAFETY: passed on from the caller.
                unsafe { copy_page(places, target + done, source + done, page_bytes) }?;
                count(&counters.copied_instead);
                (done, busy, are_gone) = (done + page_bytes, 0, false);
                busy_max = BUSY_MAX_AFTER;
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(are_gone)
}

/// # Safety
///
/// As `Places::place`.
unsafe fn copy_page(
    places: &impl Places,
    target: usize,
    source: usize,
    bytes: usize,
) -> Result<(), Errno> {
    for _ in 0..BUSY_MAX {
        // SAFETY: the caller's promise.
        match unsafe { places.place(How::Copy, target, source, bytes) }.1 {
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

    /// Says what it was told to, and then moves everything.
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

    impl Places for Script {
        unsafe fn place(
            &self,
            how: How,
            target: usize,
            _source: usize,
            bytes: usize,
        ) -> (usize, Result<(), Errno>) {
            if how == How::Copy {
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
        // SAFETY: the script touches no memory.
        let result = unsafe { place(script, 0x10_0000, 0x20_0000, BYTES, &counters) };
        (result, counters)
    }

    fn of(counter: &std::sync::atomic::AtomicU64) -> u64 {
        counter.load(std::sync::atomic::Ordering::Relaxed)
    }

    #[test]
    fn what_was_moved_before_the_kernel_asked_for_another_try_is_not_moved_again() {
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
    fn a_page_that_is_busy_for_a_moment_is_moved_after_it() {
        let (result, counters) = placed(&Script::new([(0, Errno::BUSY), (4096, Errno::BUSY)]));
        assert_eq!(result, Ok(true));
        assert_eq!((of(&counters.moved_again), of(&counters.copied_instead)), (2, 0));
    }

    #[test]
    fn a_page_that_stays_busy_is_copied_and_only_that_one() {
        let busy = std::iter::repeat_n((0, Errno::BUSY), BUSY_MAX + 1);
        let script = Script::new(busy);
        let (result, counters) = placed(&script);
        assert_eq!(result, Ok(false));
        assert_eq!(of(&counters.copied_instead), 1);
        assert_eq!(*script.copied.borrow(), [0x10_0000]);
        assert_eq!(*script.moved.borrow(), [(0x10_1000, BYTES - 4096)]);
    }

    #[test]
    fn a_window_that_stays_busy_is_copied_without_as_many_tries_for_each_page() {
        let script = Script::new(std::iter::repeat_n((0, Errno::BUSY), 100_000));
        let (result, counters) = placed(&script);
        assert_eq!(result, Ok(false));
        assert_eq!(of(&counters.copied_instead), 16);
        assert_eq!(of(&counters.moved_again), (BUSY_MAX + 15 * BUSY_MAX_AFTER) as u64);
    }

    #[test]
    fn pages_that_are_there_already_stay() {
        let script = Script::new([(0, Errno::EXIST), (0, Errno::EXIST)]);
        assert_eq!(placed(&script).0, Ok(false));
        assert_eq!(*script.moved.borrow(), [(0x10_2000, BYTES - 2 * 4096)]);
    }

    #[test]
    fn what_no_retry_cures_is_an_error() {
        assert_eq!(placed(&Script::new([(0, Errno::NOMEM)])).0, Err(Errno::NOMEM));
        let for_ever = std::iter::repeat_n((0, Errno::AGAIN), 10_000);
        assert_eq!(placed(&Script::new(for_ever)).0, Err(Errno::AGAIN));
    }
}
