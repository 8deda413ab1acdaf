//! Large growth takes no disk space until it is stored to.
//!
//! A block of more than [`Deferral::from_bytes`] extends the file by a hole, and its memory is
//! anonymous. A commit finds the pages that were stored to, reserves the steps of the file that
//! contain them, and writes them there. So 20 GiB of addresses take neither 20 GiB of disk nor a
//! long flush. A full disk is an error of the commit: a store cannot fail.
//!
//! The kernel cannot write such memory out when the machine runs short of memory. So a block larger
//! than half of the available memory is reserved at once and mapped from the file, like small
//! growth. So is every block on tmpfs, in a write-protected object, and on a kernel that cannot
//! tell which pages were stored to.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{MappedRegion, RegionSet};
use crate::address::PageScanner;
use crate::commit::{Deferral, Unreserved};
use crate::error::Result;
use crate::format::PAGE_BYTES;
use crate::storage::File;

/// A deferred block takes at most one part in this many of the available memory.
const MEMORY_PARTS: u64 = 2;
static ZEROS: [u8; PAGE_BYTES as usize] = [0; PAGE_BYTES as usize];

impl RegionSet {
    /// Defers large growth from now on. Each commit must call
    /// [`write_gained`](RegionSet::write_gained).
    pub(crate) fn defer_large_growth(&mut self, deferral: Deferral) {
        self.deferred_from = Some(deferral.from_bytes);
        self.unreserved = Arc::new(Unreserved::in_steps(deferral.step_bytes));
    }

    /// Returns true if growth by `gained` bytes is to take no disk space until it is stored to.
    pub(super) fn is_to_be_deferred(&self, file: &dyn File, gained: u64) -> bool {
        self.deferred_from.is_some_and(|from| gained > from)
            && !self.for_room.load(Relaxed)
            && !self.closed.load(Relaxed)
            && self.key.get().is_none()
            && PageScanner::new(false).tells()
            && !file.fills_holes_when_read()
            && evermap_observe::available_bytes().is_some_and(|had| gained <= had / MEMORY_PARTS)
    }

    /// Extends a region by a hole in the file.
    pub(super) fn defer(&self, file: &dyn File, h: &mut MappedRegion, gained: u64) -> Result<()> {
        let from = h.record.file_offset + h.record.length;
        if file.length()? < from + gained {
            file.set_length(from + gained)?;
        }
        h.mapping.map_zeros(h.record.base + h.record.length, gained)?;
        // Like all of a session's memory. A fork opens it to its child.
        h.mapping.leave_out_of_children(h.record.base + h.record.length, gained);
        h.deferred.push((h.record.length, h.record.length + gained));
        self.unreserved.add(from, from + gained);
        Ok(())
    }

    /// Writes the pages of deferred memory that were stored to into the file, which the next commit
    /// flushes. Reserves disk space for them first. No thread may store there during the call.
    ///
    /// # Errors
    /// `DiskFull` and other I/O errors. Nothing is lost, and the call can be repeated.
    pub(super) fn write_deferred(&self) -> Result<()> {
        let held = self.lock();
        let file = self.file();
        let pages: Vec<(u64, u64)> = held.iter().flat_map(stored_pages).collect();
        self.unreserved.reserve(&*file, pages.iter().map(|(page, _)| *page))?;
        let follows = |a: &(u64, u64), b: &(u64, u64)| a.0 + 1 == b.0 && a.1 + PAGE_BYTES == b.1;
        for run in pages.chunk_by(follows) {
            let (page, address) = run[0];
            let bytes = run.len() * PAGE_BYTES as usize;
            // SAFETY: the pages are mapped and hold stored bytes, and no thread stores there during
            // a commit.
            let bytes = unsafe { std::slice::from_raw_parts(address as *const u8, bytes) };
            file.write_at(bytes, page * PAGE_BYTES)?;
        }
        Ok(())
    }

    /// Address ranges of the deferred pages that were stored to.
    pub(crate) fn stored_deferred(&self) -> Vec<(u64, u64)> {
        let pages = self.lock().iter().flat_map(stored_pages).collect::<Vec<_>>();
        let ranges = pages.chunk_by(|a, b| a.1 + PAGE_BYTES == b.1);
        ranges.map(|run| (run[0].1, run.len() as u64 * PAGE_BYTES)).collect()
    }
}

/// Pages of deferred memory that hold anything but zeros: number in the file and address,
/// ascending.
fn stored_pages(h: &MappedRegion) -> Vec<(u64, u64)> {
    let (mut own, mut pages) = (Vec::new(), Vec::new());
    let scanner = PageScanner::new(false);
    for (start, end) in &h.deferred {
        scanner.scan(h.record.base + start, h.record.base + end, &mut own);
    }
    for address in
        own.into_iter().flat_map(|(first, end)| (first..end).step_by(PAGE_BYTES as usize))
    {
        // SAFETY: the page is mapped. A store during the comparison belongs to the next commit.
        let page = unsafe { std::slice::from_raw_parts(address as *const u8, PAGE_BYTES as usize) };
        if page != ZEROS {
            pages.push(((h.record.file_offset + (address - h.record.base)) / PAGE_BYTES, address));
        }
    }
    pages
}
