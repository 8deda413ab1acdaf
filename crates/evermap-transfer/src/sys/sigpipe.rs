//! Writing to a peer that has gone, without dying of it.
//!
//! `send` can be told not to raise SIGPIPE, `splice` and `sendfile` cannot. Rust's runtime ignores the signal for whole
//! programs, but a C program that links a library written in Rust has what it has: by default, such a write ends it.
//! Changing what a signal does is the program's affair, so the signal is only blocked, in one thread and for as long as bytes are
//! moved there, and taken back if it was raised meanwhile.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;

/// SIGPIPE is blocked in this thread, and in those that it starts, until this is dropped.
///
/// What was raised before is raised after. A SIGPIPE that somebody else sends to the whole process meanwhile may be
/// taken back as well: nobody does that.
#[derive(Debug)]
pub(crate) struct SigpipeBlocked {
    /// The thread's mask before; `None` where SIGPIPE was pending already, and nothing is to be taken back.
    before: libc::sigset_t,
    was_pending: bool,
    /// A mask belongs to a thread.
    not_send: PhantomData<*const ()>,
}

impl SigpipeBlocked {
    /// Costs two system calls, and dropping it two more.
    pub(crate) fn new() -> SigpipeBlocked {
        let pipe = only_sigpipe();
        let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: both sets are live for the call, `pipe` is initialised; the call cannot fail with SIG_BLOCK. A
        // zeroed set is an initialised one on Linux, so `before` is, whatever the call does.
        let before = unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &pipe, before.as_mut_ptr());
            before.assume_init()
        };
        SigpipeBlocked { before, was_pending: is_pending(), not_send: PhantomData }
    }
}

impl Drop for SigpipeBlocked {
    fn drop(&mut self) {
        let pipe = only_sigpipe();
        if !self.was_pending {
            let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: the set and the time are live and initialised for the call, and no information is asked for. It takes a
            // pending SIGPIPE or says that there is none; the signal is blocked, so none is delivered in between.
            while unsafe { libc::sigtimedwait(&pipe, ptr::null_mut(), &now) } == -1
                && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
            {
            }
        }
        // SAFETY: `before` is the mask that this very thread had, as this value cannot be sent to another one.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, ptr::null_mut()) };
    }
}

fn only_sigpipe() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: `sigemptyset` initialises the set it is given, and SIGPIPE is a signal's number.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGPIPE);
        set.assume_init()
    }
}

fn is_pending() -> bool {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the set is live for the call, and a zeroed set is an initialised one on Linux, so it is that also if
    // the call should fail.
    unsafe {
        libc::sigpending(set.as_mut_ptr());
        libc::sigismember(set.as_ptr(), libc::SIGPIPE) == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raise() {
        // SAFETY: raising a signal in one's own thread; it is blocked wherever this is called.
        unsafe { libc::raise(libc::SIGPIPE) };
    }

    #[test]
    fn a_signal_that_came_while_it_was_blocked_is_taken_back_and_an_earlier_one_is_not() {
        let outer = SigpipeBlocked::new();
        {
            let _inner = SigpipeBlocked::new();
            raise();
            assert!(is_pending());
        }
        assert!(!is_pending());
        raise();
        drop(SigpipeBlocked::new());
        assert!(is_pending(), "it was pending before, and is somebody else's");
        drop(outer);
    }
}
