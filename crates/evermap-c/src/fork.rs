//! Forked children: a child reads what it inherited and closes it. Every other call is refused.
//!
//! Calls that go by a thread's seat cost no look at the process: a handler that runs in the child
//! takes the seats away and marks the handles of sessions. A child of a bare `clone` runs no handler;
//! it is noticed by the calls that ask [`check`], and by [`inherited`].

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use evermap_core::__forks;

use crate::failure::{Failure, Result};
use crate::{handles, seats, status};

/// The handler ran: this process, or the one that it was forked from, is a child with handles.
static INHERITED: AtomicBool = AtomicBool::new(false);

extern "C" fn in_child() {
    INHERITED.store(true, Ordering::Relaxed);
    seats::forget();
    handles::inherit();
}

/// Has forks noticed from now on.
pub fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // First, so that its handler runs first in a child: sessions are readable then.
        __forks::watch();
        // SAFETY: the handler stores to atomics, and to a thread-local without a destructor. It fails
        // only for want of memory; then a commit in the child is still refused further down.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

/// Returns true in a child of a process that used the library.
pub fn is_child() -> bool {
    __forks::is_child()
}

fn refused() -> Failure {
    Failure::new(
        status::FORKED,
        "this process was forked from one that used the library; it can read and close the objects \
         that it inherited, and nothing else: exec a program that opens the store itself",
    )
}

/// # Errors
/// `FORKED` in a child.
pub fn check() -> Result<()> {
    if is_child() { Err(refused()) } else { Ok(()) }
}

/// For what a child may do with inherited handles.
///
/// # Errors
/// `FORKED` in a child of a bare `clone`, which has no handles.
pub fn inherited() -> Result<()> {
    if INHERITED.load(Ordering::Relaxed) { Ok(()) } else { Err(refused()) }
}
