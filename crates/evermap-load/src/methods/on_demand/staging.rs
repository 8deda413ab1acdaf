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

/// Slots of one window each.
#[derive(Debug)]
pub(crate) struct Staging {
    region: Region,
    slots: Vec<Contents>,
}

impl Staging {
    pub(crate) fn new(slots: usize) -> Result<Staging, Errno> {
        let region = Region::private(slots * HUGE_PAGE_BYTES, true)?;
        // Pages that a child of the process shares cannot be moved.
        let _ = region.advise(0, region.bytes(), Harmless::DontFork);
        Ok(Staging { region, slots: vec![Contents::Gone; slots] })
    }

    /// Gives a window a slot that is free, and empty.
    pub(crate) fn take(&mut self, window: usize) -> Option<usize> {
        let slot =
            self.slots.iter().position(|contents| !matches!(contents, Contents::Window(_)))?;
        if self.slots[slot] == Contents::Stale {
            // SAFETY: the slot is free: nothing in it counts, and nobody uses it.
            let _ = unsafe { forget(self.address(slot) as usize, HUGE_PAGE_BYTES) };
        }
        self.slots[slot] = Contents::Window(window);
        Some(slot)
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
