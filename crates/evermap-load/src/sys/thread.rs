//! Threads as the kernel knows them: whether one is still there, and waiting for a word in memory to change.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::thread::futex;

thread_local! {
    static LOADS: Cell<bool> = const { Cell::new(false) };
}

/// This thread loads from now on.
pub(crate) fn mark_as_loading() {
    LOADS.set(true);
}

/// Whether this thread was started to load images that come on demand. For whoever stands in front of functions of the C library: a thread that
/// loads must not wait for a load.
pub fn is_loading_thread() -> bool {
    LOADS.try_with(Cell::get).unwrap_or(true)
}

/// The number of this thread.
pub(crate) fn current() -> u32 {
    rustix::thread::gettid().as_raw_pid() as u32
}

/// Whether this process has a thread of this number. A thread that something killed has none, though no destructor of it ran.
pub(crate) fn is_alive(thread: u32) -> bool {
    // SAFETY: signal 0 is sent to nobody; it asks only.
    let result = unsafe {
        libc::syscall(libc::SYS_tgkill, libc::getpid(), thread as libc::c_int, 0 as libc::c_int)
    };
    result == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// Sleeps while `word` is `seen`, for `patience` at most. May return early.
pub(crate) fn sleep_while(word: &AtomicU32, seen: u32, patience: Duration) {
    let limit = rustix::time::Timespec {
        tv_sec: patience.as_secs() as i64,
        tv_nsec: patience.subsec_nanos().into(),
    };
    // Whatever it says, the caller looks again.
    let _ = futex::wait(word, futex::Flags::PRIVATE, seen, Some(&limit));
}

/// Changes `word` and wakes all who sleep on it.
pub(crate) fn count_up(word: &AtomicU32) {
    word.fetch_add(1, Ordering::Release);
    let _ = futex::wake(word, futex::Flags::PRIVATE, i32::MAX as u32);
}

/// Runs `start`, which starts a thread, so that the thread gets no signals: a handler of the program's that ran in it might wait for the
/// memory that this thread is to fill.
pub(crate) fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    // SAFETY: sets of signals are plain memory, filled before they are read; the mask is this thread's.
    unsafe {
        let mut all = std::mem::zeroed::<libc::sigset_t>();
        let mut before = std::mem::zeroed::<libc::sigset_t>();
        libc::sigfillset(&raw mut all);
        let is_set = libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) == 0;
        let started = start();
        if is_set {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        }
        started
    }
}

/// Ends this thread as a kill would: no destructor runs, nobody is told.
#[cfg(test)]
pub(crate) fn vanish() -> ! {
    // SAFETY: leaks what the thread had; that is the point.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    unreachable!("the thread has ended")
}
