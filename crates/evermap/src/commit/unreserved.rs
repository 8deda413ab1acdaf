//! Parts of an object file that may have no disk space: a commit reserves it before it logs a
//! change there.
//!
//! A log can be applied only if the file has room for it. Most of an object file is reserved when
//! the object grows. Large blocks are not: their space is reserved in steps, when a commit has
//! pages of them.
//!
//! A reservation must be durable before the record is; a flush of the file ensures that. Existing
//! space may have been reserved by a dead session without a flush, so each session flushes the file
//! once for it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::settings::Deferral;
use crate::error::Result;
use crate::format::PAGE_BYTES;
use crate::mutate::{Mutant, mutated};
use crate::storage::File;

/// The parts without disk space, tracked for one session.
#[derive(Debug)]
pub(crate) struct Unreserved {
    step_bytes: u64,
    /// Start and end of each part in the file, in bytes; parts do not overlap and share no page.
    parts: Mutex<BTreeMap<u64, u64>>,
    /// True if there are parts; readable without the lock.
    any: AtomicBool,
    /// True if reserved space may be lost in a power failure.
    unflushed: AtomicBool,
    /// True if the file was flushed since it was opened.
    flushed_once: AtomicBool,
}

impl Default for Unreserved {
    fn default() -> Unreserved {
        Unreserved::in_steps(Deferral::DEFAULT.step_bytes)
    }
}

impl Unreserved {
    /// Creates an empty set. Space is reserved in steps of this many bytes of the file.
    pub(crate) fn in_steps(step_bytes: u64) -> Unreserved {
        Unreserved {
            step_bytes,
            parts: Mutex::default(),
            any: AtomicBool::new(false),
            unflushed: AtomicBool::new(false),
            flushed_once: AtomicBool::new(false),
        }
    }

    /// Adds a part of the file, in whole pages, that may have no space from now on.
    pub(crate) fn add(&self, start: u64, end: u64) {
        let mut parts = self.lock();
        cut(&mut parts, start, end);
        if start < end {
            parts.insert(start, end);
        }
        self.any.store(!parts.is_empty(), Ordering::Release);
    }

    /// Removes everything from `length` on.
    pub(crate) fn shorten(&self, length: u64) {
        let mut parts = self.lock();
        cut(&mut parts, length, u64::MAX);
        self.any.store(!parts.is_empty(), Ordering::Release);
    }

    /// Returns true if the file must be flushed before a record relies on the reserved space.
    pub(crate) fn needs_flush(&self) -> bool {
        if mutated(Mutant::ReservedNotFlushed) {
            return false;
        }
        self.unflushed.load(Ordering::Acquire)
    }

    /// Notes that the file was flushed after all reservations so far.
    pub(crate) fn flushed(&self) {
        self.unflushed.store(false, Ordering::Release);
        self.flushed_once.store(true, Ordering::Release);
    }

    /// Notes that another file replaced this one. The caller adds its parts again.
    pub(crate) fn file_replaced(&self) {
        self.flushed_once.store(false, Ordering::Release);
    }

    /// Reserves space for pages of the file, in whole steps. Pages in any order are reserved;
    /// ascending ones take the fewest calls. Afterwards [`needs_flush`](Unreserved::needs_flush)
    /// says if a flush must precede the record.
    ///
    /// # Errors
    /// `DiskFull` and other I/O errors. Space that was reserved stays reserved.
    pub(crate) fn reserve(
        &self,
        file: &dyn File,
        pages: impl IntoIterator<Item = u64>,
    ) -> Result<()> {
        if !self.any.load(Ordering::Acquire) || mutated(Mutant::ChangesNotReserved) {
            return Ok(());
        }
        let mut parts = self.lock();
        // The range to reserve next: adjacent steps take one call.
        let mut pending = (0, 0);
        for page in pages {
            let at = page * PAGE_BYTES;
            if at < pending.1 && at >= pending.0 {
                continue;
            }
            let Some((start, end)) = part_of(&parts, at) else { continue };
            let step = at / self.step_bytes * self.step_bytes;
            let (start, end) = (step.max(start), (step + self.step_bytes).min(end));
            if start != pending.1 {
                self.reserve_part(&mut parts, file, pending)?;
                pending.0 = start;
            }
            pending.1 = end;
        }
        self.reserve_part(&mut parts, file, pending)?;
        self.any.store(!parts.is_empty(), Ordering::Release);
        Ok(())
    }

    fn reserve_part(
        &self,
        parts: &mut BTreeMap<u64, u64>,
        file: &dyn File,
        (start, end): (u64, u64),
    ) -> Result<()> {
        if start == end {
            return Ok(());
        }
        let before = file.disk_bytes()?;
        if let Err(error) = file.allocate(start, end - start) {
            self.give_back(file, start, end);
            return Err(error);
        }
        // Only this session changes the file's blocks, so an equal number of blocks means the same
        // blocks.
        let known =
            self.flushed_once.load(Ordering::Acquire) || mutated(Mutant::DeadReservationTrusted);
        let was_there = file.disk_bytes()? == before && known;
        if !was_there {
            self.unflushed.store(true, Ordering::Release);
        }
        cut(parts, start, end);
        Ok(())
    }

    /// Gives back the space of a reservation that failed halfway. Steps with data keep theirs.
    fn give_back(&self, file: &dyn File, start: u64, end: u64) {
        let mut at = start;
        while at < end {
            let step_end = (at / self.step_bytes * self.step_bytes + self.step_bytes).min(end);
            if let Ok(data) = file.next_data(at)
                && data.is_none_or(|(first, _)| first >= step_end)
            {
                // Space that cannot be given back stays reserved.
                let _ = file.punch_hole(at, step_end - at);
            }
            at = step_end;
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the part that contains a byte of the file.
fn part_of(parts: &BTreeMap<u64, u64>, at: u64) -> Option<(u64, u64)> {
    let (start, end) = parts.range(..=at).next_back()?;
    (at < *end).then_some((*start, *end))
}

/// Removes a range from all parts.
fn cut(parts: &mut BTreeMap<u64, u64>, start: u64, end: u64) {
    let before = part_of(parts, start);
    if let Some((from, to)) = before {
        parts.remove(&from);
        if from < start {
            parts.insert(from, start);
        }
        if end < to {
            parts.insert(end, to);
        }
    }
    while let Some((from, to)) = parts.range(start..end).next().map(|(from, to)| (*from, *to)) {
        parts.remove(&from);
        if end < to {
            parts.insert(end, to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{Disk, OpenMode, Storage};

    const STEP_BYTES: u64 = Deferral::DEFAULT.step_bytes;

    fn parts_of(unreserved: &Unreserved) -> Vec<(u64, u64)> {
        unreserved.lock().iter().map(|(start, end)| (*start, *end)).collect()
    }

    #[test]
    fn parts_are_added_and_cut_without_overlap() {
        let unreserved = Unreserved::default();
        unreserved.add(0, 4096);
        unreserved.add(8192, 40960);
        unreserved.add(12288, 16384);
        assert_eq!(
            parts_of(&unreserved),
            [(0, 4096), (8192, 12288), (12288, 16384), (16384, 40960)]
        );
        unreserved.add(0, 20480);
        assert_eq!(parts_of(&unreserved), [(0, 20480), (20480, 40960)]);
        unreserved.shorten(24576);
        assert_eq!(parts_of(&unreserved), [(0, 20480), (20480, 24576)]);
        unreserved.shorten(0);
        assert!(!unreserved.any.load(Ordering::Relaxed));
    }

    #[test]
    fn pages_reserve_the_steps_that_contain_them() {
        let unreserved = Unreserved::default();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("object");
        let file = Disk::default().open(&path, OpenMode::CreateNew).unwrap();
        unreserved.add(4096, 5 * STEP_BYTES);
        unreserved.reserve(&*file, [0]).unwrap();
        assert_eq!(file.length().unwrap(), 0);
        let pages = [1, 2, page(STEP_BYTES), page(STEP_BYTES) + 1, page(4 * STEP_BYTES)];
        unreserved.reserve(&*file, pages).unwrap();
        assert_eq!(parts_of(&unreserved), [(2 * STEP_BYTES, 4 * STEP_BYTES)]);
        unreserved.reserve(&*file, pages).unwrap();
        assert_eq!(file.length().unwrap(), 5 * STEP_BYTES);
    }

    fn page(offset: u64) -> u64 {
        offset / PAGE_BYTES
    }

    #[test]
    fn a_file_is_flushed_once_for_existing_space_and_each_time_for_new_space() {
        let unreserved = Unreserved::default();
        let directory = tempfile::tempdir().unwrap();
        let file =
            Disk::default().open(&directory.path().join("object"), OpenMode::CreateNew).unwrap();
        let steps = 4 * STEP_BYTES;
        file.allocate(0, steps).unwrap();
        let commit = |pages: &[u64]| {
            unreserved.add(0, steps);
            unreserved.reserve(&*file, pages.iter().copied()).unwrap();
            let flush = unreserved.needs_flush();
            // The commit may fail here, so the flag must persist for the next one.
            assert_eq!(unreserved.needs_flush(), flush);
            if flush {
                unreserved.flushed();
            }
            flush
        };
        assert!(commit(&[0, 1]), "a dead session may have reserved it");
        assert!(!commit(&[0, 1]) && !commit(&[page(STEP_BYTES), page(3 * STEP_BYTES)]));
        assert!(file.punch_hole(STEP_BYTES, STEP_BYTES).unwrap());
        assert!(!commit(&[0]), "the hole is elsewhere");
        assert!(commit(&[0, page(STEP_BYTES)]) && !commit(&[0, page(STEP_BYTES)]));
        // Another step is reserved by a commit that fails; the next commit finds all space
        // reserved.
        assert!(file.punch_hole(2 * STEP_BYTES, STEP_BYTES).unwrap());
        unreserved.reserve(&*file, [page(2 * STEP_BYTES)]).unwrap();
        assert!(commit(&[0]) && !commit(&[0]));
        unreserved.file_replaced();
        assert!(commit(&[0]));
    }
}
