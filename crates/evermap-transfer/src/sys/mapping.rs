//! A window of a file, mapped to be read by the kernel, and by nobody else.
//!
//! A file that is cut short while it is mapped raises SIGBUS in whoever touches what is gone. So no
//! code of this process ever does: the window has no accessor, only calls that name its address to
//! the kernel, which answers with EFAULT or a short count.

use std::ffi::c_void;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

/// Mappings begin at multiples of this many bytes of a file.
pub(crate) fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// A mapped window. Unmapped when it is dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: *mut c_void,
    bytes: usize,
}

// SAFETY: it is an address range of the process, which no thread reads or writes; nothing in it belongs to one thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `bytes` from `offset`, a multiple of [`page_bytes`].
    pub(crate) fn new(file: BorrowedFd<'_>, offset: u64, bytes: usize) -> Result<Mapping, Errno> {
        // SAFETY: the kernel picks the address, so nothing that is there is replaced.
        let base = unsafe {
            mmap(ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, file, offset)
        }?;
        // Read-ahead for what is not in the cache yet. Only advice: without it the copy is slower.
        // SAFETY: the range is this mapping's; the advice changes no contents.
        let _ = unsafe { madvise(base, bytes, Advice::Sequential) };
        Ok(Mapping { base, bytes })
    }

    /// Brings its pages in, in one call. Says EFAULT where the file has none, instead of a signal; EINVAL where the
    /// kernel (before 5.14) does not know how.
    pub(crate) fn populate(&self) -> Result<(), Errno> {
        loop {
            // SAFETY: the range is this mapping's; populating for reading changes no contents.
            match unsafe { madvise(self.base, self.bytes, Advice::LinuxPopulateRead) } {
                Err(Errno::INTR | Errno::AGAIN) => {}
                other => return other,
            }
        }
    }

    /// Writes a part of it to `target`: at `offset`, or where `target` stands if there is none.
    pub(crate) fn write_to(
        &self,
        part: Range<usize>,
        target: BorrowedFd<'_>,
        offset: Option<u64>,
    ) -> Result<usize, Errno> {
        assert!(part.start <= part.end && part.end <= self.bytes, "a part is within its window");
        let bytes = part.end - part.start;
        let target = target.as_raw_fd();
        // SAFETY: the part is within the mapping (asserted), which lives until the call is over. The
        // kernel reads it, and no reference to it is made. Pages that are gone give EFAULT.
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
        // SAFETY: mapped by `new`, unmapped once; no reference into it exists, and every call on it is over.
        let _ = unsafe { munmap(self.base, self.bytes) };
    }
}
