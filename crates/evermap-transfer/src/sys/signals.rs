//! Being told to stop by a signal.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// What the handler sets. A lock that is set once can be read in a signal handler: it is one atomic load then.
static CANCELLED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

extern "C" fn cancel(_signal: libc::c_int) {
    if let Some(cancelled) = CANCELLED.get() {
        cancelled.store(true, Ordering::Relaxed);
    }
}

/// For commands: makes a write past `RLIMIT_FSIZE` an error (`EFBIG`) instead of the end of the process. Programs that the command
/// starts have the signal as it was.
pub fn errors_for_size_limits() {
    extern "C" fn nothing(_signal: libc::c_int) {}
    // SAFETY: both structures are plain data for which zeros are a value; the handler does nothing.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        let set = libc::sigaction(libc::SIGXFSZ, &raw const action, &raw mut before) == 0;
        // Where it was ignored, it stays so for programs that the command starts. It is rarely: setting first is one
        // call less at the start of every command.
        if set && before.sa_sigaction != libc::SIG_DFL {
            libc::sigaction(libc::SIGXFSZ, &raw const before, std::ptr::null_mut());
        }
    }
}

/// For commands: makes SIGINT, SIGTERM and SIGHUP set a flag that ends transfers soon and in order. A second one of the same kind
/// ends the process at once. A signal that was ignored (as under `nohup`) stays so.
///
/// Calls that wait are interrupted, so that a transfer from a stream that is silent ends, too.
pub fn cancelled_by_signals() -> Arc<AtomicBool> {
    let cancelled = Arc::clone(CANCELLED.get_or_init(Arc::default));
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: both structures are plain data for which zeros are a value; the handler is a function that stores to an
        // atomic and does nothing else, which is allowed at any point of a program.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, std::ptr::null(), &raw mut before) != 0
                || before.sa_sigaction == libc::SIG_IGN
            {
                continue;
            }
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = cancel as extern "C" fn(libc::c_int) as usize;
            // No SA_RESTART: a call that waits shall return. Reset: the second signal is meant.
            action.sa_flags = libc::SA_RESETHAND;
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
    cancelled
}
