//! Signals of this process: as something to read, or as nothing.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

/// Signals that don't interrupt the calling thread while this lives, but are read. For a program whose other threads, if it has any,
/// don't take them instead.
#[derive(Debug)]
pub(crate) struct Signals {
    descriptor: OwnedFd,
    before: libc::sigset_t,
}

impl Signals {
    /// These, from now on.
    pub(crate) fn of(signals: &[libc::c_int]) -> io::Result<Self> {
        let set = set(signals);
        // SAFETY: a plain structure that the next call fills.
        let mut before: libc::sigset_t = unsafe { zeroed() };
        // SAFETY: both sets are ours for the call.
        let result = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before) };
        if result != 0 {
            return Err(io::Error::from_raw_os_error(result));
        }
        // SAFETY: the set is ours for the call.
        let raw = unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if raw < 0 {
            let error = io::Error::last_os_error();
            restore(&before);
            return Err(error);
        }
        // SAFETY: the call has just given it to us alone.
        let descriptor = unsafe { OwnedFd::from_raw_fd(raw) };
        Ok(Self { descriptor, before })
    }

    /// The next one that came; none if none did.
    pub(crate) fn next(&self) -> Option<libc::c_int> {
        // SAFETY: a plain structure, for which zeros are a value.
        let mut one: libc::signalfd_siginfo = unsafe { zeroed() };
        let bytes = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the kernel writes at most `bytes` to the structure, which has as many and is ours for the call.
        let read = unsafe {
            libc::read(self.descriptor.as_raw_fd(), ptr::from_mut(&mut one).cast(), bytes)
        };
        (read == bytes as isize).then_some(one.ssi_signo as libc::c_int)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        restore(&self.before);
    }
}

fn set(signals: &[libc::c_int]) -> libc::sigset_t {
    // SAFETY: a plain structure that the next call fills.
    let mut set: libc::sigset_t = unsafe { zeroed() };
    // SAFETY: the set is ours for the calls; a number that is no signal changes nothing.
    unsafe {
        libc::sigemptyset(&mut set);
        for signal in signals {
            libc::sigaddset(&mut set, *signal);
        }
    }
    set
}

fn restore(before: &libc::sigset_t) {
    // SAFETY: a set that the kernel gave us.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, ptr::null_mut()) };
}

/// From now on these are nothing to this process.
pub(crate) fn ignore(signals: &[libc::c_int]) {
    for signal in signals {
        // SAFETY: no code of ours runs for a signal that is ignored.
        unsafe { libc::signal(*signal, libc::SIG_IGN) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_read_instead_of_taken() {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let signals = Signals::of(&[libc::SIGUSR2]).unwrap();
                assert_eq!(signals.next(), None);
                // SAFETY: to this thread, which has it blocked.
                unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGUSR2) };
                assert_eq!(signals.next(), Some(libc::SIGUSR2));
            });
        });
    }
}
