//! Recursion guard: calls made by the shim are not intercepted, `errno` is preserved, and no panic
//! leaves it.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

struct Restore {
    errno: i32,
}

impl Drop for Restore {
    fn drop(&mut self) {
        let _ = INSIDE.try_with(|inside| inside.set(false));
        set_errno(self.errno);
    }
}

/// Returns true if this thread is already in the shim, for example in a signal handler or in the
/// program's allocator.
pub(crate) fn is_inside() -> bool {
    INSIDE.try_with(Cell::get).unwrap_or(true)
}

/// Runs work of the shim. Returns `None` if this thread is already in the shim or is a loading
/// thread, or if the work panics. The caller then proceeds without the shim.
pub(crate) fn within<T>(work: impl FnOnce() -> T) -> Option<T> {
    if evermap_load::is_loading_thread()
        || INSIDE.try_with(|inside| inside.replace(true)).unwrap_or(true)
    {
        return None;
    }
    let _restore = Restore { errno: errno() };
    catch_unwind(AssertUnwindSafe(work)).ok()
}

pub(crate) fn errno() -> i32 {
    // SAFETY: the address is always valid for this thread.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn set_errno(errno: i32) {
    // SAFETY: the address is always valid for this thread.
    unsafe { *libc::__errno_location() = errno };
}
