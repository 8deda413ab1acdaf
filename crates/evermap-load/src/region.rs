//! Memory of an image: one anonymous or file mapping, unmapped on drop.
//!
//! A region owns addresses only. The layers above decide who reads the bytes, and when. Invariant:
//! the memory between `address()` and `address() + bytes()` belongs to this region alone for its
//! whole life.

use std::ffi::c_void;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::huge::HugePages;
use crate::sys::advice::{SafeAdvice, advise};
use crate::sys::{HUGE_PAGE_BYTES, page_bytes};

/// Contents of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backing {
    /// Private anonymous memory, initially zero.
    Private,
    /// Private file mapping; written pages are copied.
    FilePrivate,
    /// Read-only file mapping.
    FileReadOnly,
    /// Shared writable file mapping, for an unnamed clone.
    FileShared,
}

/// Owned range of addresses. See the module.
#[derive(Debug)]
pub(crate) struct Region {
    base: *mut u8,
    bytes: usize,
    backing: Backing,
    /// True if another owner unmaps it.
    is_released: AtomicBool,
}

// SAFETY: the address range belongs to no thread.
unsafe impl Send for Region {}
// SAFETY: shared methods leave the mapping's contents unchanged, or are `unsafe` and require
// exclusive use from the caller.
unsafe impl Sync for Region {}

impl Region {
    fn new(base: *mut u8, bytes: usize, backing: Backing) -> Region {
        Region { base, bytes, backing, is_released: AtomicBool::new(false) }
    }

    /// Returns a region of no bytes.
    pub(crate) fn empty() -> Region {
        Region::new(ptr::dangling_mut::<u64>().cast(), 0, Backing::Private)
    }

    /// Maps private zeroed memory in whole pages. Costs nothing before first use.
    pub(crate) fn private(bytes: usize) -> Result<Region, Errno> {
        if bytes == 0 {
            return Ok(Region::empty());
        }
        let bytes = bytes.checked_next_multiple_of(page_bytes()).ok_or(Errno::NOMEM)?;
        let base = map_private(bytes)?;
        Ok(Region::new(base, bytes, Backing::Private))
    }

    /// Maps private zeroed memory, aligned to huge pages and a multiple of their size. Advises huge
    /// pages as far as they are cheap.
    pub(crate) fn huge(bytes: usize) -> Result<Region, Errno> {
        let region = Region::aligned(bytes)?;
        HugePages::query(region.bytes).advise(region.base as usize, region.bytes);
        Ok(region)
    }

    /// Gives the whole region the same advice after it is filled, so it is one kernel mapping.
    /// `mremap` moves one mapping, and ranges of different advice are several. Causes no fault.
    pub(crate) fn merge_advice(&self) {
        // Best effort.
        let _ = self.advise(0, self.bytes, SafeAdvice::HugePages);
    }

    /// Maps private zeroed memory, aligned to huge pages and a multiple of their size.
    pub(crate) fn aligned(bytes: usize) -> Result<Region, Errno> {
        if bytes == 0 {
            return Ok(Region::empty());
        }
        let bytes = bytes.checked_next_multiple_of(HUGE_PAGE_BYTES).ok_or(Errno::NOMEM)?;
        let mapped_bytes = bytes.checked_add(HUGE_PAGE_BYTES).ok_or(Errno::NOMEM)?;
        let mapped = map_private(mapped_bytes)?;
        let before = mapped.align_offset(HUGE_PAGE_BYTES).min(HUGE_PAGE_BYTES);
        let after = mapped_bytes - before - bytes;
        // SAFETY: `before + bytes + after` is the whole mapping, and no reference to it exists yet.
        let base = unsafe {
            let base = mapped.add(before);
            if before > 0 {
                let _ = munmap(mapped.cast(), before);
            }
            if after > 0 {
                let _ = munmap(base.add(bytes).cast(), after);
            }
            base
        };
        Ok(Region::new(base, bytes, Backing::Private))
    }

    /// Maps a file from `offset`, a multiple of the page size.
    pub(crate) fn of_file(
        file: BorrowedFd<'_>,
        offset: u64,
        bytes: usize,
        backing: Backing,
    ) -> Result<Region, Errno> {
        if bytes == 0 {
            return Ok(Region::empty());
        }
        let bytes = bytes.checked_next_multiple_of(page_bytes()).ok_or(Errno::NOMEM)?;
        if bytes < HUGE_PAGE_BYTES {
            let (protection, flags) = protection(backing);
            // SAFETY: the kernel picks the address, so no existing mapping is replaced.
            let base = unsafe { mmap(ptr::null_mut(), bytes, protection, flags, file, offset) }?;
            return Ok(Region::new(base.cast(), bytes, backing));
        }
        // Align windows to huge pages, because they may be taken over.
        let mut region = Region::aligned(bytes)?;
        // SAFETY: no reference to the region exists yet; the range after its last page is unmapped.
        unsafe {
            region.replace_by_file(0, bytes, file, offset, backing)?;
            if region.bytes > bytes {
                let _ = munmap(region.base.add(bytes).cast(), region.bytes - bytes);
            }
        }
        (region.bytes, region.backing) = (bytes, backing);
        Ok(region)
    }

    /// Returns the start address.
    pub(crate) fn address(&self) -> *mut u8 {
        self.base
    }

    /// Returns the length in bytes, a multiple of the page size.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the kind of mapping.
    pub(crate) fn backing(&self) -> Backing {
        self.backing
    }

    /// Gives advice that changes no contents, for the whole pages around a range.
    pub(crate) fn advise(&self, from: usize, to: usize, advice: SafeAdvice) -> Result<(), Errno> {
        assert!(from <= to && to <= self.bytes, "the range is outside the region");
        let from = from - from % page_bytes();
        let to = to.next_multiple_of(page_bytes()).min(self.bytes);
        advise(self.base as usize + from, to - from, advice)
    }

    /// Maps `file` from `offset` over a range of whole pages.
    ///
    /// # Safety
    ///
    /// The range is not in use, and no thread waits for a page of it.
    pub(crate) unsafe fn replace_by_file(
        &self,
        from: usize,
        to: usize,
        file: BorrowedFd<'_>,
        offset: u64,
        backing: Backing,
    ) -> Result<(), Errno> {
        assert!(from < to && to <= self.bytes, "the range is outside the region");
        assert!((from | to).is_multiple_of(page_bytes()), "the range is not in whole pages");
        let (protection, flags) = protection(backing);
        // SAFETY: the range belongs to this region, and the caller guarantees that it is not in
        // use.
        unsafe {
            let at: *mut c_void = self.base.add(from).cast();
            mmap(at, to - from, protection, flags | MapFlags::FIXED, file, offset)?;
        }
        Ok(())
    }

    /// Moves the pages of `other` over a range, and consumes `other`.
    ///
    /// # Safety
    ///
    /// The range is not in use, or its users may see the contents of `other` from now on.
    pub(crate) unsafe fn replace_by_region(&self, from: usize, other: Region) -> Result<(), Errno> {
        assert!(from + other.bytes <= self.bytes, "the range is outside the region");
        // SAFETY: both ranges belong to these regions, and the move consumes `other` as a whole.
        unsafe {
            rustix::mm::mremap_fixed(
                other.base.cast(),
                other.bytes,
                other.bytes,
                MremapFlags::MAYMOVE,
                self.base.add(from).cast(),
            )?;
        }
        std::mem::forget(other);
        Ok(())
    }

    /// Replaces a read-only file mapping by a private writable one, at the same addresses.
    pub(crate) fn make_writable(&mut self, file: BorrowedFd<'_>, offset: u64) -> Result<(), Errno> {
        if self.backing != Backing::FileReadOnly || self.bytes == 0 {
            return Ok(());
        }
        // SAFETY: `&mut` excludes other users, and the same bytes are mapped afterwards.
        unsafe { self.replace_by_file(0, self.bytes, file, offset, Backing::FilePrivate) }?;
        self.backing = Backing::FilePrivate;
        Ok(())
    }

    /// Leaves the mapping to the process for good, because the kernel may still write to it.
    pub(crate) fn leak(&mut self) {
        *self = Region::empty();
    }

    /// Transfers ownership of the mapping to the caller. Returns false if it was already released,
    /// or the region is empty.
    pub(crate) fn release_ownership(&self) -> bool {
        !self.is_released.swap(true, Ordering::AcqRel) && self.bytes > 0
    }

    /// Unmaps the region while others still hold it.
    ///
    /// # Safety
    ///
    /// No holder accesses the memory any more.
    pub(crate) unsafe fn unmap(&self) {
        if self.release_ownership() {
            // SAFETY: the mapping belongs to this region, and the caller guarantees that no address
            // of it is in use.
            let _ = unsafe { munmap(self.base.cast(), self.bytes) };
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: dropping excludes all other users of the region.
        unsafe { self.unmap() };
    }
}

fn map_private(bytes: usize) -> Result<*mut u8, Errno> {
    // SAFETY: the kernel picks the address, so no existing mapping is replaced.
    let base = unsafe {
        mmap_anonymous(
            ptr::null_mut(),
            bytes,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    }?;
    Ok(base.cast())
}

fn protection(backing: Backing) -> (ProtFlags, MapFlags) {
    let read_write = ProtFlags::READ | ProtFlags::WRITE;
    match backing {
        Backing::Private | Backing::FilePrivate => (read_write, MapFlags::PRIVATE),
        Backing::FileReadOnly => (ProtFlags::READ, MapFlags::SHARED),
        Backing::FileShared => (read_write, MapFlags::SHARED),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn huge_regions_are_aligned_whole_and_zero() {
        let region = Region::huge((2 << 20) + 1).unwrap();
        assert_eq!(region.bytes(), 4 << 20);
        assert_eq!(region.address() as usize % HUGE_PAGE_BYTES, 0);
        // SAFETY: the address is within the region, which has no other user.
        unsafe {
            assert_eq!(*region.address().add((4 << 20) - 1), 0);
        }
    }

    #[test]
    fn a_range_is_replaced_by_another_region() {
        let file = tempfile::tempfile().unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[7; 3 * 4096], 0).unwrap();
        let mut region = Region::of_file(file.as_fd(), 0, 3 * 4096, Backing::FileReadOnly).unwrap();
        let other = Region::private(4096).unwrap();
        // SAFETY: the addresses are within the regions, which have no other user.
        unsafe {
            other.address().write(9);
            region.replace_by_region(4096, other).unwrap();
            assert_eq!((*region.address(), *region.address().add(4096)), (7, 9));
        }
        region.make_writable(file.as_fd(), 0).unwrap();
        // SAFETY: the addresses are within the region, which has no other user.
        unsafe {
            region.address().write(1);
            assert_eq!(*region.address().add(8192), 7);
        }
        let mut byte = [0];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut byte, 0).unwrap();
        assert_eq!(byte, [7], "a private write does not reach the file");
    }
}
