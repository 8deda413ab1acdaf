//! Ring of memory that is mapped twice in a row, so that any slice of it is contiguous. One thread
//! fills it and another one reads.
//!
//! Both threads address it by positions in a stream, stored at `position % bytes`. `reads::ahead`
//! decides which positions each side may access; this module provides the memory and the accesses.

use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use super::memory::{Lock, lock};

/// Doubly mapped memory. See the module.
#[derive(Debug)]
pub(crate) struct Mirror {
    base: NonNull<u8>,
    bytes: usize,
    is_locked: bool,
}

// SAFETY: an address range valid in every thread; callers of `slice` and `slice_mut` guarantee that
// accesses do not conflict.
unsafe impl Send for Mirror {}
// SAFETY: callers of `slice` and `slice_mut` guarantee that accesses do not conflict.
unsafe impl Sync for Mirror {}

impl Mirror {
    /// Maps at least `bytes`, rounded up to whole pages.
    pub(crate) fn new(bytes: usize, wanted: Lock) -> io::Result<Self> {
        let bytes = super::whole_pages(bytes).ok_or(io::ErrorKind::OutOfMemory)?;
        let twice = bytes.checked_mul(2).ok_or(io::ErrorKind::OutOfMemory)?;
        let file = memfd_create("evermap-lane-ahead", MemfdFlags::CLOEXEC)?;
        // Allocates all of it now: a lack of memory is an error here, and a signal at first touch.
        fallocate(&file, FallocateFlags::empty(), 0, bytes as u64)?;
        let none = ProtFlags::empty();
        // SAFETY: a new mapping that reserves the addresses of both halves.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), twice, none, MapFlags::PRIVATE) }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut mirror = Self { base, bytes, is_locked: false };
        for half in 0..2 {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::POPULATE;
            // SAFETY: the range is half of the addresses reserved above, which no other code knows
            // yet. Only this mapping uses the file, whose length does not change.
            unsafe {
                let at: *mut c_void = base.as_ptr().add(half * bytes).cast();
                mmap(at, bytes, protection, flags, &file, 0)?;
            }
        }
        // Both halves map the same pages, so locking the addresses of one half locks them.
        // SAFETY: the range is the first half; locking changes no contents.
        mirror.is_locked = wanted == Lock::Wanted && unsafe { lock(base.as_ptr().cast(), bytes) };
        Ok(mirror)
    }

    pub(crate) fn is_locked(&self) -> bool {
        self.is_locked
    }

    /// Size of the ring in bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// Returns the bytes at these positions of the stream. Panics if `length` exceeds the ring.
    ///
    /// # Safety
    ///
    /// No code writes to these positions while the slice lives.
    pub(crate) unsafe fn slice(&self, position: u64, length: usize) -> &[u8] {
        let at = self.place(position, length);
        // SAFETY: the range lies within the two halves, which are mapped and initialised while
        // `self` lives; the caller guarantees that no code writes to it.
        unsafe { std::slice::from_raw_parts(at, length) }
    }

    /// Returns the bytes at these positions for writing. Panics if `length` exceeds the ring.
    ///
    /// # Safety
    ///
    /// No other code reads or writes these positions while the slice lives.
    #[expect(clippy::mut_from_ref, reason = "the caller guarantees exclusive access")]
    pub(crate) unsafe fn slice_mut(&self, position: u64, length: usize) -> &mut [u8] {
        let at = self.place(position, length);
        // SAFETY: the range lies within the two halves, which are mapped and initialised while
        // `self` lives; the caller guarantees exclusive access.
        unsafe { std::slice::from_raw_parts_mut(at, length) }
    }

    fn place(&self, position: u64, length: usize) -> *mut u8 {
        assert!(length <= self.bytes, "{length} bytes of a ring of {}", self.bytes);
        let at = (position % self.bytes as u64) as usize;
        // SAFETY: `at` is less than the length of the first half, so the result is within the
        // mapping.
        unsafe { self.base.as_ptr().add(at) }
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        // SAFETY: `new` reserved these addresses, and no slice of them outlives `self`.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), 2 * self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_across_the_end_of_the_ring_is_contiguous() {
        let mirror = Mirror::new(4096, Lock::Unwanted).unwrap();
        let end = mirror.len() as u64;
        for lap in [0, 7] {
            let position = lap * end + end - 3;
            // SAFETY: no other thread uses the memory.
            unsafe {
                mirror.slice_mut(position, 6).copy_from_slice(b"across");
                assert_eq!(mirror.slice(position, 6), b"across");
                assert_eq!(mirror.slice((lap + 1) * end, 3), b"oss");
            }
        }
    }
}
