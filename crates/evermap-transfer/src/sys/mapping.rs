//! Mapped window of a file, read only by the kernel.
//!
//! Accessing pages of a mapped file that was truncated raises SIGBUS. So no code of this process
//! accesses a window: it has no accessor, only calls that pass its address to the kernel. The
//! kernel returns EFAULT or a short count.

use std::ffi::c_void;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

/// Returns the page size, the alignment of mappings in a file.
pub(crate) fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// A mapped window, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: *mut c_void,
    bytes: usize,
}

// SAFETY: it is an address range of the process that no thread accesses; nothing in it belongs to
// one thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `bytes` from `offset`, a multiple of [`page_bytes`].
    pub(crate) fn new(file: BorrowedFd<'_>, offset: u64, bytes: usize) -> Result<Mapping, Errno> {
        // SAFETY: the kernel picks the address, so no existing mapping is replaced.
        let base = unsafe {
            mmap(ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, file, offset)
        }?;
        // Read-ahead for uncached pages. Advice only: without it the copy is slower.
        // SAFETY: the range is this mapping's; the advice changes no contents.
        let _ = unsafe { madvise(base, bytes, Advice::Sequential) };
        Ok(Mapping { base, bytes })
    }

    /// Faults all pages in with one call. Fails with EFAULT if the file has no page there, and with
    /// EINVAL before Linux 5.14.
    pub(crate) fn populate(&self) -> Result<(), Errno> {
        loop {
            // SAFETY: the range is this mapping's; populating for reading changes no contents.
            match unsafe { madvise(self.base, self.bytes, Advice::LinuxPopulateRead) } {
                Err(Errno::INTR | Errno::AGAIN) => {}
                other => return other,
            }
        }
    }

    /// Writes a part of the window to `target`, at `offset` or at the target's position.
    pub(crate) fn write_to(
        &self,
        part: Range<usize>,
        target: BorrowedFd<'_>,
        offset: Option<u64>,
    ) -> Result<usize, Errno> {
        assert!(part.start <= part.end && part.end <= self.bytes, "part exceeds its window");
        let bytes = part.end - part.start;
        let target = target.as_raw_fd();
        // SAFETY: the part is within the mapping (asserted), which outlives the call. The kernel
        // reads it, and no reference to it is made. Missing pages cause EFAULT.
        let written = unsafe {
            let from = self.base.byte_add(part.start);
            match offset {
                Some(offset) => match libc::off64_t::try_from(offset) {
                    Ok(offset) => libc::pwrite64(target, from, bytes, offset),
                    Err(_) => return Err(Errno::OVERFLOW),
                },
                None => libc::write(target, from, bytes),
            }
        };
        usize::try_from(written).map_err(|_| {
            Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
        })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` and unmapped once; no reference into it exists, and every call on
        // it has returned.
        let _ = unsafe { munmap(self.base, self.bytes) };
    }
}
