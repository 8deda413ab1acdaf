//! Forks: children have complete images, and a table that nobody was changing.
//!
//! A child of `vfork`, `posix_spawn` or a bare `clone` is not concerned: it executes something else, or has the parent's memory.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::inside::{is_inside, within};
use crate::loading::{finish, lock};

thread_local! {
    static HOLDS: Cell<bool> = const { Cell::new(false) };
}

static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Whether this is the process that has the images, and not a child of `vfork` in its memory.
pub(crate) fn is_own_process() -> bool {
    PROCESS.load(Ordering::Relaxed) == std::process::id()
}

/// From now on.
pub(crate) fn watch() {
    PROCESS.store(std::process::id(), Ordering::Relaxed);
    // SAFETY: the handlers are functions of this library, which stays.
    unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after_in_child)) };
}

extern "C" fn before() {
    // A signal's handler that forks while its thread is in here: that thread may have the lock.
    if is_inside() {
        return;
    }
    let is_held = within(|| {
        loop {
            finish(|_| true);
            let held = lock().lock();
            if held.loading.is_empty() {
                // Given back after the fork.
                std::mem::forget(held);
                return;
            }
        }
    });
    let _ = HOLDS.try_with(|holds| holds.set(is_held.is_some()));
}

extern "C" fn after() {
    if HOLDS.try_with(|holds| holds.replace(false)).unwrap_or(false) {
        lock().release();
    }
}

extern "C" fn after_in_child() {
    if HOLDS.try_with(|holds| holds.replace(false)).unwrap_or(false) {
        lock().release();
        PROCESS.store(std::process::id(), Ordering::Relaxed);
        // The parent tells of what it has read.
        let _ = within(|| crate::loading::state().reads.clear());
    }
}
