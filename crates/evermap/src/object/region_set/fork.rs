//! Forks: memory gained since the last commit becomes private, in the parent and in the child.
//!
//! The locks taken by [`RegionSet::hold_for_fork`] are held across the fork, so the regions do not
//! change between the preparation in the parent and the work in the child.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use super::{MappedRegion, RegionSet};
use crate::address::{PageScanner, Sharing};
use crate::at_fork;
use crate::error::Result;
use crate::storage::File;

/// A locked region set, which does not change.
pub(in crate::object) struct LockedForFork<'a> {
    pub(in crate::object) file: MutexGuard<'a, Arc<dyn File>>,
    pub(in crate::object) held: MutexGuard<'a, Vec<MappedRegion>>,
}

impl RegionSet {
    /// Locks the file and the regions for the duration of a fork; `None` if the locks are not
    /// available soon.
    pub(in crate::object) fn hold_for_fork(&self) -> Option<LockedForFork<'_>> {
        let held = at_fork::lock_for_fork(&self.state)?;
        let file = at_fork::lock_for_fork(&self.file)?;
        Some(LockedForFork { file, held })
    }

    /// Makes memory gained since the last commit private and keeps its contents. The first fork
    /// after a growth copies the pages that were stored to; later ones find them private.
    pub(in crate::object) fn make_private(
        &self,
        file: &dyn File,
        held: &mut [MappedRegion],
    ) -> Result<()> {
        for h in held {
            for (from, to) in h.shared() {
                self.make_part_private(file, h, from, to)?;
            }
            h.private = h.record.length;
        }
        Ok(())
    }

    fn make_part_private(
        &self,
        file: &dyn File,
        h: &MappedRegion,
        from: u64,
        to: u64,
    ) -> Result<()> {
        let MappedRegion { record, mapping, .. } = h;
        let (at, end) = (record.file_offset + from, record.file_offset + to);
        // The switch is atomic for other threads. Earlier stores are in the file's pages, which the
        // mapping shows; later stores go to private pages.
        mapping.map(file, record.base + from, end - at, at, Sharing::PrivateWritable)?;
        let mut next = at;
        while let Some((start, stop)) = file.next_data(next)?.filter(|(start, _)| *start < end) {
            let (start, stop) = (start.max(at), stop.min(end));
            mapping.make_own(record.base + (start - record.file_offset), stop - start)?;
            next = stop;
        }
        if self.closed.load(Ordering::Relaxed) {
            mapping.protect_read_only(record.base + from, end - at)?;
        }
        Ok(())
    }

    /// Makes memory gained since the last commit the child's own. Pages that were not stored to
    /// before the fork become zeros, because the file's pages in their place belong to the parent.
    pub(in crate::object) fn make_gained_own(held: &[MappedRegion]) -> Result<()> {
        for h in held.iter().filter(|h| h.record.length > h.committed) {
            let (start, end) = (h.record.base + h.committed, h.record.base + h.record.length);
            let scanner = PageScanner::new(false);
            if !scanner.tells() {
                h.mapping.clear(start, end - start)?;
                continue;
            }
            let mut own = Vec::new();
            scanner.scan(start, end, &mut own);
            let mut at = start;
            for (first, behind) in own.into_iter().chain([(end, end)]) {
                if at < first {
                    h.mapping.map_zeros(at, first - at)?;
                }
                at = behind;
            }
        }
        Ok(())
    }

    /// Writes gained memory that a fork made private to the file, which the next commit flushes. No
    /// thread may store there during the call.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn write_private(&self) -> Result<()> {
        let file = self.file();
        let scanner = PageScanner::new(false);
        for h in self.lock().iter() {
            let mut own = Vec::new();
            // Deferred memory is written by `write_deferred`, which reserves space for it.
            for (from, to) in h.not_deferred(h.committed, h.private) {
                scanner.scan(h.record.base + from, h.record.base + to, &mut own);
            }
            for (first, behind) in own {
                let offset = h.record.file_offset + (first - h.record.base);
                // SAFETY: the range is mapped, and the caller has stopped every thread that stores
                // there.
                let pages = unsafe {
                    std::slice::from_raw_parts(first as *const u8, (behind - first) as usize)
                };
                file.write_at(pages, offset)?;
            }
        }
        Ok(())
    }
}
