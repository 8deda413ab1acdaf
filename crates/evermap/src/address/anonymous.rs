//! Memory that no file backs: for objects that are not kept.

use std::ffi::c_void;

#[cfg(not(miri))]
use rustix::mm::{self, MapFlags, ProtFlags};

use crate::error::{Error, Result};
use crate::format::CHUNK_BYTES;

/// Zeroed anonymous memory somewhere, chunk-aligned. Unmaps itself.
#[derive(Debug)]
pub(crate) struct AnonymousRange {
    mapped: u64,
    mapped_bytes: u64,
    base: u64,
}

impl AnonymousRange {
    /// At least `bytes` from a chunk multiple.
    pub(crate) fn new(bytes: u64) -> Result<AnonymousRange> {
        let refuse = |why: String| Error::OutOfAddresses {
            what: "an object that is not kept".to_string(),
            bytes,
            why,
        };
        let Some(mapped_bytes) = bytes.checked_add(CHUNK_BYTES) else {
            return Err(refuse("it is larger than memory can be".to_string()));
        };
        let mapped = map(mapped_bytes as usize).map_err(|e| refuse(e.to_string()))? as u64;
        Ok(AnonymousRange { mapped, mapped_bytes, base: mapped.next_multiple_of(CHUNK_BYTES) })
    }

    /// First usable address, a chunk multiple.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }
}

impl Drop for AnonymousRange {
    fn drop(&mut self) {
        // SAFETY: the range is ours; whoever uses its memory keeps this value.
        unsafe { unmap(self.mapped as *mut _, self.mapped_bytes as usize) };
    }
}

#[cfg(not(miri))]
fn map(bytes: usize) -> rustix::io::Result<*mut c_void> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses the place, so nothing that exists is replaced.
    unsafe { mm::mmap_anonymous(std::ptr::null_mut(), bytes, rights, flags) }
}

/// # Safety
/// As `munmap`.
#[cfg(not(miri))]
unsafe fn unmap(mapped: *mut c_void, bytes: usize) {
    // SAFETY: the caller's promise.
    let _ = unsafe { mm::munmap(mapped, bytes) };
}

/// Miri has no system calls; memory of its allocator will do.
#[cfg(miri)]
fn map(bytes: usize) -> rustix::io::Result<*mut c_void> {
    let layout = std::alloc::Layout::from_size_align(bytes, CHUNK_BYTES as usize);
    let layout = layout.map_err(|_| rustix::io::Errno::NOMEM)?;
    // SAFETY: the size is not zero.
    Ok(unsafe { std::alloc::alloc_zeroed(layout) }.cast())
}

/// # Safety
/// Of `map`, and used no more.
#[cfg(miri)]
unsafe fn unmap(mapped: *mut c_void, bytes: usize) {
    if let Ok(layout) = std::alloc::Layout::from_size_align(bytes, CHUNK_BYTES as usize) {
        // SAFETY: allocated with this layout, by the caller's promise.
        unsafe { std::alloc::dealloc(mapped.cast(), layout) };
    }
}
