//! The file's pages, as they are in the kernel's cache, for looking at.
//!
//! Next to the mapping that the program stores into, an engine needs what the file holds, page by
//! page: through a read-only shared mapping that costs no system call a page and no copy. It lies
//! wherever the kernel puts it.

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
// SAFETY: as above.
unsafe impl Sync for View {}

impl View {
    /// Maps `length` bytes of addresses for the file's bytes from `file_offset` on. The range may
    /// reach past the end of the file: the file may grow into it.
    pub(crate) fn new(file: &dyn File, file_offset: u64, length: u64) -> Result<View> {
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
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
            // SAFETY: the range is the mapping just made; neither advice changes contents. Random:
            // read-around would bring large folios into the cache (see `Mapping::advise_random`).
            let _ = unsafe { mm::madvise(start, length as usize, advice) };
        }
        Ok(View { start, file_offset, length })
    }

    /// Does the view hold this byte of the file?
    pub(crate) fn contains(&self, file_offset: u64) -> bool {
        file_offset >= self.file_offset && file_offset - self.file_offset < self.length
    }

    /// The page of the file at this offset.
    ///
    /// # Safety
    /// The file reaches past the page, and nobody changes the page while the reference lives.
    pub(crate) unsafe fn page(&self, file_offset: u64) -> &[u8; PAGE_BYTES as usize] {
        assert!(
            self.contains(file_offset)
                && self.length - (file_offset - self.file_offset) >= PAGE_BYTES
        );
        let page = self.start.wrapping_byte_add((file_offset - self.file_offset) as usize);
        // SAFETY: inside the mapping, as asserted; backed by the file and unchanged, as the
        // caller promises; any bytes are a page.
        unsafe { &*page.cast() }
    }

    /// Which pages of the view are in memory: a byte a page, of which the lowest bit counts. Empty
    /// where the kernel does not say. It says that all are to who may not write to the file.
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
    /// large one: `MADV_COLD` on a part of a folio splits it. Only a clean folio that no other
    /// process has mapped can be split; otherwise nothing happens.
    ///
    /// ext4 walks all blocks of a folio at each write to it: 30 us for 4 KiB in a folio of 2 MiB,
    /// 2 us in one of a page. Splitting one costs 100 us, once.
    ///
    /// # Safety
    /// The file reaches past the page.
    pub(crate) unsafe fn split_folio(&self, file_offset: u64) {
        assert!(
            self.contains(file_offset)
                && self.length - (file_offset - self.file_offset) >= PAGE_BYTES
        );
        let page = self.start.wrapping_byte_add((file_offset - self.file_offset) as usize);
        // SAFETY: inside the mapping, as asserted, and backed by the file. The kernel looks at
        // pages that are mapped only, so the page is touched first; the advice changes no bytes.
        unsafe {
            page.cast::<u8>().read_volatile();
            let _ = mm::madvise(page, PAGE_BYTES as usize, Advice::LinuxCold);
        }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // A child does not have it: something else may lie there.
        if at_fork::is_child() {
            return;
        }
        // SAFETY: the mapping is this value's, and references into it borrow the value.
        let _ = unsafe { mm::munmap(self.start, self.length as usize) };
    }
}
