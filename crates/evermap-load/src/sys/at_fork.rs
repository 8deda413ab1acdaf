//! What has to be done around a fork of this process.

use std::sync::OnceLock;

/// Called in the thread that forks.
#[derive(Clone, Copy)]
pub(crate) struct Around {
    pub(crate) before: fn(),
    /// In the parent, and in the child.
    pub(crate) after: fn(),
}

static AROUND: OnceLock<Around> = OnceLock::new();

/// Has these called around each fork. One pair for the process, the first that is given.
pub(crate) fn call(around: Around) {
    let mut is_first = false;
    AROUND.get_or_init(|| {
        is_first = true;
        around
    });
    if is_first {
        // SAFETY: the handlers are functions of this library, and live as long as it. No memory for the handlers' list: forks
        // are not noticed then, and children don't have the memory (`MADV_DONTFORK`).
        unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) };
    }
}

extern "C" fn before() {
    if let Some(around) = AROUND.get() {
        (around.before)();
    }
}

extern "C" fn after() {
    if let Some(around) = AROUND.get() {
        (around.after)();
    }
}
