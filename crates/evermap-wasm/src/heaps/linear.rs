//! An instance's linear memory, as far as the host touches it.
//!
//! Bytes go in and out by copies through raw pointers: a Rust slice over memory that a guest's
//! threads, or another process, may write would be undefined. The window is left alone, so
//! that no copy of the host's can meet an object's pages.

use std::ops::Range;
use std::ptr::NonNull;

use evermap::guest::{GuestMemory, GuestWindow, Unmapped};
use wasmtime::Engine;

use crate::codes::{Code, Refusal};
use crate::guard::Watched;

/// The flag that puts the window where it is.
const LINK_FLAG: &str = "link it with --global-base=1342177280 (and --stack-first)";

/// Where a linear memory is. It stays there: its reservation is as long as it can get.
pub(crate) struct Linear {
    base: NonNull<u8>,
    /// How long it is now; it never gets shorter.
    bytes: u64,
    memory: GuestMemory,
    /// Its window, as far as the fault guard knows it; none where there is no guard.
    watched: Option<Watched>,
}

// SAFETY: the pointer is to the instance's memory, which goes wherever its store goes; it is used
// by calls of the instance only.
unsafe impl Send for Linear {}
// SAFETY: as above.
unsafe impl Sync for Linear {}

impl Linear {
    /// The memory at `base` that has `bytes` now.
    ///
    /// # Safety
    /// The memory is private and anonymous, lies there and is as long at least as long as the value,
    /// and nobody has a Rust reference into its window.
    pub(crate) unsafe fn new(
        base: NonNull<u8>,
        bytes: usize,
        unmapped: Unmapped,
        guarded_by: Option<&Engine>,
    ) -> Result<Linear, Refusal> {
        let window = GuestWindow::default();
        let Range { start, end } = window.addresses();
        if (bytes as u64) < end {
            let words = format!(
                "the module's memory has {bytes:#x} bytes and ends below the window {start:#x}..{end:#x}; {LINK_FLAG}"
            );
            return Err(Refusal::new(Code::MemoryLayout, words));
        }
        // SAFETY: the caller's promise.
        let memory = unsafe { GuestMemory::new(base, window, unmapped) }
            .map_err(|e| Refusal::new(Code::MemoryLayout, e.to_string()))?;
        let here = base.as_ptr().addr();
        let watched =
            guarded_by.map(|engine| Watched::new(here + start as usize, engine)).transpose()?;
        Ok(Linear { base, bytes: bytes as u64, memory, watched })
    }

    /// The memory has grown.
    pub(super) fn set_bytes(&mut self, bytes: usize) {
        self.bytes = bytes as u64;
    }

    pub(crate) fn memory(&self) -> &GuestMemory {
        &self.memory
    }

    pub(crate) fn watched(&self) -> Option<&Watched> {
        self.watched.as_ref()
    }

    /// Copies bytes of the guest's that lie outside of the window.
    pub(super) fn copy_in(&self, address: u32, length: u32) -> Result<Vec<u8>, Refusal> {
        let from = self.checked(address, length)?;
        let mut bytes = vec![0; length as usize];
        // SAFETY: inside the memory, as checked; the vector is as long.
        unsafe { from.copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
        Ok(bytes)
    }

    /// Copies bytes to where a guest wants them, outside of the window.
    pub(super) fn copy_out(&self, bytes: &[u8], address: u32) -> Result<(), Refusal> {
        let to = self.checked(address, bytes.len() as u32)?;
        // SAFETY: inside the memory, as checked.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    fn checked(&self, address: u32, length: u32) -> Result<*mut u8, Refusal> {
        let window = self.memory.window().addresses();
        let (start, end) = (u64::from(address), u64::from(address) + u64::from(length));
        let inside = end <= self.bytes;
        let apart = end <= window.start || start >= window.end;
        if inside && apart {
            // SAFETY: inside the memory.
            return Ok(unsafe { self.base.as_ptr().add(address as usize) });
        }
        let what = if inside { "in the window" } else { "outside of memory" };
        let words =
            format!("{length} bytes at {address:#x} lie {what}; pass memory of the guest's own");
        Err(Refusal::new(Code::InvalidArgument, words))
    }
}
