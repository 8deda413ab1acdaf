//! Forks: children get complete images and a consistent table.
//!
//! Children of `vfork`, `posix_spawn` or a bare `clone` are not covered: they execute another
//! program or share the parent's memory.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::inside::{is_inside, within};
use crate::loading::{finish, lock};

thread_local! {
    static HOLDS: Cell<bool> = const { Cell::new(false) };
}

static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Returns true in the process that owns the images, false in a child of `vfork` in its memory.
pub(crate) fn is_own_process() -> bool {
    PROCESS.load(Ordering::Relaxed) == std::process::id()
}

/// Installs the fork handlers.
pub(crate) fn watch() {
    PROCESS.store(std::process::id(), Ordering::Relaxed);
    // SAFETY: the handlers are functions of this library, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after_in_child)) };
}

extern "C" fn before() {
    // A signal handler that forks while its thread is in the shim: that thread may hold the lock.
    if is_inside() {
        return;
    }
    let is_held = within(|| {
        loop {
            finish(|_| true);
            let held = lock().lock();
            if held.loading.is_empty() {
                // Unlocked after the fork.
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
        // The parent reports its own reads.
        let _ = within(|| crate::loading::state().reads.clear());
    }
}
