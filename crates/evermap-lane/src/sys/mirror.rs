//! A ring of memory that is mapped twice, one behind the other, so that whatever lies in it lies in one piece; filled by one thread and read by another.
//!
//! Both go by positions in a stream, which lie at `position % bytes`. Who fills and who reads agree on a border, and each keeps to their side: that is
//! `reads::ahead`'s part. Here is the memory, and the two accesses.

use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use super::memory::{Lock, lock};

/// The memory. See the module.
#[derive(Debug)]
pub(crate) struct Mirror {
    base: NonNull<u8>,
    bytes: usize,
    is_locked: bool,
}

// SAFETY: an address range; who may access what is the callers' promise to `slice` and `slice_mut`.
unsafe impl Send for Mirror {}
// SAFETY: as above.
unsafe impl Sync for Mirror {}

impl Mirror {
    /// At least so many bytes, rounded to whole pages.
    pub(crate) fn new(bytes: usize, wanted: Lock) -> io::Result<Self> {
        let bytes = super::whole_pages(bytes).ok_or(io::ErrorKind::OutOfMemory)?;
        let twice = bytes.checked_mul(2).ok_or(io::ErrorKind::OutOfMemory)?;
        let file = memfd_create("evermap-lane-ahead", MemfdFlags::CLOEXEC)?;
        // All of it now: where memory is not to be had, that is an error here and a signal at the first touch.
        fallocate(&file, FallocateFlags::empty(), 0, bytes as u64)?;
        let none = ProtFlags::empty();
        // SAFETY: a new mapping, which keeps the addresses for the two halves.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), twice, none, MapFlags::PRIVATE) }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut mirror = Self { base, bytes, is_locked: false };
        for half in 0..2 {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::POPULATE;
            // SAFETY: half of the addresses that were reserved above, and that nobody has seen yet. The file is this mapping's alone and keeps its length.
            unsafe {
                let at: *mut c_void = base.as_ptr().add(half * bytes).cast();
                mmap(at, bytes, protection, flags, &file, 0)?;
            }
        }
        // Both halves are the same pages, and a lock counts addresses: one half keeps them.
        // SAFETY: the first half; locking changes no contents.
        mirror.is_locked = wanted == Lock::Wanted && unsafe { lock(base.as_ptr().cast(), bytes) };
        Ok(mirror)
    }

    pub(crate) fn is_locked(&self) -> bool {
        self.is_locked
    }

    /// Bytes of the ring.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// What lies at these positions of the stream: no more than the ring has.
    ///
    /// # Safety
    ///
    /// Nobody writes to these positions while the slice lives.
    pub(crate) unsafe fn slice(&self, position: u64, length: usize) -> &[u8] {
        let at = self.place(position, length);
        // SAFETY: within the two halves, which are mapped and initialised for as long as `self` lives; nobody writes, says the caller.
        unsafe { std::slice::from_raw_parts(at, length) }
    }

    /// The same, to be filled.
    ///
    /// # Safety
    ///
    /// Nobody else reads or writes these positions while the slice lives.
    #[expect(clippy::mut_from_ref, reason = "the caller promises what a unique borrow would")]
    pub(crate) unsafe fn slice_mut(&self, position: u64, length: usize) -> &mut [u8] {
        let at = self.place(position, length);
        // SAFETY: within the two halves, which are mapped and initialised for as long as `self` lives; nobody else is there, says the caller.
        unsafe { std::slice::from_raw_parts_mut(at, length) }
    }

    fn place(&self, position: u64, length: usize) -> *mut u8 {
        assert!(length <= self.bytes, "{length} bytes of a ring of {}", self.bytes);
        let at = (position % self.bytes as u64) as usize;
        // SAFETY: less than the first half's length, so within the mapping.
        unsafe { self.base.as_ptr().add(at) }
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        // SAFETY: the addresses that `new` reserved, and nothing that was lent of them lives any more.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), 2 * self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_across_the_end_lies_in_one_piece() {
        let mirror = Mirror::new(4096, Lock::Unwanted).unwrap();
        let end = mirror.len() as u64;
        for lap in [0, 7] {
            let position = lap * end + end - 3;
            // SAFETY: this thread is the only one.
            unsafe {
                mirror.slice_mut(position, 6).copy_from_slice(b"across");
                assert_eq!(mirror.slice(position, 6), b"across");
                assert_eq!(mirror.slice((lap + 1) * end, 3), b"oss");
            }
        }
    }
}
