//! Memory that is there and stays there: private pages, locked where the process may, in any case present from the beginning.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::{io, slice};

use rustix::mm::{MapFlags, ProtFlags, mlock, mmap_anonymous, munmap};

/// Private memory of whole pages, zero at first, present from the beginning. Nobody else's: what is lent of it is lent as of a `Vec`.
#[derive(Debug)]
pub(crate) struct Memory {
    base: NonNull<u8>,
    bytes: usize,
    is_locked: bool,
}

// SAFETY: an address range that belongs to its owner, whatever the thread.
unsafe impl Send for Memory {}
// SAFETY: shared, it is only read.
unsafe impl Sync for Memory {}

impl Memory {
    /// At least `bytes`, rounded to whole pages; locked, if it is `wanted` and the limit of this process allows it: `is_locked` tells.
    pub(crate) fn new(bytes: usize, wanted: Lock) -> io::Result<Self> {
        let bytes = super::whole_pages(bytes).ok_or(io::ErrorKind::OutOfMemory)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
        // SAFETY: a new mapping where the kernel has room for it.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags) }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: this mapping is whole pages; locking changes no contents.
        let is_locked = wanted == Lock::Wanted && unsafe { lock(base.as_ptr().cast(), bytes) };
        Ok(Self { base, bytes, is_locked })
    }

    pub(crate) fn is_locked(&self) -> bool {
        self.is_locked
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: mapped for as long as `self` lives, always initialised, and written through `&mut self` only.
        unsafe { slice::from_raw_parts(self.base.as_ptr(), self.bytes) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` is the only way to it now.
        unsafe { slice::from_raw_parts_mut(self.base.as_ptr(), self.bytes) }
    }

    /// The same as words.
    pub(crate) fn words(&self) -> &[u64] {
        // SAFETY: as in `bytes`; pages begin at multiples of a word, and any bits are a word.
        unsafe { slice::from_raw_parts(self.base.as_ptr().cast(), self.bytes / 8) }
    }

    pub(crate) fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: as in `words`, and `&mut self` is the only way to it now.
        unsafe { slice::from_raw_parts_mut(self.base.as_ptr().cast(), self.bytes / 8) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made, and nothing that was lent of it lives any more.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Whether memory is to be locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lock {
    /// Where the process may.
    Wanted,
    /// Not at all.
    Unwanted,
}

/// Locks whole pages; whether that was possible.
///
/// # Safety
///
/// The range is mapped, and the caller's.
pub(super) unsafe fn lock(base: *mut c_void, bytes: usize) -> bool {
    // SAFETY: the caller's promise; locking changes no contents.
    unsafe { mlock(base, bytes) }.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zero_whole_pages_and_as_written() {
        let mut memory = Memory::new(5, Lock::Unwanted).unwrap();
        assert_eq!(memory.len(), super::super::page_bytes());
        assert!(!memory.is_locked());
        assert!(memory.bytes().iter().all(|&byte| byte == 0));
        memory.words_mut()[1] = u64::from_ne_bytes(*b"evermap!");
        assert_eq!(&memory.bytes()[8..16], b"evermap!");
        memory.bytes_mut()[8] = b'E';
        assert_eq!(memory.words()[1], u64::from_ne_bytes(*b"Evermap!"));
    }

    #[test]
    fn more_than_there_can_be_is_an_error() {
        assert!(Memory::new(usize::MAX, Lock::Unwanted).is_err());
        assert!(Memory::new(1 << 50, Lock::Unwanted).is_err());
    }
}
