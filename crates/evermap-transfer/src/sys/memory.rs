//! Memory that a ring's operations read and write, and no code of this process does.
//!
//! Aligned to huge pages, which is more than any direct I/O asks for, and asked to be made of such:
//! the kernel pins one piece instead of hundreds.

use std::ffi::c_void;
use std::ptr;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Equal slots of anonymous memory. Unmapped when it is dropped.
#[derive(Debug)]
pub(crate) struct Memory {
    mapped: *mut c_void,
    mapped_bytes: usize,
    base: *mut u8,
    slots: usize,
    slot_bytes: usize,
}

// SAFETY: an address range that belongs to no thread; what is in it is touched by the kernel alone.
unsafe impl Send for Memory {}

impl Memory {
    /// `slots` of `slot_bytes` each. Costs nothing until the pages are used.
    pub(crate) fn new(slots: usize, slot_bytes: usize) -> Result<Memory, Errno> {
        let bytes = slots.checked_mul(slot_bytes).filter(|bytes| *bytes > 0).ok_or(Errno::INVAL)?;
        let mapped_bytes = bytes.checked_add(HUGE_PAGE_BYTES).ok_or(Errno::NOMEM)?;
        // SAFETY: the kernel picks the address, so nothing that is there is replaced.
        let mapped = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                mapped_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        let skipped = mapped.align_offset(HUGE_PAGE_BYTES).min(HUGE_PAGE_BYTES);
        // SAFETY: what is skipped is less than what was mapped beyond `bytes`.
        let base = unsafe { mapped.byte_add(skipped) };
        // SAFETY: the range is this mapping's, and has no contents yet. It is only advice.
        let _ = unsafe { madvise(base, bytes, Advice::LinuxHugepage) };
        Ok(Memory { mapped, mapped_bytes, base: base.cast(), slots, slot_bytes })
    }

    /// How many there are.
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    /// Bytes of each.
    pub(crate) fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// The address of `from` in slot `slot`. Good as long as this lives.
    pub(crate) fn address(&self, slot: usize, from: usize) -> *mut u8 {
        assert!(slot < self.slots && from <= self.slot_bytes, "a slot's part is within it");
        // SAFETY: within the mapping, as was asserted.
        unsafe { self.base.byte_add(slot * self.slot_bytes + from) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, unmapped once; a ring drops it after its operations are over.
        let _ = unsafe { munmap(self.mapped, self.mapped_bytes) };
    }
}
