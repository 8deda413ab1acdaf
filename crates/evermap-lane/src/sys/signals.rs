//! Signals of this process: as something to read, or as nothing.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
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

    /// The program that the command starts has the signals as this thread had them before.
    pub(crate) fn leave_to(&self, command: &mut Command) {
        let before = self.before;
        let restore = move || {
            restore(&before);
            Ok(())
        };
        // SAFETY: the closure makes one system call and allocates nothing.
        unsafe { command.pre_exec(restore) };
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

/// From now on the ends of children are there to be taken. Who ignores SIGCHLD, as whoever started this program may have, is never told of them.
pub(crate) fn keep_ends_of_children() {
    // SAFETY: plain structures, for which zeros are a value; the call only reads the one and fills the other.
    let is_ignored = unsafe {
        let mut now: libc::sigaction = zeroed();
        libc::sigaction(libc::SIGCHLD, ptr::null(), &mut now) == 0
            && now.sa_sigaction == libc::SIG_IGN
    };
    if is_ignored {
        // SAFETY: no code of ours runs for a signal whose default it is to be ignored.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    }
}

/// Does this while a signal comes that interrupts the thread, once, after this time.
#[cfg(test)]
pub(crate) fn interrupted<T>(after: std::time::Duration, work: impl FnOnce() -> T) -> T {
    extern "C" fn nothing(_: libc::c_int) {}
    let handler: extern "C" fn(libc::c_int) = nothing;
    // SAFETY: the handler does nothing, and a plain structure of zeros is one without flags and without other signals.
    let this = unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = handler as libc::sighandler_t;
        libc::sigaction(libc::SIGURG, &action, ptr::null_mut());
        libc::pthread_self()
    };
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(after);
            // SAFETY: the thread waits for this one before it ends.
            unsafe { libc::pthread_kill(this, libc::SIGURG) };
        });
        work()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn a_signal_is_read_instead_of_taken() {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let signals = Signals::of(&[libc::SIGUSR2]).unwrap();
                assert_eq!(signals.next(), None);
                // SAFETY: to this thread, which has it blocked.
                unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGUSR2) };
                assert_eq!(signals.next(), Some(libc::SIGUSR2));
                let mut command = Command::new("sh");
                signals.leave_to(&mut command);
                command.args(["-c", "kill -USR2 $$; sleep 10"]);
                assert_eq!(command.status().unwrap().signal(), Some(libc::SIGUSR2));
            });
        });
    }
}
