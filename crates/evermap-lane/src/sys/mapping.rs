//! Read-only mapping of a file.
//!
//! Loads from a mapped file raise SIGBUS after the file was truncated, and see later writes. Only
//! files that cannot be truncated or written are mapped: sealed memory, unnamed files, and files
//! under a read lease. `reads::map` ensures that.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::memory::{Lock, lock};

/// Mapping of a file from its beginning, prefaulted (`MAP_POPULATE`).
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    is_locked: bool,
}

// SAFETY: the value owns its address range, which is valid in every thread.
unsafe impl Send for Mapping {}
// SAFETY: the mapping is read-only.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `bytes` of the file, which must be at least that long.
    ///
    /// # Safety
    ///
    /// The file keeps its length and contents while the value lives, or no slice of `bytes()` is
    /// used after they may have changed.
    pub(crate) unsafe fn new(file: BorrowedFd<'_>, bytes: usize, wanted: Lock) -> io::Result<Self> {
        if bytes == 0 {
            let base = NonNull::<u64>::dangling().cast();
            return Ok(Self { base, bytes, is_locked: wanted == Lock::Wanted });
        }
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, flags, file, 0) }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the range is the new mapping; locking changes no contents.
        let is_locked = wanted == Lock::Wanted && unsafe { lock(base.as_ptr().cast(), bytes) };
        Ok(Self { base, bytes, is_locked })
    }

    pub(crate) fn is_locked(&self) -> bool {
        self.is_locked
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the range is mapped while `self` lives, and the caller of `new` guaranteed that
        // the contents do not change.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.bytes) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // SAFETY: `new` made the mapping, and no slice of it outlives `self`.
            let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
        }
    }
}
