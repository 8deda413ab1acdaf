//! The memory of an image: one mapping, of nothing or of a file, unmapped when it is dropped.
//!
//! Owns addresses and nothing else: who may look at the bytes, and when, is decided above. The one invariant: between `address()` and
//! `address() + bytes()` is memory of this region alone, for as long as it lives.

use std::ffi::c_void;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::huge::HugePages;
use crate::sys::advice::{Harmless, advise};
use crate::sys::{HUGE_PAGE_BYTES, page_bytes};

/// What a region shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backing {
    /// Nothing: zeros at first, private.
    Private,
    /// A file; pages that are written are copied.
    FilePrivate,
    /// A file; for reading only.
    FileReadOnly,
    /// A file that is written as it is; a clone without a name.
    FileShared,
}

/// A range of addresses. See the module.
#[derive(Debug)]
pub(crate) struct Region {
    base: *mut u8,
    bytes: usize,
    backing: Backing,
    /// Somebody else unmaps it.
    is_given_away: AtomicBool,
}

// SAFETY: an address range that belongs to no thread.
unsafe impl Send for Region {}
// SAFETY: as above; its own functions change what is mapped only through `&mut`, or promise to change no contents.
unsafe impl Sync for Region {}

impl Region {
    fn new(base: *mut u8, bytes: usize, backing: Backing) -> Region {
        Region { base, bytes, backing, is_given_away: AtomicBool::new(false) }
    }

    /// Of no bytes.
    pub(crate) fn empty() -> Region {
        Region::new(ptr::dangling_mut::<u64>().cast(), 0, Backing::Private)
    }

    /// Private memory, zero, in whole pages. Costs nothing before it is used.
    pub(crate) fn private(bytes: usize) -> Result<Region, Errno> {
        if bytes == 0 {
            return Ok(Region::empty());
        }
        let bytes = bytes.checked_next_multiple_of(page_bytes()).ok_or(Errno::NOMEM)?;
        let base = map_private(bytes)?;
        Ok(Region::new(base, bytes, Backing::Private))
    }

    /// Private memory, zero, that begins at a multiple of a huge page and is as long as whole ones. As many of them as are cheap
    /// are asked for.
    pub(crate) fn huge(bytes: usize) -> Result<Region, Errno> {
        let region = Region::aligned(bytes)?;
        HugePages::look(region.bytes).advise(region.base as usize, region.bytes);
        Ok(region)
    }

    /// Gives all of it the same advice, once it is filled: `mremap` takes one mapping, and ranges of different advice are several.
    /// Costs no fault.
    pub(crate) fn unite(&self) {
        // Only advice.
        let _ = self.advise(0, self.bytes, Harmless::HugePages);
    }

    /// Private memory, zero, that begins at a multiple of a huge page and is as long as whole ones.
    pub(crate) fn aligned(bytes: usize) -> Result<Region, Errno> {
        if bytes == 0 {
            return Ok(Region::empty());
        }
        let bytes = bytes.checked_next_multiple_of(HUGE_PAGE_BYTES).ok_or(Errno::NOMEM)?;
        let mapped_bytes = bytes.checked_add(HUGE_PAGE_BYTES).ok_or(Errno::NOMEM)?;
        let mapped = map_private(mapped_bytes)?;
        let before = mapped.align_offset(HUGE_PAGE_BYTES).min(HUGE_PAGE_BYTES);
        let after = mapped_bytes - before - bytes;
        // SAFETY: `before + bytes + after` is all of this mapping, and nobody has seen any of it yet.
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

    /// A file's bytes from `offset`, a multiple of the page size.
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
            // SAFETY: the kernel picks the address, so nothing that is there is replaced.
            let base = unsafe { mmap(ptr::null_mut(), bytes, protection, flags, file, offset) }?;
            return Ok(Region::new(base.cast(), bytes, backing));
        }
        // Windows of it begin where huge pages can: they may be taken over.
        let mut region = Region::aligned(bytes)?;
        // SAFETY: nobody has seen the region yet; what is behind its last page is unmapped.
        unsafe {
            region.replace_by_file(0, bytes, file, offset, backing)?;
            if region.bytes > bytes {
                let _ = munmap(region.base.add(bytes).cast(), region.bytes - bytes);
            }
        }
        (region.bytes, region.backing) = (bytes, backing);
        Ok(region)
    }

    /// Where it begins.
    pub(crate) fn address(&self) -> *mut u8 {
        self.base
    }

    /// How long it is, in whole pages.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// What it shows.
    pub(crate) fn backing(&self) -> Backing {
        self.backing
    }

    /// Gives advice that changes no contents, for the whole pages around a part.
    pub(crate) fn advise(&self, from: usize, to: usize, advice: Harmless) -> Result<(), Errno> {
        assert!(from <= to && to <= self.bytes, "a part is within its region");
        let from = from - from % page_bytes();
        let to = to.next_multiple_of(page_bytes()).min(self.bytes);
        advise(self.base as usize + from, to - from, advice)
    }

    /// Shows `file` from `offset` in a part, instead of what is there. Whole pages.
    ///
    /// # Safety
    ///
    /// Nobody uses the part, and no thread waits for a page of it.
    pub(crate) unsafe fn replace_by_file(
        &self,
        from: usize,
        to: usize,
        file: BorrowedFd<'_>,
        offset: u64,
        backing: Backing,
    ) -> Result<(), Errno> {
        assert!(from < to && to <= self.bytes, "a part is within its region");
        assert!((from | to).is_multiple_of(page_bytes()), "parts are whole pages");
        let (protection, flags) = protection(backing);
        // SAFETY: the part is this region's, and nobody uses it, as the caller promises.
        unsafe {
            let at: *mut c_void = self.base.add(from).cast();
            mmap(at, to - from, protection, flags | MapFlags::FIXED, file, offset)?;
        }
        Ok(())
    }

    /// Puts the pages of `other` in the place of a part: `other` is gone, its contents are here.
    ///
    /// # Safety
    ///
    /// Nobody uses the part, or may find what is in `other` there from now on.
    pub(crate) unsafe fn replace_by_region(&self, from: usize, other: Region) -> Result<(), Errno> {
        assert!(from + other.bytes <= self.bytes, "a part is within its region");
        // SAFETY: both ranges are these regions'; the move takes `other` away as a whole.
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

    /// Makes a file that can only be read one whose pages are copied when written, at the same addresses.
    pub(crate) fn make_writable(&mut self, file: BorrowedFd<'_>, offset: u64) -> Result<(), Errno> {
        if self.backing != Backing::FileReadOnly || self.bytes == 0 {
            return Ok(());
        }
        // SAFETY: nobody else uses the region (`&mut`), and the same bytes are there afterwards.
        unsafe { self.replace_by_file(0, self.bytes, file, offset, Backing::FilePrivate) }?;
        self.backing = Backing::FilePrivate;
        Ok(())
    }

    /// Leaves the mapping to the process for good: the kernel may still write there.
    pub(crate) fn leak(&mut self) {
        *self = Region::empty();
    }

    /// From now on somebody else unmaps it. Says whether it was still there to be given.
    pub(crate) fn give_away(&self) -> bool {
        !self.is_given_away.swap(true, Ordering::AcqRel) && self.bytes > 0
    }

    /// Unmaps it, though others have hold of it.
    ///
    /// # Safety
    ///
    /// None of them looks at it any more.
    pub(crate) unsafe fn unmap(&self) {
        if self.give_away() {
            // SAFETY: the mapping is this region's; nobody uses an address of it any more, as the caller promises.
            let _ = unsafe { munmap(self.base.cast(), self.bytes) };
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: nobody has an address of it any more.
        unsafe { self.unmap() };
    }
}

fn map_private(bytes: usize) -> Result<*mut u8, Errno> {
    // SAFETY: the kernel picks the address, so nothing that is there is replaced.
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
    fn huge_regions_are_whole_aligned_and_zero() {
        let region = Region::huge((2 << 20) + 1).unwrap();
        assert_eq!(region.bytes(), 4 << 20);
        assert_eq!(region.address() as usize % HUGE_PAGE_BYTES, 0);
        // SAFETY: within the region, which nobody else uses.
        unsafe {
            assert_eq!(*region.address().add((4 << 20) - 1), 0);
        }
    }

    #[test]
    fn a_part_is_replaced_by_another_region() {
        let file = tempfile::tempfile().unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[7; 3 * 4096], 0).unwrap();
        let mut region = Region::of_file(file.as_fd(), 0, 3 * 4096, Backing::FileReadOnly).unwrap();
        let other = Region::private(4096).unwrap();
        // SAFETY: within the regions, which nobody else uses.
        unsafe {
            other.address().write(9);
            region.replace_by_region(4096, other).unwrap();
            assert_eq!((*region.address(), *region.address().add(4096)), (7, 9));
        }
        region.make_writable(file.as_fd(), 0).unwrap();
        // SAFETY: as above.
        unsafe {
            region.address().write(1);
            assert_eq!(*region.address().add(8192), 7);
        }
        let mut byte = [0];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut byte, 0).unwrap();
        assert_eq!(byte, [7], "a private page is not the file's");
    }
}
