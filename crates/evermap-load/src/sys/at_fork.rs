//! What has to be done before a process forks.

use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

static BEFORE: AtomicUsize = AtomicUsize::new(0);
static REGISTERED: Once = Once::new();

/// Has `before` called in a thread that forks, before it does. One function for the process, the first that is given.
pub(crate) fn call_before(before: fn()) {
    REGISTERED.call_once(|| {
        BEFORE.store(before as usize, Ordering::Release);
        // SAFETY: the handler is a function of this library, and lives as long as it. No memory for the handler's list: forks
        // are not noticed then, and children don't have the memory (`MADV_DONTFORK`).
        unsafe { libc::pthread_atfork(Some(prepare), None, None) };
    });
}

extern "C" fn prepare() {
    let before = BEFORE.load(Ordering::Acquire);
    if before != 0 {
        // SAFETY: stored by `call_before` from a function of this type.
        let before: fn() = unsafe { std::mem::transmute::<usize, fn()>(before) };
        before();
    }
}
