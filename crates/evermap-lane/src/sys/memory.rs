//! Private memory that is prefaulted, and locked if the process may.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::{io, slice};

use rustix::mm::{MapFlags, ProtFlags, mlock, mmap_anonymous, munmap};

/// Private memory of whole pages, zeroed and prefaulted. Slices of it are borrowed as from a `Vec`.
#[derive(Debug)]
pub(crate) struct Memory {
    base: NonNull<u8>,
    bytes: usize,
    is_locked: bool,
}

// SAFETY: the value owns its address range, which is valid in every thread.
unsafe impl Send for Memory {}
// SAFETY: shared references only read.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps at least `bytes`, rounded up to whole pages. Locks it if `wanted` says so and the limit
    /// of this process allows it; see `is_locked`.
    pub(crate) fn new(bytes: usize, wanted: Lock) -> io::Result<Self> {
        let bytes = super::whole_pages(bytes).ok_or(io::ErrorKind::OutOfMemory)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags) }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the range is the new mapping, in whole pages; locking changes no contents.
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
        // SAFETY: the range is mapped and initialised while `self` lives, and written only through
        // `&mut self`.
        unsafe { slice::from_raw_parts(self.base.as_ptr(), self.bytes) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the range is mapped and initialised while `self` lives; `&mut self` is exclusive.
        unsafe { slice::from_raw_parts_mut(self.base.as_ptr(), self.bytes) }
    }

    /// Memory as 64-bit words.
    pub(crate) fn words(&self) -> &[u64] {
        // SAFETY: the range is mapped and initialised while `self` lives and written only through
        // `&mut self`; pages are aligned to words, and any bit pattern is a valid word.
        unsafe { slice::from_raw_parts(self.base.as_ptr().cast(), self.bytes / 8) }
    }

    pub(crate) fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: the range is mapped and initialised while `self` lives, aligned to words, and
        // `&mut self` is exclusive.
        unsafe { slice::from_raw_parts_mut(self.base.as_ptr().cast(), self.bytes / 8) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `new` made the mapping, and no slice of it outlives `self`.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Wish to lock memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lock {
    /// Lock it if the process may.
    Wanted,
    /// Do not lock it.
    Unwanted,
}

/// Locks whole pages. Returns true on success.
///
/// # Safety
///
/// The range is mapped and belongs to the caller.
pub(super) unsafe fn lock(base: *mut c_void, bytes: usize) -> bool {
    // SAFETY: the caller guarantees that it owns the mapped range; locking changes no contents.
    unsafe { mlock(base, bytes) }.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zeroed_whole_pages_and_keeps_writes() {
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
    fn impossible_sizes_are_errors() {
        assert!(Memory::new(usize::MAX, Lock::Unwanted).is_err());
        assert!(Memory::new(1 << 50, Lock::Unwanted).is_err());
    }
}
