//! Keeping the shim from catching itself, and from being noticed: what it calls is not caught, `errno` is as it was, and no panic leaves it.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

struct Leave {
    errno: i32,
}

impl Drop for Leave {
    fn drop(&mut self) {
        let _ = INSIDE.try_with(|inside| inside.set(false));
        set_errno(self.errno);
    }
}

/// Whether this thread is in the shim already: a signal's handler, or the program's allocator, called by the shim.
pub(crate) fn is_inside() -> bool {
    INSIDE.try_with(Cell::get).unwrap_or(true)
}

/// Does some work of the shim's; `None` if this thread does some already or is one that loads, or if it failed: the caller goes on as if there were no shim.
pub(crate) fn within<T>(work: impl FnOnce() -> T) -> Option<T> {
    if evermap_load::is_loading_thread()
        || INSIDE.try_with(|inside| inside.replace(true)).unwrap_or(true)
    {
        return None;
    }
    let _leave = Leave { errno: errno() };
    catch_unwind(AssertUnwindSafe(work)).ok()
}

pub(crate) fn errno() -> i32 {
    // SAFETY: the address is this thread's own, always.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn set_errno(errno: i32) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}
