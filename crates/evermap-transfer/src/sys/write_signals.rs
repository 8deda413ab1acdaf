//! Blocks the signals raised by a write to a closed peer or beyond the file size limit.
//!
//! `send` can suppress SIGPIPE; `splice` and `sendfile` cannot. Rust programs ignore SIGPIPE, but
//! in a C program that links this library the default action ends the process. SIGXFSZ
//! (`RLIMIT_FSIZE`) ends every program by default. Signal actions belong to the program, so the
//! signals are only blocked, in one thread and while bytes are moved there, and discarded if raised
//! during that time.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;

const SIGNALS: [libc::c_int; 2] = [libc::SIGPIPE, libc::SIGXFSZ];

/// Blocks SIGPIPE and SIGXFSZ in this thread, and in threads it starts, until dropped.
///
/// Signals that were pending before stay pending. A SIGPIPE or SIGXFSZ sent to the process during
/// this time may be discarded too, which is acceptable because no program sends these.
#[derive(Debug)]
pub(crate) struct WriteSignalsBlocked {
    /// The thread's previous mask.
    before: libc::sigset_t,
    /// Signals that were not pending before and are discarded on drop.
    ours: libc::sigset_t,
    /// The mask is per thread.
    not_send: PhantomData<*const ()>,
}

impl WriteSignalsBlocked {
    /// Blocks the signals. Cost: two system calls, and two more on drop.
    pub(crate) fn new() -> WriteSignalsBlocked {
        let blocked = set_of(|_| true);
        let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: both sets are live for the call and `blocked` is initialised; the call cannot
        // fail with SIG_BLOCK. A zeroed set is a valid one on Linux, so `before` is initialised in
        // any case.
        let before = unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &blocked, before.as_mut_ptr());
            before.assume_init()
        };
        let pending = pending();
        let ours = set_of(|signal| !has(&pending, signal));
        WriteSignalsBlocked { before, ours, not_send: PhantomData }
    }
}

impl Drop for WriteSignalsBlocked {
    fn drop(&mut self) {
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the set and the time are live and initialised for the call, and no information is
        // requested. The call takes a pending signal or fails; the signals are blocked, so none is
        // delivered in between.
        let take = || unsafe { libc::sigtimedwait(&self.ours, ptr::null_mut(), &now) };
        while take() != -1
            || std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
        {}
        // SAFETY: `before` is this thread's previous mask, because this value is not `Send`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, ptr::null_mut()) };
    }
}

fn set_of(is_in: impl Fn(libc::c_int) -> bool) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: `sigemptyset` initialises the set, and all numbers are valid signals.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in SIGNALS.into_iter().filter(|signal| is_in(*signal)) {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

fn has(set: &libc::sigset_t, signal: libc::c_int) -> bool {
    // SAFETY: the set is initialised, and the number is a valid signal.
    unsafe { libc::sigismember(set, signal) == 1 }
}

fn pending() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the set is live for the call. A zeroed set is a valid one on Linux, so it is
    // initialised even if the call fails.
    unsafe {
        libc::sigpending(set.as_mut_ptr());
        set.assume_init()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raise(signal: libc::c_int) {
        // SAFETY: raises a signal in the current thread; all callers have blocked it.
        unsafe { libc::raise(signal) };
    }

    #[test]
    fn signals_raised_while_blocked_are_discarded_and_earlier_ones_stay_pending() {
        for (signal, other) in [(SIGNALS[0], SIGNALS[1]), (SIGNALS[1], SIGNALS[0])] {
            let outer = WriteSignalsBlocked::new();
            {
                let _inner = WriteSignalsBlocked::new();
                raise(signal);
                raise(other);
                assert!(has(&pending(), signal) && has(&pending(), other));
            }
            assert!(!has(&pending(), signal) && !has(&pending(), other));
            raise(signal);
            {
                let _inner = WriteSignalsBlocked::new();
                raise(other);
            }
            assert!(has(&pending(), signal), "a signal pending before must stay pending");
            assert!(!has(&pending(), other));
            drop(outer);
        }
    }
}
