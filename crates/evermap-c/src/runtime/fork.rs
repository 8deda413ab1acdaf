//! Forked children: a child can read and close what it inherited. Every other call is refused.
//!
//! Calls that use a thread's reader slot do not check the process: a handler that runs in the child
//! removes the slots and marks the handles of sessions. A child of a bare `clone` runs no handler;
//! calls to [`check`] and [`inherited`] detect it.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use evermap_core::__forks;

use crate::abi::failure::{Failure, Result};
use crate::abi::status;

/// The handler ran: this process, or an ancestor, is a forked child with handles.
static INHERITED: AtomicBool = AtomicBool::new(false);

/// Notes in a forked child that its handles are inherited.
pub fn set_inherited() {
    INHERITED.store(true, Ordering::Relaxed);
}

/// Starts to detect forks. `in_child` runs in each forked child; it may only store to atomics, and
/// to a thread-local without a destructor.
pub fn watch(in_child: extern "C" fn()) {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // Called first, so that its handler runs first in a child: sessions are readable then.
        __forks::watch();
        // SAFETY: the handler is limited to what a child of a program with threads may do. The call
        // fails only without memory; then a commit in the child is refused by the Rust library.
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

/// Checks that this process is not a child.
///
/// # Errors
/// `FORKED` in a child.
pub fn check() -> Result<()> {
    if is_child() { Err(refused()) } else { Ok(()) }
}

/// Checks for calls that a child may make with inherited handles.
///
/// # Errors
/// `FORKED` in a child of a bare `clone`, which has no handles.
pub fn inherited() -> Result<()> {
    if INHERITED.load(Ordering::Relaxed) { Ok(()) } else { Err(refused()) }
}
