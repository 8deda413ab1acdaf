//! The fault guard: a fault in a guest's window ends that guest and nobody else.
//!
//! wasmtime turns faults of a guest's own loads and stores into traps. Bulk memory instructions and
//! host functions fault in host code, and a file that was cut short raises SIGBUS: either would
//! end the process. The guard answers such a fault with memory, so that the access can be
//! done, and marks the guest as dead; the next call into or out of the guest traps.
//!
//! [`handler`] is what runs in a signal handler. It reads the slots here, which it may: all of a slot
//! is atomic, and a slot's guest is the one that is running on the thread that faults.

mod handler;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use evermap::guest::GuestWindow;
use wasmtime::Engine;

use crate::error::{Error, Result};

/// Guests that can be watched at a time in one process.
const SLOTS: usize = 1024;

/// One guest's window, as the handler sees it.
struct Slot {
    taken: AtomicBool,
    /// Where the window begins in this process; 0 when nothing is watched.
    start: AtomicUsize,
    /// What happened, [`Fault`] as a number; 0 for nothing.
    fault: AtomicU32,
    /// Where.
    address: AtomicUsize,
    /// Whose epoch is advanced then: its guest may be in a loop that calls nothing.
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
    /// Is this an address of the window that is watched? That is one number, so that a guest that comes
    /// or goes meanwhile, in another thread, is seen as a whole or not at all: the start of one window
    /// with the end of another's would be one in which the handler replaces somebody else's memory.
    fn watches(&self, address: usize) -> bool {
        let start = self.start.load(Ordering::Acquire);
        start != 0 && address.wrapping_sub(start) < window_bytes()
    }
}

/// Every guest's window is as long.
fn window_bytes() -> usize {
    let window = GuestWindow::default().addresses();
    (window.end - window.start) as usize
}

/// What a guest died of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A page of an object that the file no longer has, or that the disk could not read.
    Bus,
    /// A page without the right that host code needed, on the guest's behalf.
    Segmentation,
}

/// The handlers for SIGBUS and SIGSEGV, installed for the life of the process.
#[derive(Clone, Copy, Debug)]
pub struct FaultGuard(());

impl FaultGuard {
    /// Installs the handlers, once. Before the first [`Engine`] of the process is made: wasmtime's
    /// handler has to lie above this one, so that a guest's own faults stay traps. Making a
    /// [`Sandbox`](crate::Sandbox) does this.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn install() -> Result<FaultGuard> {
        static REFUSED: OnceLock<Option<i32>> = OnceLock::new();
        let refused = REFUSED.get_or_init(|| {
            // SAFETY: the handler is async-signal-safe, see there, and goes on to those that were
            // there before for every fault that is not its own.
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

    /// After an engine was made: does its handler lie above the guard's?
    ///
    /// # Errors
    /// `GuardTooLate`.
    pub(crate) fn check_order(self) -> Result<()> {
        if handler::is_on_top() { Err(Error::GuardTooLate) } else { Ok(()) }
    }
}

/// A guest's window while it is watched.
#[derive(Debug)]
pub(crate) struct Watched {
    slot: &'static Slot,
    /// Freed after the slot has forgotten it.
    engine: *mut Engine,
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot").field("start", &self.start).finish_non_exhaustive()
    }
}

// SAFETY: the engine behind the pointer is one itself, and the rest is atomic.
unsafe impl Send for Watched {}
// SAFETY: as above.
unsafe impl Sync for Watched {}

impl Watched {
    /// Watches the window that begins at this address of the process.
    pub(crate) fn new(start: usize, engine: &Engine) -> Result<Watched> {
        let free = |slot: &&Slot| {
            let claimed =
                slot.taken.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed);
            claimed.is_ok()
        };
        let slot = SLOTS_OF_PROCESS.iter().find(free).ok_or(Error::Engine {
            why: "1,024 guests are open in this process already",
            remedy: "end some of them, or use another process",
        })?;
        let engine = Box::into_raw(Box::new(engine.clone()));
        slot.fault.store(0, Ordering::Relaxed);
        slot.engine.store(engine, Ordering::Release);
        // Last: from here on a handler looks at the rest.
        slot.start.store(start, Ordering::Release);
        Ok(Watched { slot, engine })
    }

    /// What happened to the guest, and at which address of its window.
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

impl Drop for Watched {
    fn drop(&mut self) {
        self.slot.start.store(0, Ordering::Release);
        self.slot.engine.store(std::ptr::null_mut(), Ordering::Release);
        // SAFETY: made by `Box::into_raw` in `new`. A handler looks at it only for a fault in the
        // window, by the thread that runs the guest, which has ended.
        drop(unsafe { Box::from_raw(self.engine) });
        self.slot.taken.store(false, Ordering::Release);
    }
}
