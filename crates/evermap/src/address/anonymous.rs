//! Memory that no file backs: for objects that are not kept.

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
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the place, so nothing that exists is replaced.
        let mapped = unsafe {
            mm::mmap_anonymous(std::ptr::null_mut(), mapped_bytes as usize, rights, flags)
        };
        let mapped = mapped.map_err(|e| refuse(e.to_string()))? as u64;
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
        let _ = unsafe { mm::munmap(self.mapped as *mut _, self.mapped_bytes as usize) };
    }
}
