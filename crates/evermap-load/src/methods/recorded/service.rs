//! Threads that serve faults of a recorded image. Both are equal, and each restarts the other.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::{Shared, WINDOW_BYTES};
use crate::counters::count;
use crate::sys::thread;

pub(super) const THREADS: usize = 2;
/// Interval at which each thread checks the other.
const PERIOD: Duration = Duration::from_millis(20);

/// Starts the threads, at least one.
pub(super) fn start(shared: &Arc<Shared>) -> std::io::Result<()> {
    spawn(shared, 0)?;
    // The first thread starts the second later if this fails.
    let _ = spawn(shared, 1);
    Ok(())
}

fn spawn(shared: &Arc<Shared>, number: usize) -> std::io::Result<()> {
    let serving = shared.clone();
    let builder = std::thread::Builder::new().name("evermap-record".into());
    let start = || builder.spawn(move || serve(&serving, number));
    thread::without_signals(start).map(drop)
}

/// Tells the threads to end, without waiting. They own what they use.
pub(super) fn stop(shared: &Shared) {
    shared.stop.store(true, Ordering::Release);
    // The event is never read, so it wakes both threads.
    let _ = rustix::io::write(&shared.wakeup, &1u64.to_ne_bytes());
}

fn serve(shared: &Arc<Shared>, number: usize) {
    shared.threads[number].store(thread::current(), Ordering::Release);
    let mut buffer = vec![0; WINDOW_BYTES];
    let base = shared.region.address() as usize;
    let mut checked_at = Instant::now();
    while !shared.stop.load(Ordering::Acquire) && !shared.is_over() {
        let mut watched = [
            PollFd::new(&shared.userfault, PollFlags::IN),
            PollFd::from_borrowed_fd(shared.wakeup.as_fd(), PollFlags::IN),
        ];
        let timeout = rustix::event::Timespec { tv_sec: 0, tv_nsec: PERIOD.subsec_nanos().into() };
        match poll(&mut watched, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => std::thread::sleep(PERIOD),
        }
        for fault in shared.userfault.faults() {
            #[cfg(test)]
            if shared.vanishing.swap(0, Ordering::Relaxed) > 0 {
                thread::vanish();
            }
            let window = fault.address.wrapping_sub(base) / WINDOW_BYTES;
            if window < shared.states.len() {
                shared.touch(window, fault.is_write);
                // A failed window raises a signal in the accessing thread and is an error for
                // `ensure`.
                let _ = shared.load_window(window, &mut buffer);
                let _ = shared.userfault.wake(base + window * WINDOW_BYTES, WINDOW_BYTES);
            }
        }
        if checked_at.elapsed() >= PERIOD {
            checked_at = Instant::now();
            keep_alive(shared, 1 - number);
        }
    }
}

/// Restarts the other thread if it was killed or never started.
fn keep_alive(shared: &Arc<Shared>, other: usize) {
    let thread = shared.threads[other].load(Ordering::Acquire);
    if thread != 0 && thread::is_alive(thread) {
        return;
    }
    if thread != 0 {
        count(&shared.job.counters.threads_replaced);
    }
    // Prevents a second start before the new thread registers.
    shared.threads[other].store(thread::current(), Ordering::Release);
    // Raises the faults again that the lost thread had read but not served.
    let _ = shared.userfault.wake(shared.region.address() as usize, shared.region.bytes());
    if spawn(shared, other).is_err() {
        shared.threads[other].store(0, Ordering::Release);
    }
}
