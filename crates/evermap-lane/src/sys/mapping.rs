//! A file's contents as memory, for reading.
//!
//! A mapped file whose end moves turns loads into SIGBUS, and one that is written changes under a reader. Only files that nobody can do that to
//! are mapped: sealed memory, files without a name, and files under a read lease. `reads::map` sees to that.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::memory::{Lock, lock};

/// A file's contents from its beginning. All of it is there from the beginning (`MAP_POPULATE`).
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    is_locked: bool,
}

// SAFETY: an address range that belongs to its owner, whatever the thread.
unsafe impl Send for Mapping {}
// SAFETY: it is only ever read.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// The first `bytes`, which the file has.
    ///
    /// # Safety
    ///
    /// The file keeps its length and its contents for as long as this lives, or nothing of `bytes()` is used any more once it may not.
    pub(crate) unsafe fn new(file: BorrowedFd<'_>, bytes: usize, wanted: Lock) -> io::Result<Self> {
        if bytes == 0 {
            let base = NonNull::<u64>::dangling().cast();
            return Ok(Self { base, bytes, is_locked: wanted == Lock::Wanted });
        }
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping where the kernel has room for it.
        let base = unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, flags, file, 0) }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: this mapping; locking changes no contents.
        let is_locked = wanted == Lock::Wanted && unsafe { lock(base.as_ptr().cast(), bytes) };
        Ok(Self { base, bytes, is_locked })
    }

    pub(crate) fn is_locked(&self) -> bool {
        self.is_locked
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: mapped for as long as `self` lives, and unchanging as `new` was promised.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.bytes) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // SAFETY: the mapping that `new` made, and nothing that was lent of it lives any more.
            let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
        }
    }
}
