//! Memory without a file, for objects that are not stored.

use crate::error::{HeapError, Result};
use crate::format::CHUNK_BYTES;

/// Zeroed anonymous memory, chunk-aligned, unmapped on drop.
#[derive(Debug)]
pub struct AnonymousRange {
    mapped: u64,
    mapped_bytes: u64,
    base: u64,
}

impl AnonymousRange {
    /// Maps at least `bytes` from a chunk multiple.
    pub fn new(bytes: u64) -> Result<AnonymousRange> {
        let refuse = |why: String| HeapError::OutOfAddresses {
            what: "an object without a file".to_string(),
            bytes,
            why,
        };
        let mapped_bytes = bytes.saturating_add(CHUNK_BYTES);
        let Ok(length) = usize::try_from(mapped_bytes) else {
            return Err(refuse("it is larger than memory can be".to_string()));
        };
        let mapped = memory::map(length).map_err(refuse)?.expose_provenance() as u64;
        Ok(AnonymousRange { mapped, mapped_bytes, base: mapped.next_multiple_of(CHUNK_BYTES) })
    }

    /// Returns the first usable address, a chunk multiple.
    pub fn base(&self) -> u64 {
        self.base
    }
}

impl Drop for AnonymousRange {
    fn drop(&mut self) {
        let mapped = std::ptr::with_exposed_provenance_mut(self.mapped as usize);
        // SAFETY: this value owns the range, and every user of its memory keeps the value.
        unsafe { memory::unmap(mapped, self.mapped_bytes as usize) };
    }
}

#[cfg(not(any(miri, target_family = "wasm")))]
mod memory {
    use rustix::mm::{self, MapFlags, ProtFlags};

    pub(super) fn map(bytes: usize) -> Result<*mut u8, String> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address, so no existing mapping is replaced.
        let mapped = unsafe { mm::mmap_anonymous(std::ptr::null_mut(), bytes, rights, flags) };
        mapped.map(|mapped| mapped.cast()).map_err(|e| e.to_string())
    }

    /// # Safety
    /// `map` returned the range for the same number of bytes, and it is not used any more.
    pub(super) unsafe fn unmap(mapped: *mut u8, bytes: usize) {
        // SAFETY: the caller guarantees a range from `map` that is not used any more.
        let _ = unsafe { mm::munmap(mapped.cast(), bytes) };
    }
}

/// Miri and WebAssembly have no `mmap`: use the allocator instead.
#[cfg(any(miri, target_family = "wasm"))]
mod memory {
    use std::alloc::{Layout, alloc_zeroed, dealloc};

    fn layout(bytes: usize) -> Result<Layout, String> {
        Layout::from_size_align(bytes, 4096).map_err(|e| e.to_string())
    }

    pub(super) fn map(bytes: usize) -> Result<*mut u8, String> {
        // SAFETY: the layout is not empty, because the caller adds a chunk.
        let mapped = unsafe { alloc_zeroed(layout(bytes)?) };
        if mapped.is_null() { Err("no memory".to_string()) } else { Ok(mapped) }
    }

    /// # Safety
    /// `map` returned the range for the same number of bytes, and it is not used any more.
    pub(super) unsafe fn unmap(mapped: *mut u8, bytes: usize) {
        if let Ok(layout) = layout(bytes) {
            // SAFETY: the caller guarantees a range from `map` that is not used any more.
            unsafe { dealloc(mapped, layout) }
        }
    }
}
