//! Read-only view of a file's pages in the page cache.
//!
//! Besides the mapping that the program stores into, a commit needs the file's own contents, page
//! by page. A read-only shared mapping provides them without a system call per page and without a
//! copy. The kernel chooses its address.

use std::ffi::c_void;
use std::ptr;

use rustix::mm::{self, Advice, MapFlags, ProtFlags};

use crate::at_fork;
use crate::error::{Error, Result};
use crate::format::PAGE_BYTES;
use crate::storage::File;

/// A contiguous part of a file, mapped for reading.
#[derive(Debug)]
pub(crate) struct View {
    start: *mut c_void,
    file_offset: u64,
    length: u64,
}

// SAFETY: the mapping is only read, and lives until the value is dropped.
unsafe impl Send for View {}
// SAFETY: the mapping is only read, and lives until the value is dropped.
unsafe impl Sync for View {}

impl View {
    /// Maps `length` bytes of the file from `file_offset`. The range may extend past the end of the
    /// file, which may grow into it.
    pub(crate) fn new(file: &dyn File, file_offset: u64, length: u64) -> Result<View> {
        // SAFETY: the kernel chooses the address, so no existing mapping is replaced.
        let start = unsafe {
            mm::mmap(
                ptr::null_mut(),
                length as usize,
                ProtFlags::READ,
                MapFlags::SHARED | MapFlags::NORESERVE,
                file.descriptor(),
                file_offset,
            )
        };
        let start = start.map_err(|e| Error::from_io(e.into(), "map", file.path()))?;
        for advice in [Advice::Random, Advice::LinuxDontFork] {
            // SAFETY: the range is the mapping created above; neither advice changes contents.
            // Random access: read-around would bring large folios into the cache (see
            // `Mapping::advise_random`).
            let _ = unsafe { mm::madvise(start, length as usize, advice) };
        }
        Ok(View { start, file_offset, length })
    }

    /// Returns true if the view contains this byte of the file.
    pub(crate) fn contains(&self, file_offset: u64) -> bool {
        file_offset >= self.file_offset && file_offset - self.file_offset < self.length
    }

    /// Returns the page of the file at this offset.
    ///
    /// # Safety
    /// The file extends past the page, and the page does not change while the reference lives.
    pub(crate) unsafe fn page(&self, file_offset: u64) -> &[u8; PAGE_BYTES as usize] {
        assert!(
            self.contains(file_offset)
                && self.length - (file_offset - self.file_offset) >= PAGE_BYTES
        );
        let page = self.start.wrapping_byte_add((file_offset - self.file_offset) as usize);
        // SAFETY: inside the mapping, as asserted; the caller guarantees that the file backs the
        // page and that it does not change; any bytes are a valid page.
        unsafe { &*page.cast() }
    }

    /// Reports which pages of the view are in memory, one byte per page, in the lowest bit. The
    /// result is empty if the kernel does not tell. The kernel reports all pages as resident to a
    /// process that may not write to the file.
    pub(crate) fn resident(&self, pages: &mut Vec<u8>) {
        pages.clear();
        pages.resize(self.length.div_ceil(PAGE_BYTES) as usize, 0);
        // SAFETY: the range is the mapping, and the vector has a byte for each of its pages.
        let done = unsafe { libc::mincore(self.start, self.length as usize, pages.as_mut_ptr()) };
        if done != 0 {
            pages.clear();
        }
    }

    /// Asks the kernel to split the page-cache folio that holds the page at this offset, if it is a
    /// large one: `MADV_COLD` on a part of a folio splits it. The kernel can only split a clean
    /// folio that no other process has mapped; otherwise nothing happens.
    ///
    /// ext4 walks all blocks of a folio at each write to it: 30 us for 4 KiB in a folio of 2 MiB, 2
    /// us in one of a page. Splitting one costs 100 us, once.
    ///
    /// # Safety
    /// The file extends past the page.
    pub(crate) unsafe fn split_folio(&self, file_offset: u64) {
        assert!(
            self.contains(file_offset)
                && self.length - (file_offset - self.file_offset) >= PAGE_BYTES
        );
        let page = self.start.wrapping_byte_add((file_offset - self.file_offset) as usize);
        // SAFETY: inside the mapping, as asserted, and the caller guarantees that the file backs
        // the page. The advice only affects mapped pages, so the page is touched first; it changes
        // no bytes.
        unsafe {
            page.cast::<u8>().read_volatile();
            let _ = mm::madvise(page, PAGE_BYTES as usize, Advice::LinuxCold);
        }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // A child does not inherit the mapping; other memory may be at its address.
        if at_fork::is_child() {
            return;
        }
        // SAFETY: this value owns the mapping, and references into it borrow the value.
        let _ = unsafe { mm::munmap(self.start, self.length as usize) };
    }
}
