//! What runs in a signal handler. Nothing here allocates, locks, or calls what does.
//!
//! | fault in a watched window | answer | then |
//! |---|---|---|
//! | SIGBUS | an inaccessible page in its place | the access happens again, as SIGSEGV |
//! | SIGSEGV of guest code | (wasmtime's handler, above this one, has it) | a trap |
//! | SIGSEGV of host code | a page of zeros of its own in its place | the access is done |
//!
//! The file is never written: what is stored goes to the new page, which the object's mapping does
//! not have. All other faults go to whoever was there before.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use super::{SLOTS_OF_PROCESS, Slot};

const PAGE_BYTES: usize = 4096;

/// What was installed before us, for each of the two signals.
struct Before {
    segv: libc::sigaction,
    bus: libc::sigaction,
}

static BEFORE: OnceLock<Before> = OnceLock::new();

/// # Safety
/// Once in a process.
pub(super) unsafe fn install() -> std::io::Result<()> {
    // Both are read first: from the moment when a handler is there, it may need them.
    let before = Before { segv: action_of(libc::SIGSEGV)?, bus: action_of(libc::SIGBUS)? };
    let _ = BEFORE.set(before);
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: all zeros is a valid `sigaction`.
        let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        action.sa_sigaction = on_fault as *const () as usize;
        // On the alternative stack: the fault may be an overflow of the ordinary one. Not blocked
        // meanwhile: the first answer to SIGBUS raises SIGSEGV.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_ONSTACK;
        // SAFETY: a handler of the right kind, which keeps to what handlers may do.
        if unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Is ours the handler that sees SIGSEGV first?
pub(super) fn is_on_top() -> bool {
    action_of(libc::SIGSEGV)
        .is_ok_and(|action| action.sa_sigaction == on_fault as *const () as usize)
}

fn action_of(signal: c_int) -> std::io::Result<libc::sigaction> {
    let mut action = MaybeUninit::zeroed();
    // SAFETY: asks only, and writes a `sigaction`.
    if unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: written just above.
    Ok(unsafe { action.assume_init() })
}

extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives a siginfo, which for these two signals has an address.
    let address = unsafe { (*info).si_addr() } as usize;
    // What a signal interrupts must not see another `errno` afterwards.
    // SAFETY: this thread's own.
    let errno = unsafe { *libc::__errno_location() };
    let answered = slot_of(address).is_some_and(|slot| answer(slot, signal, address));
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    if !answered {
        go_on(signal, info, context);
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
    // SAFETY: the page lies in a guest's window, which its host lends to whoever maps objects there;
    // what was there could not be used. A plain system call.
    if unsafe { libc::mmap(page, PAGE_BYTES, rights, flags, -1, 0) } != page {
        return false;
    }
    // The first fault is the one to tell.
    if slot.fault.compare_exchange(0, fault, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
        slot.address.store(address, Ordering::Relaxed);
    }
    let engine = slot.engine.load(Ordering::Acquire);
    // SAFETY: the slot's engine lives while its guest is watched, and this is a fault of that guest.
    if let Some(engine) = unsafe { engine.as_ref() } {
        // One atomic addition.
        engine.increment_epoch();
    }
    true
}

/// To whoever was there before.
fn go_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let before = BEFORE.get().map(|before| match signal {
        libc::SIGBUS => &before.bus,
        _ => &before.segv,
    });
    match before {
        Some(action)
            if action.sa_sigaction != libc::SIG_DFL && action.sa_sigaction != libc::SIG_IGN =>
        {
            if action.sa_flags & libc::SA_SIGINFO != 0 {
                type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
                // SAFETY: with this flag a handler has these parameters.
                let handler: Handler = unsafe { std::mem::transmute(action.sa_sigaction) };
                handler(signal, info, context);
            } else {
                // SAFETY: without it, this one.
                let handler: extern "C" fn(c_int) =
                    unsafe { std::mem::transmute(action.sa_sigaction) };
                handler(signal);
            }
        }
        _ => {
            // The access happens again, and ends the process as it would have.
            // SAFETY: puts the default back; allowed in a handler.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
}
