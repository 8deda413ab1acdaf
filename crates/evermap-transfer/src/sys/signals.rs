//! Cancellation by signals.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Flag set by the handler. A `OnceLock` that is set can be read in a signal handler: the read is
/// one atomic load.
static CANCELLED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

extern "C" fn cancel(_signal: libc::c_int) {
    if let Some(cancelled) = CANCELLED.get() {
        cancelled.store(true, Ordering::Relaxed);
    }
}

/// For commands: turns a write beyond `RLIMIT_FSIZE` into an error (`EFBIG`) instead of a fatal
/// signal. Child programs start with the default action. Does nothing if the signal is not at its
/// default.
pub fn errors_for_size_limits() {
    extern "C" fn nothing(_signal: libc::c_int) {}
    // SAFETY: both structures are plain data for which zeros are a value; the handler does nothing.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        let set = libc::sigaction(libc::SIGXFSZ, &raw const action, &raw mut before) == 0;
        // Restores any action other than the default: a signal that was ignored stays ignored in
        // programs that the command starts. This is rare, so setting the action before looking
        // saves each command one call.
        if set && before.sa_sigaction != libc::SIG_DFL {
            libc::sigaction(libc::SIGXFSZ, &raw const before, std::ptr::null_mut());
        }
    }
}

/// For commands: returns a flag that SIGINT, SIGTERM and SIGHUP set, to cancel transfers in an
/// orderly way. A second signal of the same kind ends the process. Signals that were ignored (as
/// under `nohup`) stay ignored.
///
/// Blocking calls are interrupted, so a transfer from a silent stream ends too.
pub fn cancelled_by_signals() -> Arc<AtomicBool> {
    let cancelled = Arc::clone(CANCELLED.get_or_init(Arc::default));
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: both structures are plain data for which zeros are a value; the handler only
        // stores to an atomic, which is async-signal-safe.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, std::ptr::null(), &raw mut before) != 0
                || before.sa_sigaction == libc::SIG_IGN
            {
                continue;
            }
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = cancel as extern "C" fn(libc::c_int) as usize;
            // No SA_RESTART, so that blocking calls return. SA_RESETHAND, so that a second signal
            // is fatal.
            action.sa_flags = libc::SA_RESETHAND;
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
    cancelled
}
