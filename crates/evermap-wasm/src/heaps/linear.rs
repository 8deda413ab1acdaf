//! Access of the host to an instance's linear memory.
//!
//! Objects are mapped into [`LinearMemory`]. Names and results of calls go through
//! [`CallerMemory`]. It also works for a module that cannot map objects, so the module can read the
//! reason.
//!
//! Bytes are copied through raw pointers: a Rust slice over memory that guest threads or another
//! process can write would be undefined behaviour. These copies never touch the window, where an
//! object's pages could fault.

use std::ops::Range;
use std::ptr::NonNull;

use evermap::guest::{GuestMemory, GuestWindow, Unmapped};
use wasmtime::{Caller, Engine, Extern};

use crate::codes::{Code, Refusal};
use crate::guard::WatchedWindow;
use crate::layout;

/// A linear memory. It never moves, because its reservation has the maximum length.
pub(crate) struct LinearMemory {
    memory: GuestMemory,
    /// The window's slot in the fault guard; `None` without a guard.
    watched_window: Option<WatchedWindow>,
}

impl LinearMemory {
    /// Wraps the memory at `base` with a length of `bytes`.
    ///
    /// # Safety
    /// The memory is private and anonymous, and neither moves nor shrinks during the life of the
    /// value. No Rust reference points into its window.
    pub(crate) unsafe fn new(
        base: NonNull<u8>,
        bytes: usize,
        unmapped: Unmapped,
        guarded_by: Option<&Engine>,
    ) -> Result<LinearMemory, Refusal> {
        let window = GuestWindow::default();
        let Range { start, end } = window.addresses();
        if (bytes as u64) < end {
            let why = format!(
                "the module's memory has {bytes:#x} bytes and ends below the window {start:#x}..{end:#x}"
            );
            return Err(layout::refusal(&why));
        }
        // SAFETY: the caller keeps the memory private, anonymous and in place, and no reference
        // points into its window.
        let memory = unsafe { GuestMemory::new(base, window, unmapped) }
            .map_err(|e| Refusal::new(Code::MemoryLayout, e.to_string()))?;
        let here = base.as_ptr().addr();
        let watched_window = guarded_by
            .map(|engine| WatchedWindow::new(here + start as usize, engine))
            .transpose()?;
        Ok(LinearMemory { memory, watched_window })
    }

    pub(crate) fn memory(&self) -> &GuestMemory {
        &self.memory
    }

    pub(crate) fn watched_window(&self) -> Option<&WatchedWindow> {
        self.watched_window.as_ref()
    }
}

/// Message for a module that exports no memory; only its host can read it.
pub(crate) const NO_MEMORY: &str = "the module does not export a memory as `memory`, so it cannot receive any data; export one, as programs for wasm32-wasip1 do";

/// The memory of a guest during one call of an import.
pub(super) struct CallerMemory {
    /// Base and length; `None` if the module does not export a memory.
    bytes: Option<(NonNull<u8>, u64)>,
    /// True if objects can be mapped in its window.
    has_window: bool,
}

impl CallerMemory {
    /// Finds the caller's export `memory`, shared or not.
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

    /// Allows addresses in the window, for a guest that cannot map objects.
    pub(super) fn without_window(self) -> CallerMemory {
        CallerMemory { has_window: false, ..self }
    }

    /// Copies bytes from the guest's memory outside of the window.
    pub(super) fn copy_in(&self, address: u32, length: u32) -> Result<Vec<u8>, Refusal> {
        let from = self.checked(address, length)?;
        let mut bytes = vec![0; length as usize];
        // SAFETY: `checked` found the range inside the memory, the vector has the same length, and
        // the memory does not move during the call.
        unsafe { from.copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
        Ok(bytes)
    }

    /// Copies bytes into the guest's memory outside of the window.
    pub(super) fn copy_out(&self, bytes: &[u8], address: u32) -> Result<(), Refusal> {
        let to = self.checked(address, bytes.len() as u32)?;
        // SAFETY: `checked` found the range inside the memory, which does not move during the call.
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
            // SAFETY: `end <= bytes`, so the address is inside the memory.
            return Ok(unsafe { base.as_ptr().add(address as usize) });
        }
        let what = if inside { "in the window" } else { "outside of memory" };
        let words = format!(
            "{length} bytes at {address:#x} lie {what}; pass an address in the guest's memory, outside the window"
        );
        Err(Refusal::new(Code::InvalidArgument, words))
    }
}
