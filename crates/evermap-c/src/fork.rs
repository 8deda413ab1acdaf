//! Forked children: a child has none of its parent's objects, and is told so at every call.
//!
//! No call asks for the process's id: a handler that runs in the child sets a flag. Calls that go
//! by a thread's seat find theirs gone there and look at the flag only when they take a new one.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::{Failure, Result};
use crate::{seats, status};

/// This process was forked from one that used the library.
static FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
    seats::forget();
}

/// From now on a forked child is one.
pub fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // SAFETY: the handler stores to an atomic and to a thread-local without a destructor. It
        // fails only for want of memory; then a commit in the child is still refused further down.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

/// # Errors
/// `FORKED` in a child.
pub fn check() -> Result<()> {
    match FORKED.load(Ordering::Relaxed) {
        false => Ok(()),
        true => Err(Failure::new(
            status::FORKED,
            "this process was forked from one that used the library, and has none of its stores \
             and objects; exec a program that opens them itself",
        )),
    }
}
