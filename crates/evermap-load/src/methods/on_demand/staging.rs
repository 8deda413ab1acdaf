//! Memory that windows are read into before they are moved to their place.

use rustix::io::Errno;

use crate::region::Region;
use crate::sys::HUGE_PAGE_BYTES;
use crate::sys::advice::{Harmless, advise, forget};

/// What is in a slot's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contents {
    /// Nothing: its pages are elsewhere now.
    Gone,
    /// A window that is being read.
    Window(usize),
    /// What is of no use.
    Stale,
}

/// Reads that the stream has under way at most, and some that are wanted meanwhile.
pub(crate) const SLOTS: usize = 32;

/// Slots of one window each.
#[derive(Debug)]
pub(crate) struct Staging {
    region: Region,
    slots: Vec<Contents>,
}

impl Staging {
    /// For an image of so many windows.
    pub(crate) fn new(windows: usize) -> Result<Staging, Errno> {
        let slots = SLOTS.min(windows.max(1));
        let region = Region::huge(slots * HUGE_PAGE_BYTES)?;
        // Pages that a child of the process shares cannot be moved.
        let _ = region.advise(0, region.bytes(), Harmless::DontFork);
        Ok(Staging { region, slots: vec![Contents::Gone; slots] })
    }

    /// Gives a window a slot that is free, and empty.
    pub(crate) fn take(&mut self, window: usize) -> Option<usize> {
        let slot =
            self.slots.iter().position(|contents| !matches!(contents, Contents::Window(_)))?;
        if self.slots[slot] == Contents::Stale {
            self.clear(slot);
        }
        self.slots[slot] = Contents::Window(window);
        Some(slot)
    }

    /// Has a free slot read as zeros: what a file has no data for is taken to be zero there.
    fn clear(&self, slot: usize) {
        let address = self.address(slot);
        // SAFETY: the slot is free: nothing in it counts, and nobody uses it.
        unsafe {
            // Memory that was locked meanwhile (`mlockall`) cannot be forgotten.
            if forget(address as usize, HUGE_PAGE_BYTES).is_err() {
                address.write_bytes(0, HUGE_PAGE_BYTES);
            }
        }
    }

    /// The window that a slot is taken by.
    pub(crate) fn window(&self, slot: usize) -> Option<usize> {
        match self.slots.get(slot)? {
            Contents::Window(window) => Some(*window),
            _ => None,
        }
    }

    /// The slot is free; its pages were moved away, or not.
    pub(crate) fn give_back(&mut self, slot: usize, pages_are_gone: bool) {
        self.slots[slot] = if pages_are_gone { Contents::Gone } else { Contents::Stale };
    }

    /// Has all of a slot's pages there.
    pub(crate) fn populate(&self, slot: usize) -> Result<(), Errno> {
        advise(self.address(slot) as usize, HUGE_PAGE_BYTES, Harmless::PopulateWrite)
    }

    /// Where a slot is: memory for one window.
    pub(crate) fn address(&self, slot: usize) -> *mut u8 {
        assert!(slot < self.slots.len(), "there is such a slot");
        // SAFETY: within the region, as was asserted.
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
    fn a_slot_that_is_used_again_is_zero_even_if_its_memory_is_locked() {
        for is_locked in [false, true] {
            let mut staging = Staging::new(1).unwrap();
            let slot = staging.take(0).unwrap();
            // SAFETY: the slot is this test's.
            unsafe { staging.address(slot).add(4097).write(7) };
            if is_locked {
                // SAFETY: changes no contents.
                let locked =
                    unsafe { rustix::mm::mlock(staging.address(slot).cast(), HUGE_PAGE_BYTES) };
                if let Err(errno) = locked {
                    eprintln!("skipped: no memory can be locked here: {errno}");
                    continue;
                }
            }
            staging.give_back(slot, false);
            let slot = staging.take(1).unwrap();
            // SAFETY: the slot is this test's.
            assert_eq!(unsafe { *staging.address(slot).add(4097) }, 0, "locked: {is_locked}");
        }
    }
}
