//! An instance's linear memory, as far as the host touches it.
//!
//! Objects are mapped into [`Linear`]. Names and answers of a call go through [`CallerMemory`], which
//! works also for a module into which no object can be mapped, so that the module can read why.
//!
//! Bytes go in and out by copies through raw pointers: a Rust slice over memory that a guest's
//! threads, or another process, may write would be undefined. The window is left alone, so
//! that no copy of the host's can meet an object's pages.

use std::ops::Range;
use std::ptr::NonNull;

use evermap::guest::{GuestMemory, GuestWindow, Unmapped};
use wasmtime::{Caller, Engine, Extern};

use crate::codes::{Code, Refusal};
use crate::guard::Watched;
use crate::layout;

/// Where a linear memory is. It stays there: its reservation is as long as it can get.
pub(crate) struct Linear {
    memory: GuestMemory,
    /// Its window, as far as the fault guard knows it; none where there is no guard.
    watched: Option<Watched>,
}

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
            let why = format!(
                "the module's memory has {bytes:#x} bytes and ends below the window {start:#x}..{end:#x}"
            );
            return Err(layout::refusal(&why));
        }
        // SAFETY: the caller's promise.
        let memory = unsafe { GuestMemory::new(base, window, unmapped) }
            .map_err(|e| Refusal::new(Code::MemoryLayout, e.to_string()))?;
        let here = base.as_ptr().addr();
        let watched =
            guarded_by.map(|engine| Watched::new(here + start as usize, engine)).transpose()?;
        Ok(Linear { memory, watched })
    }

    pub(crate) fn memory(&self) -> &GuestMemory {
        &self.memory
    }

    pub(crate) fn watched(&self) -> Option<&Watched> {
        self.watched.as_ref()
    }
}

/// Words for a module that exports no memory; only its host can read them.
pub(crate) const NO_MEMORY: &str = "the module exports no memory of its own as `memory`, so nothing can be passed to it; export one, as programs for wasm32-wasip1 do";

/// The memory of a guest during one call of an import.
pub(super) struct CallerMemory {
    /// Base and length; `None` if the module exports no memory.
    bytes: Option<(NonNull<u8>, u64)>,
    /// Objects may be mapped in its window.
    has_window: bool,
}

impl CallerMemory {
    /// Finds the memory that the caller exports as `memory`, shared or not.
    pub(super) fn of<T>(caller: &mut Caller<'_, T>) -> CallerMemory {
        let bytes = match caller.get_export("memory") {
            Some(Extern::Memory(memory)) => {
                NonNull::new(memory.data_ptr(&*caller)).zip(Some(memory.data_size(&*caller)))
            }
            Some(Extern::SharedMemory(memory)) => {
                let cells = memory.data();
                NonNull::new(cells.as_ptr().cast_mut().cast::<u8>()).zip(Some(cells.len()))
            }
            _ => None,
        };
        CallerMemory { bytes: bytes.map(|(base, length)| (base, length as u64)), has_window: true }
    }

    /// Allows addresses in the window, for a guest that has no objects there.
    pub(super) fn without_window(self) -> CallerMemory {
        CallerMemory { has_window: false, ..self }
    }

    /// Copies bytes of the guest's that lie outside of the window.
    pub(super) fn copy_in(&self, address: u32, length: u32) -> Result<Vec<u8>, Refusal> {
        let from = self.checked(address, length)?;
        let mut bytes = vec![0; length as usize];
        // SAFETY: inside the memory, as checked; the vector is as long. The memory stays where it is
        // during the call.
        unsafe { from.copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
        Ok(bytes)
    }

    /// Copies bytes to where a guest wants them, outside of the window.
    pub(super) fn copy_out(&self, bytes: &[u8], address: u32) -> Result<(), Refusal> {
        let to = self.checked(address, bytes.len() as u32)?;
        // SAFETY: as in `copy_in`.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    fn checked(&self, address: u32, length: u32) -> Result<*mut u8, Refusal> {
        let Some((base, bytes)) = self.bytes else {
            return Err(Refusal::new(Code::MemoryLayout, NO_MEMORY));
        };
        let window = GuestWindow::default().addresses();
        let (start, end) = (u64::from(address), u64::from(address) + u64::from(length));
        let inside = end <= bytes;
        let apart = !self.has_window || end <= window.start || start >= window.end;
        if inside && apart {
            // SAFETY: inside the memory.
            return Ok(unsafe { base.as_ptr().add(address as usize) });
        }
        let what = if inside { "in the window" } else { "outside of memory" };
        let words =
            format!("{length} bytes at {address:#x} lie {what}; pass memory of the guest's own");
        Err(Refusal::new(Code::InvalidArgument, words))
    }
}
