//! Callbacks around forks of this process.

use std::sync::OnceLock;

/// Pair of callbacks, called in the forking thread.
#[derive(Clone, Copy)]
pub(crate) struct ForkCallbacks {
    pub(crate) before: fn(),
    /// Called in the parent and in the child.
    pub(crate) after: fn(),
}

static CALLBACKS: OnceLock<ForkCallbacks> = OnceLock::new();

/// Registers callbacks for each fork. The process has one pair, the first registered.
pub(crate) fn call(around: ForkCallbacks) {
    let mut is_first = false;
    CALLBACKS.get_or_init(|| {
        is_first = true;
        around
    });
    if is_first {
        // SAFETY: the handlers are functions of this library and live as long as it does.
        // Registration fails only without memory. Forks are then not noticed, and children lack the
        // memory (`MADV_DONTFORK`).
        unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) };
    }
}

extern "C" fn before() {
    if let Some(around) = CALLBACKS.get() {
        (around.before)();
    }
}

extern "C" fn after() {
    if let Some(around) = CALLBACKS.get() {
        (around.after)();
    }
}
