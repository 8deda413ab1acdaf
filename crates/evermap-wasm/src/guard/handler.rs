//! The signal handler. Code here must not allocate or lock, and must not call functions that do.
//!
//! | fault in a watched window | action | next |
//! |---|---|---|
//! | SIGBUS | maps an inaccessible page there | the access is repeated and raises SIGSEGV |
//! | SIGSEGV of guest code | none: wasmtime's handler runs first | the guest traps |
//! | SIGSEGV of host code | maps an anonymous zero page there | the access succeeds |
//!
//! The file is never written: stores go to the new page, which is not part of the object's mapping.
//! All other faults go to the previously installed handler.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use super::{SLOTS_OF_PROCESS, Slot};

const PAGE_BYTES: usize = 4096;

/// The previously installed actions for the two signals.
struct Previous {
    segv: libc::sigaction,
    bus: libc::sigaction,
}

static PREVIOUS: OnceLock<Previous> = OnceLock::new();

/// # Safety
/// Call once per process.
pub(super) unsafe fn install() -> std::io::Result<()> {
    // Both are read first, because a handler can need them as soon as it is installed.
    let previous = Previous { segv: action_of(libc::SIGSEGV)?, bus: action_of(libc::SIGBUS)? };
    let _ = PREVIOUS.set(previous);
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: all zeros is a valid `sigaction`.
        let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        action.sa_sigaction = on_fault as *const () as usize;
        // SA_ONSTACK: the fault can be an overflow of the ordinary stack. SA_NODEFER: the response
        // to SIGBUS raises SIGSEGV inside the handler.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_ONSTACK;
        // SAFETY: `on_fault` has the type that SA_SIGINFO requires, and is async-signal-safe.
        if unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Returns true if this handler is the first one for SIGSEGV.
pub(super) fn is_on_top() -> bool {
    action_of(libc::SIGSEGV)
        .is_ok_and(|action| action.sa_sigaction == on_fault as *const () as usize)
}

fn action_of(signal: c_int) -> std::io::Result<libc::sigaction> {
    let mut action = MaybeUninit::zeroed();
    // SAFETY: only reads the current action, and writes it to `action`.
    if unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: `sigaction` succeeded, so it has written `action`.
    Ok(unsafe { action.assume_init() })
}

extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid siginfo, which has an address for these two signals.
    let address = unsafe { (*info).si_addr() } as usize;
    // The interrupted code must find its `errno` unchanged.
    // SAFETY: points to this thread's `errno`.
    let errno = unsafe { *libc::__errno_location() };
    let answered = slot_of(address).is_some_and(|slot| answer(slot, signal, address));
    // SAFETY: points to this thread's `errno`.
    unsafe { *libc::__errno_location() = errno };
    if !answered {
        call_previous(signal, info, context);
    }
}

fn slot_of(address: usize) -> Option<&'static Slot> {
    SLOTS_OF_PROCESS.iter().find(|slot| slot.watches(address))
}

fn answer(slot: &Slot, signal: c_int, address: usize) -> bool {
    let (fault, rights) = match signal {
        libc::SIGBUS => (1, libc::PROT_NONE),
        _ => (2, libc::PROT_READ | libc::PROT_WRITE),
    };
    let page = (address / PAGE_BYTES * PAGE_BYTES) as *mut c_void;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: the page lies in a guest's window, where the host allows mappings of objects to be
    // replaced; the page there could not be used. `mmap` is async-signal-safe on Linux.
    if unsafe { libc::mmap(page, PAGE_BYTES, rights, flags, -1, 0) } != page {
        return false;
    }
    // Only the first fault is reported.
    if slot.fault.compare_exchange(0, fault, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
        slot.address.store(address, Ordering::Relaxed);
    }
    let engine = slot.engine.load(Ordering::Acquire);
    // SAFETY: the engine lives while the slot watches its guest, and this thread runs that guest.
    if let Some(engine) = unsafe { engine.as_ref() } {
        // Async-signal-safe: one atomic addition.
        engine.increment_epoch();
    }
    true
}

/// Passes the signal to the previously installed handler.
fn call_previous(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let previous = PREVIOUS.get().map(|previous| match signal {
        libc::SIGBUS => &previous.bus,
        _ => &previous.segv,
    });
    match previous {
        Some(action)
            if action.sa_sigaction != libc::SIG_DFL && action.sa_sigaction != libc::SIG_IGN =>
        {
            if action.sa_flags & libc::SA_SIGINFO != 0 {
                type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
                // SAFETY: a handler installed with SA_SIGINFO has these parameters.
                let handler: Handler = unsafe { std::mem::transmute(action.sa_sigaction) };
                handler(signal, info, context);
            } else {
                // SAFETY: a handler installed without SA_SIGINFO has this parameter.
                let handler: extern "C" fn(c_int) =
                    unsafe { std::mem::transmute(action.sa_sigaction) };
                handler(signal);
            }
        }
        _ => {
            // The access is repeated and ends the process, as it would without this handler.
            // SAFETY: restores the default action; `signal` is async-signal-safe.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
}
