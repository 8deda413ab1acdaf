//! Memory that only the kernel reads and writes, through io_uring operations.
//!
//! Aligned to huge pages, more than any direct I/O needs, and advised to use them, so that the
//! kernel pins one piece instead of hundreds.

use std::ffi::c_void;
use std::ptr;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Slots of anonymous memory of equal size, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Memory {
    mapped: *mut c_void,
    mapped_bytes: usize,
    base: *mut u8,
    slots: usize,
    slot_bytes: usize,
}

// SAFETY: it is an address range that belongs to no thread; only the kernel accesses its contents.
unsafe impl Send for Memory {}

impl Memory {
    /// Maps `slots` slots of `slot_bytes`. Pages are allocated on first use.
    pub(crate) fn new(slots: usize, slot_bytes: usize) -> Result<Memory, Errno> {
        let bytes = slots.checked_mul(slot_bytes).filter(|bytes| *bytes > 0).ok_or(Errno::INVAL)?;
        let mapped_bytes = bytes.checked_add(HUGE_PAGE_BYTES).ok_or(Errno::NOMEM)?;
        // SAFETY: the kernel picks the address, so no existing mapping is replaced.
        let mapped = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                mapped_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        let skipped = mapped.align_offset(HUGE_PAGE_BYTES).min(HUGE_PAGE_BYTES);
        // SAFETY: `skipped` is at most HUGE_PAGE_BYTES, which was mapped in addition to `bytes`.
        let base = unsafe { mapped.byte_add(skipped) };
        // SAFETY: the range is this mapping's and has no contents yet. This is only advice.
        let _ = unsafe { madvise(base, bytes, Advice::LinuxHugepage) };
        Ok(Memory { mapped, mapped_bytes, base: base.cast(), slots, slot_bytes })
    }

    /// Returns the number of slots.
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    /// Returns the size of a slot in bytes.
    pub(crate) fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Returns the address of offset `from` in slot `slot`, valid while `self` lives.
    pub(crate) fn address(&self, slot: usize, from: usize) -> *mut u8 {
        assert!(slot < self.slots && from <= self.slot_bytes, "slot or offset out of range");
        // SAFETY: within the mapping, as asserted above.
        unsafe { self.base.byte_add(slot * self.slot_bytes + from) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` and unmapped once; a ring drops it only after its operations have
        // completed.
        let _ = unsafe { munmap(self.mapped, self.mapped_bytes) };
    }
}
