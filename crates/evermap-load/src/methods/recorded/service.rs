//! The threads that serve what is touched. Both do the same; each sees to it that there is another.

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
/// How often each looks whether the other lives.
const PERIOD: Duration = Duration::from_millis(20);

/// Starts them: one at least.
pub(super) fn start(shared: &Arc<Shared>) -> std::io::Result<()> {
    spawn(shared, 0)?;
    // The first one starts the other again, if it can't be had now.
    let _ = spawn(shared, 1);
    Ok(())
}

fn spawn(shared: &Arc<Shared>, number: usize) -> std::io::Result<()> {
    let serving = shared.clone();
    let builder = std::thread::Builder::new().name("evermap-record".into());
    let start = || builder.spawn(move || serve(&serving, number));
    thread::without_signals(start).map(drop)
}

/// Has them end. They hold what they use: nobody waits for them.
pub(super) fn stop(shared: &Shared) {
    shared.stop.store(true, Ordering::Release);
    // Not read by anybody, so that it rings for both.
    let _ = rustix::io::write(&shared.bell, &1u64.to_ne_bytes());
}

fn serve(shared: &Arc<Shared>, number: usize) {
    shared.threads[number].store(thread::current(), Ordering::Release);
    let mut buffer = vec![0; WINDOW_BYTES];
    let base = shared.region.address() as usize;
    let mut looked_at = Instant::now();
    while !shared.stop.load(Ordering::Acquire) && !shared.is_over() {
        let mut watched = [
            PollFd::new(&shared.userfault, PollFlags::IN),
            PollFd::from_borrowed_fd(shared.bell.as_fd(), PollFlags::IN),
        ];
        let patience = rustix::event::Timespec { tv_sec: 0, tv_nsec: PERIOD.subsec_nanos().into() };
        match poll(&mut watched, Some(&patience)) {
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
                // Who touched it gets a signal, and whoever asks the error.
                let _ = shared.bring(window, &mut buffer);
                let _ = shared.userfault.wake(base + window * WINDOW_BYTES, WINDOW_BYTES);
            }
        }
        if looked_at.elapsed() >= PERIOD {
            looked_at = Instant::now();
            look(shared, 1 - number);
        }
    }
}

/// Sees to it that the other one lives.
fn look(shared: &Arc<Shared>, other: usize) {
    let thread = shared.threads[other].load(Ordering::Acquire);
    if thread != 0 && thread::is_alive(thread) {
        return;
    }
    if thread != 0 {
        count(&shared.job.counters.threads_replaced);
    }
    // Not started twice while it starts.
    shared.threads[other].store(thread::current(), Ordering::Release);
    // Faults that it was told of, and did not live to serve, are raised again.
    let _ = shared.userfault.wake(shared.region.address() as usize, shared.region.bytes());
    if spawn(shared, other).is_err() {
        shared.threads[other].store(0, Ordering::Release);
    }
}
