//! Parts of an object file that may have no disk space: a commit reserves it before it logs a change there.
//!
//! A log can be applied only if the file has room for it. Most of an object file is reserved when the object grows. A
//! large block is not: its space is reserved in steps, when a commit has pages of it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::Result;
use crate::format::PAGE_BYTES;
use crate::storage::File;

/// Space is reserved in steps of so many bytes of the file.
pub(crate) const STEP_BYTES: u64 = 2 << 20;

/// The parts without disk space, for as long as one session has the object open.
#[derive(Debug, Default)]
pub(crate) struct Unreserved {
    /// Start and end of each part in the file, in bytes; they neither overlap nor touch pages of each other.
    parts: Mutex<BTreeMap<u64, u64>>,
    /// There are parts. For a look without the lock.
    any: AtomicBool,
}

impl Unreserved {
    /// A part of the file, in whole pages, may have no space from now on.
    pub(crate) fn add(&self, start: u64, end: u64) {
        let mut parts = self.lock();
        cut(&mut parts, start, end);
        if start < end {
            parts.insert(start, end);
        }
        self.any.store(!parts.is_empty(), Ordering::Release);
    }

    /// Nothing from `length` on is part of the file.
    pub(crate) fn shorten(&self, length: u64) {
        let mut parts = self.lock();
        cut(&mut parts, length, u64::MAX);
        self.any.store(!parts.is_empty(), Ordering::Release);
    }

    /// Reserves space for pages of the file, in whole steps; their numbers ascend. Says whether any was missing.
    ///
    /// # Errors
    /// `DiskFull` and the like. What was reserved stays reserved.
    pub(crate) fn reserve(
        &self,
        file: &dyn File,
        pages: impl IntoIterator<Item = u64>,
    ) -> Result<bool> {
        if !self.any.load(Ordering::Acquire) {
            return Ok(false);
        }
        let mut parts = self.lock();
        let mut reserved = false;
        // The range to reserve next: neighbouring steps take one call.
        let mut pending = (0, 0);
        for page in pages {
            let at = page * PAGE_BYTES;
            if at < pending.1 && at >= pending.0 {
                continue;
            }
            let Some((start, end)) = part_of(&parts, at) else { continue };
            let step = at / STEP_BYTES * STEP_BYTES;
            let (start, end) = (step.max(start), (step + STEP_BYTES).min(end));
            if start != pending.1 {
                reserved |= reserve_part(&mut parts, file, pending)?;
                pending.0 = start;
            }
            pending.1 = end;
        }
        reserved |= reserve_part(&mut parts, file, pending)?;
        self.any.store(!parts.is_empty(), Ordering::Release);
        Ok(reserved)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn reserve_part(
    parts: &mut BTreeMap<u64, u64>,
    file: &dyn File,
    (start, end): (u64, u64),
) -> Result<bool> {
    if start == end {
        return Ok(false);
    }
    if let Err(error) = file.allocate(start, end - start) {
        give_back(file, start, end);
        return Err(error);
    }
    cut(parts, start, end);
    Ok(true)
}

/// Gives back what a reservation got before the disk was full. Steps with data keep theirs.
fn give_back(file: &dyn File, start: u64, end: u64) {
    let mut at = start;
    while at < end {
        let step_end = (at / STEP_BYTES * STEP_BYTES + STEP_BYTES).min(end);
        if let Ok(data) = file.next_data(at)
            && data.is_none_or(|(first, _)| first >= step_end)
        {
            // What cannot be given back stays reserved.
            let _ = file.punch_hole(at, step_end - at);
        }
        at = step_end;
    }
}

/// The part that a byte of the file is in.
fn part_of(parts: &BTreeMap<u64, u64>, at: u64) -> Option<(u64, u64)> {
    let (start, end) = parts.range(..=at).next_back()?;
    (at < *end).then_some((*start, *end))
}

/// Takes a range out of all parts.
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
    fn pages_reserve_the_steps_that_they_are_in() {
        let unreserved = Unreserved::default();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("object");
        let file = Disk.open(&path, OpenMode::CreateNew).unwrap();
        unreserved.add(4096, 5 * STEP_BYTES);
        let page = |offset: u64| offset / PAGE_BYTES;
        assert!(!unreserved.reserve(&*file, [0]).unwrap());
        let pages = [1, 2, page(STEP_BYTES), page(STEP_BYTES) + 1, page(4 * STEP_BYTES)];
        assert!(unreserved.reserve(&*file, pages).unwrap());
        assert_eq!(parts_of(&unreserved), [(2 * STEP_BYTES, 4 * STEP_BYTES)]);
        assert!(!unreserved.reserve(&*file, pages).unwrap());
        assert_eq!(file.length().unwrap(), 5 * STEP_BYTES);
    }
}
