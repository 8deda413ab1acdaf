//! Writing to a peer that has gone, or past the size that a file may have, without dying of it.
//!
//! `send` can be told not to raise SIGPIPE, `splice` and `sendfile` cannot. Rust's runtime ignores that signal for whole
//! programs, but a C program that links a library written in Rust has what it has: by default, such a write ends it. SIGXFSZ
//! (`RLIMIT_FSIZE`) ends every program by default. Changing what a signal does is the program's affair, so the signals are
//! only blocked, in one thread and for as long as bytes are moved there, and taken back if they were raised meanwhile.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;

const SIGNALS: [libc::c_int; 2] = [libc::SIGPIPE, libc::SIGXFSZ];

/// SIGPIPE and SIGXFSZ are blocked in this thread, and in those that it starts, until this is dropped.
///
/// A signal that was pending before is pending after. One that somebody else sends to the whole process meanwhile may be
/// taken back as well: nobody does that.
#[derive(Debug)]
pub(crate) struct WriteSignalsBlocked {
    /// The thread's mask before.
    before: libc::sigset_t,
    /// Signals that were not pending before: those are taken back.
    ours: libc::sigset_t,
    /// A mask belongs to a thread.
    not_send: PhantomData<*const ()>,
}

impl WriteSignalsBlocked {
    /// Costs two system calls, and dropping it two more.
    pub(crate) fn new() -> WriteSignalsBlocked {
        let blocked = set_of(|_| true);
        let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: both sets are live for the call, `blocked` is initialised; the call cannot fail with SIG_BLOCK. A
        // zeroed set is an initialised one on Linux, so `before` is, whatever the call does.
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
        // SAFETY: the set and the time are live and initialised for the call, and no information is asked for. It takes a
        // pending signal or says that there is none; they are blocked, so none is delivered in between.
        let take = || unsafe { libc::sigtimedwait(&self.ours, ptr::null_mut(), &now) };
        while take() != -1
            || std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
        {}
        // SAFETY: `before` is the mask that this very thread had, as this value cannot be sent to another one.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, ptr::null_mut()) };
    }
}

fn set_of(is_in: impl Fn(libc::c_int) -> bool) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: `sigemptyset` initialises the set it is given, and all of these are signals' numbers.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in SIGNALS.into_iter().filter(|signal| is_in(*signal)) {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

fn has(set: &libc::sigset_t, signal: libc::c_int) -> bool {
    // SAFETY: the set is initialised, and this is a signal's number.
    unsafe { libc::sigismember(set, signal) == 1 }
}

fn pending() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the set is live for the call, and a zeroed set is an initialised one on Linux, so it is that also if
    // the call should fail.
    unsafe {
        libc::sigpending(set.as_mut_ptr());
        set.assume_init()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raise(signal: libc::c_int) {
        // SAFETY: raising a signal in one's own thread; it is blocked wherever this is called.
        unsafe { libc::raise(signal) };
    }

    #[test]
    fn a_signal_that_came_while_it_was_blocked_is_taken_back_and_an_earlier_one_is_not() {
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
            assert!(has(&pending(), signal), "it was pending before, and is somebody else's");
            assert!(!has(&pending(), other));
            drop(outer);
        }
    }
}
