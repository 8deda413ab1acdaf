//! Signals of this process: reads them from a descriptor, or ignores them.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;

/// Blocks signals in the calling thread and reads them from a descriptor instead. For programs
/// whose other threads, if there are any, block them too.
#[derive(Debug)]
pub(crate) struct Signals {
    descriptor: OwnedFd,
    before: libc::sigset_t,
}

impl Signals {
    /// Blocks these signals until the value is dropped.
    pub(crate) fn block(signals: &[libc::c_int]) -> io::Result<Self> {
        let set = set(signals);
        // SAFETY: a plain structure of integers, which the next call fills.
        let mut before: libc::sigset_t = unsafe { zeroed() };
        // SAFETY: both sets are locals of this function.
        let result = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before) };
        if result != 0 {
            return Err(io::Error::from_raw_os_error(result));
        }
        // SAFETY: the set is a local of this function.
        let raw = unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if raw < 0 {
            let error = io::Error::last_os_error();
            restore(&before);
            return Err(error);
        }
        // SAFETY: `signalfd` has just returned this descriptor, so no one else owns it.
        let descriptor = unsafe { OwnedFd::from_raw_fd(raw) };
        Ok(Self { descriptor, before })
    }

    /// Restores the previous signal mask in the program that the command starts.
    pub(crate) fn restore_in(&self, command: &mut Command) {
        let before = self.before;
        let restore = move || {
            restore(&before);
            Ok(())
        };
        // SAFETY: the closure makes one system call and allocates nothing, so it is safe after a
        // fork.
        unsafe { command.pre_exec(restore) };
    }

    /// Returns the next pending signal, or `None`.
    pub(crate) fn next(&self) -> Option<libc::c_int> {
        // SAFETY: a plain structure of integers, for which zero is valid.
        let mut one: libc::signalfd_siginfo = unsafe { zeroed() };
        let bytes = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the kernel writes at most `bytes` bytes, the size of the structure, which is a
        // local of this function.
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
    // SAFETY: a plain structure of integers, which the next call fills.
    let mut set: libc::sigset_t = unsafe { zeroed() };
    // SAFETY: the set is a local of this function; an invalid signal number changes nothing.
    unsafe {
        libc::sigemptyset(&mut set);
        for signal in signals {
            libc::sigaddset(&mut set, *signal);
        }
    }
    set
}

fn restore(before: &libc::sigset_t) {
    // SAFETY: the set was filled by `pthread_sigmask`.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, ptr::null_mut()) };
}

/// Ignores these signals in this process.
pub(crate) fn ignore(signals: &[libc::c_int]) {
    for signal in signals {
        // SAFETY: ignoring a signal runs no code of this process.
        unsafe { libc::signal(*signal, libc::SIG_IGN) };
    }
}

/// Makes sure that ends of children are reported. A process that ignores SIGCHLD, which it may have
/// inherited, never gets their exit status.
pub(crate) fn report_child_exits() {
    // SAFETY: plain structures, for which zero is valid; the call reads none and fills one of them.
    let is_ignored = unsafe {
        let mut now: libc::sigaction = zeroed();
        libc::sigaction(libc::SIGCHLD, ptr::null(), &mut now) == 0
            && now.sa_sigaction == libc::SIG_IGN
    };
    if is_ignored {
        // SAFETY: the default action of SIGCHLD is to do nothing, so no code of this process runs.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    }
}

/// Runs `work` while a signal interrupts the thread once, after this time.
#[cfg(test)]
pub(crate) fn interrupted<T>(after: std::time::Duration, work: impl FnOnce() -> T) -> T {
    extern "C" fn nothing(_: libc::c_int) {}
    let handler: extern "C" fn(libc::c_int) = nothing;
    // SAFETY: the handler does nothing, and a zeroed structure has no flags and blocks no signals.
    let this = unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = handler as libc::sighandler_t;
        libc::sigaction(libc::SIGURG, &action, ptr::null_mut());
        libc::pthread_self()
    };
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(after);
            // SAFETY: the target thread waits for this one before it ends, so it exists.
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
    fn a_blocked_signal_is_read_from_the_descriptor() {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let signals = Signals::block(&[libc::SIGUSR2]).unwrap();
                assert_eq!(signals.next(), None);
                // SAFETY: the target is this thread, which blocks the signal.
                unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGUSR2) };
                assert_eq!(signals.next(), Some(libc::SIGUSR2));
                let mut command = Command::new("sh");
                signals.restore_in(&mut command);
                command.args(["-c", "kill -USR2 $$; sleep 10"]);
                assert_eq!(command.status().unwrap().signal(), Some(libc::SIGUSR2));
            });
        });
    }
}
