//! Staging area: memory that windows are read into before they are moved into place.

use rustix::io::Errno;

use crate::region::Region;
use crate::sys::HUGE_PAGE_BYTES;
use crate::sys::advice::{SafeAdvice, advise, forget};

/// Contents of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contents {
    /// No pages: they were moved away.
    Gone,
    /// A window that is being read.
    Window(usize),
    /// Old bytes.
    Stale,
}

/// Number of slots: the stream's maximum of outstanding reads, and some for wanted windows.
pub(crate) const SLOTS: usize = 32;

/// Slots of one window each.
#[derive(Debug)]
pub(crate) struct Staging {
    region: Region,
    slots: Vec<Contents>,
}

impl Staging {
    /// Creates a staging area for an image of `windows` windows.
    pub(crate) fn new(windows: usize) -> Result<Staging, Errno> {
        let slots = SLOTS.min(windows.max(1));
        let region = Region::huge(slots * HUGE_PAGE_BYTES)?;
        // Pages shared with a forked child cannot be moved.
        let _ = region.advise(0, region.bytes(), SafeAdvice::DontFork);
        Ok(Staging { region, slots: vec![Contents::Gone; slots] })
    }

    /// Assigns a free slot, cleared to zero, to a window.
    pub(crate) fn take(&mut self, window: usize) -> Option<usize> {
        let slot =
            self.slots.iter().position(|contents| !matches!(contents, Contents::Window(_)))?;
        if self.slots[slot] == Contents::Stale {
            self.clear(slot);
        }
        self.slots[slot] = Contents::Window(window);
        Some(slot)
    }

    /// Clears a free slot to zeros. Holes of the file are expected to be zero.
    fn clear(&self, slot: usize) {
        let address = self.address(slot);
        // SAFETY: the slot is free, so it has no users and its contents are not needed.
        unsafe {
            // Memory that was locked in the meantime (`mlockall`) cannot be discarded.
            if forget(address as usize, HUGE_PAGE_BYTES).is_err() {
                address.write_bytes(0, HUGE_PAGE_BYTES);
            }
        }
    }

    /// Returns the window of a slot.
    pub(crate) fn window(&self, slot: usize) -> Option<usize> {
        match self.slots.get(slot)? {
            Contents::Window(window) => Some(*window),
            _ => None,
        }
    }

    /// Frees a slot. `pages_are_gone` is true if its pages were moved away.
    pub(crate) fn free(&mut self, slot: usize, pages_are_gone: bool) {
        self.slots[slot] = if pages_are_gone { Contents::Gone } else { Contents::Stale };
    }

    /// Makes all pages of a slot present.
    pub(crate) fn populate(&self, slot: usize) -> Result<(), Errno> {
        advise(self.address(slot) as usize, HUGE_PAGE_BYTES, SafeAdvice::PopulateWrite)
    }

    /// Returns the address of a slot, memory for one window.
    pub(crate) fn address(&self, slot: usize) -> *mut u8 {
        assert!(slot < self.slots.len(), "the slot does not exist");
        // SAFETY: the address is within the region, as asserted.
        unsafe { self.region.address().add(slot * HUGE_PAGE_BYTES) }
    }

    /// Leaves the memory to the kernel, which may still write to it.
    pub(crate) fn leak(&mut self) {
        self.slots.clear();
        self.region.leak();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_reused_slot_is_zero_even_if_its_memory_is_locked() {
        for is_locked in [false, true] {
            let mut staging = Staging::new(1).unwrap();
            let slot = staging.take(0).unwrap();
            // SAFETY: only this test uses the slot.
            unsafe { staging.address(slot).add(4097).write(7) };
            if is_locked {
                // SAFETY: the call changes no contents.
                let locked =
                    unsafe { rustix::mm::mlock(staging.address(slot).cast(), HUGE_PAGE_BYTES) };
                if let Err(errno) = locked {
                    eprintln!("skipped: cannot lock memory: {errno}");
                    continue;
                }
            }
            staging.free(slot, false);
            let slot = staging.take(1).unwrap();
            // SAFETY: only this test uses the slot.
            assert_eq!(unsafe { *staging.address(slot).add(4097) }, 0, "locked: {is_locked}");
        }
    }
}
