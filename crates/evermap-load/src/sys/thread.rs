//! Threads of this process: loading threads, liveness checks, futex waits and signal masks.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::thread::futex;

thread_local! {
    static LOADS: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as a loading thread.
pub(crate) fn mark_as_loading() {
    LOADS.set(true);
}

/// Returns true if this thread loads on-demand images. A library that replaces functions of the C
/// library needs this, because a loading thread must not wait for a load.
pub fn is_loading_thread() -> bool {
    // A thread whose thread-local storage is gone is ending. It must not wait either.
    LOADS.try_with(Cell::get).unwrap_or(true)
}

/// Returns the id of this thread.
pub(crate) fn current() -> u32 {
    rustix::thread::gettid().as_raw_pid() as u32
}

/// Returns true if this process has a thread with this id. Detects a killed thread, whose
/// destructors did not run.
pub(crate) fn is_alive(thread: u32) -> bool {
    // SAFETY: signal 0 sends nothing and only checks for existence.
    let result = unsafe {
        libc::syscall(libc::SYS_tgkill, libc::getpid(), thread as libc::c_int, 0 as libc::c_int)
    };
    result == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// Sleeps while `word` equals `seen`, at most `timeout`. May return early.
pub(crate) fn sleep_while(word: &AtomicU32, seen: u32, timeout: Duration) {
    let limit = rustix::time::Timespec {
        tv_sec: timeout.as_secs() as i64,
        tv_nsec: timeout.subsec_nanos().into(),
    };
    // The result does not matter, because the caller checks the word again.
    let _ = futex::wait(word, futex::Flags::PRIVATE, seen, Some(&limit));
}

/// Increments `word` and wakes all threads that sleep on it.
pub(crate) fn count_up(word: &AtomicU32) {
    word.fetch_add(1, Ordering::Release);
    let _ = futex::wake(word, futex::Flags::PRIVATE, i32::MAX as u32);
}

/// Runs `start`, which starts a thread, so that the new thread has all signals blocked. Otherwise a
/// signal handler of the program could run in the new thread and wait for memory that only that
/// thread fills.
pub(crate) fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    // SAFETY: signal sets are plain memory, filled before they are read, and the mask is this
    // thread's.
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

/// Ends this thread as a kill would: no destructor runs and no thread is notified.
#[cfg(test)]
pub(crate) fn vanish() -> ! {
    // SAFETY: leaks the thread's resources, which is the purpose.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    unreachable!("the thread has ended")
}
