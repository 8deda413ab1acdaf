//! The fault guard: a fault in a guest's window ends that guest only.
//!
//! wasmtime turns faults of a guest's own loads and stores into traps. Bulk memory instructions and
//! host functions fault in host code, and a truncated file raises SIGBUS: either would end the
//! process. The guard maps a page at the fault, so that the access can complete, and marks the
//! guest as dead. The next call into or out of the guest traps.
//!
//! [`handler`] runs in signal handlers and reads the slots here. That is safe: all fields of a slot
//! are atomic, and the faulting thread is running the slot's guest.

mod handler;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use evermap::guest::GuestWindow;
use wasmtime::Engine;

use crate::error::{Error, Result};

/// Maximum number of watched guests in a process.
const SLOTS: usize = 1024;

/// A guest's window, as the handler sees it.
struct Slot {
    taken: AtomicBool,
    /// Address of the window in this process; 0 if the slot watches nothing.
    start: AtomicUsize,
    /// The first [`Fault`] as a number; 0 for none.
    fault: AtomicU32,
    /// Address of the first fault.
    address: AtomicUsize,
    /// The engine whose epoch the handler advances, because the guest may be in a loop without
    /// calls.
    engine: AtomicPtr<Engine>,
}

static SLOTS_OF_PROCESS: [Slot; SLOTS] = [const {
    Slot {
        taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        fault: AtomicU32::new(0),
        address: AtomicUsize::new(0),
        engine: AtomicPtr::new(std::ptr::null_mut()),
    }
}; SLOTS];

impl Slot {
    /// Returns true if the address is in the watched window. The window is one atomic number, so a
    /// slot that another thread takes or frees at the same time is seen as a whole or not at all.
    /// With a separate end, the handler could combine the start of one window with the end of
    /// another, and replace memory outside both.
    fn watches(&self, address: usize) -> bool {
        let start = self.start.load(Ordering::Acquire);
        start != 0 && address.wrapping_sub(start) < window_bytes()
    }
}

/// Returns the length of a window, the same for all guests.
fn window_bytes() -> usize {
    let window = GuestWindow::default().addresses();
    (window.end - window.start) as usize
}

/// The kind of fault that ended a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// SIGBUS: the file no longer has the object's page, or the disk could not read it.
    Bus,
    /// SIGSEGV: host code, working for the guest, touched a page without the needed right.
    Segmentation,
}

/// The handlers for SIGBUS and SIGSEGV, installed for the life of the process.
#[derive(Clone, Copy, Debug)]
pub struct FaultGuard(());

impl FaultGuard {
    /// Installs the handlers; later calls do nothing. Call it before the process creates its first
    /// [`Engine`]: wasmtime's handler must run before this one, so that a guest's own faults stay
    /// traps. Opening a [`Sandbox`](crate::Sandbox) calls it.
    ///
    /// # Errors
    /// `Io` if the kernel refuses.
    pub fn install() -> Result<FaultGuard> {
        static REFUSED: OnceLock<Option<i32>> = OnceLock::new();
        let refused = REFUSED.get_or_init(|| {
            // SAFETY: the `OnceLock` runs this once. The handler is async-signal-safe, and passes
            // faults outside of watched windows to the previously installed handlers.
            let installed = unsafe { handler::install() };
            installed.err().map(|error| error.raw_os_error().unwrap_or(libc::EINVAL))
        });
        match refused {
            None => Ok(FaultGuard(())),
            Some(errno) => Err(Error::Io {
                path: "SIGBUS and SIGSEGV".into(),
                doing: "install handlers for",
                source: std::io::Error::from_raw_os_error(*errno),
            }),
        }
    }

    /// Checks, after an engine was created, that wasmtime's handler runs before the guard's.
    ///
    /// # Errors
    /// `GuardTooLate`.
    pub(crate) fn check_order(self) -> Result<()> {
        if handler::is_on_top() { Err(Error::GuardTooLate) } else { Ok(()) }
    }
}

/// A guest's window while it is watched.
#[derive(Debug)]
pub(crate) struct WatchedWindow {
    slot: &'static Slot,
    /// Freed after the slot is cleared.
    engine: *mut Engine,
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot").field("start", &self.start).finish_non_exhaustive()
    }
}

// SAFETY: the pointer owns an `Engine`, which is `Send` and `Sync`; the slot's fields are atomic.
unsafe impl Send for WatchedWindow {}
// SAFETY: the pointer owns an `Engine`, which is `Send` and `Sync`; the slot's fields are atomic.
unsafe impl Sync for WatchedWindow {}

impl WatchedWindow {
    /// Watches the window at this address of the process.
    pub(crate) fn new(start: usize, engine: &Engine) -> Result<WatchedWindow> {
        let free = |slot: &&Slot| {
            let claimed =
                slot.taken.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed);
            claimed.is_ok()
        };
        let slot = SLOTS_OF_PROCESS.iter().find(free).ok_or(Error::Engine {
            why: "this process already has 1,024 guests",
            remedy: "end some of them, or use another process",
        })?;
        let engine = Box::into_raw(Box::new(engine.clone()));
        slot.fault.store(0, Ordering::Relaxed);
        slot.engine.store(engine, Ordering::Release);
        // Stored last: from now on the handler reads the other fields.
        slot.start.store(start, Ordering::Release);
        Ok(WatchedWindow { slot, engine })
    }

    /// Returns the first fault and its offset in the window.
    pub(crate) fn fault(&self) -> Option<(Fault, usize)> {
        let fault = match self.slot.fault.load(Ordering::Acquire) {
            0 => return None,
            1 => Fault::Bus,
            _ => Fault::Segmentation,
        };
        let start = self.slot.start.load(Ordering::Relaxed);
        Some((fault, self.slot.address.load(Ordering::Relaxed).wrapping_sub(start)))
    }
}

impl Drop for WatchedWindow {
    fn drop(&mut self) {
        self.slot.start.store(0, Ordering::Release);
        self.slot.engine.store(std::ptr::null_mut(), Ordering::Release);
        // SAFETY: made by `Box::into_raw` in `new`. The handler reads it only for a fault in the
        // window, on the thread that runs the guest, and the guest has ended.
        drop(unsafe { Box::from_raw(self.engine) });
        self.slot.taken.store(false, Ordering::Release);
    }
}
