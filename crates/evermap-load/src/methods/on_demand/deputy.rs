//! The thread that takes over when the one that loads is gone.
//!
//! A filter of system calls may kill a single thread. Without the loader thread, whoever touches a missing page would wait for ever: so there are two,
//! each of which replaces the other.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{Shared, loader};
use crate::counters::count;
use crate::sys::thread;

/// How often it looks.
const PERIOD: Duration = Duration::from_millis(20);
/// The same when all that is left waits to be touched.
const PERIOD_IDLE: Duration = Duration::from_millis(500);

/// For the loader thread: sees to it that there is a deputy. Without one (no thread is to be had) it loads alone.
pub(super) fn look(shared: &Arc<Shared>) {
    let number = shared.deputy.load(Ordering::Acquire);
    if number != 0 && thread::is_alive(number) {
        return;
    }
    if number != 0 {
        count(&shared.job.counters.threads_replaced);
    }
    let deputy = shared.clone();
    let builder = std::thread::Builder::new().name("evermap-deputy".into());
    let started = thread::without_signals(|| builder.spawn(move || run(&deputy)));
    if started.is_err() {
        shared.deputy.store(0, Ordering::Release);
    }
}

fn run(shared: &Arc<Shared>) {
    thread::mark_as_loading();
    shared.deputy.store(thread::current(), Ordering::Release);
    loop {
        let period = if shared.windows.are_settled() { PERIOD_IDLE } else { PERIOD };
        let begun = Instant::now();
        while !shared.has_ended() && begun.elapsed() < period {
            thread::sleep_while(&shared.ended, 0, period.saturating_sub(begun.elapsed()));
        }
        if shared.has_ended() {
            return;
        }
        let loader = shared.loader.load(Ordering::Acquire);
        if thread::is_alive(loader) || shared.has_ended() {
            continue;
        }
        // It is the loader thread from now on, and has no deputy until it looks for one.
        count(&shared.job.counters.threads_replaced);
        shared.deputy.store(0, Ordering::Release);
        shared.loader.store(thread::current(), Ordering::Release);
        shared.windows.take_back();
        let region = &shared.region;
        // Faults that the other one was told of, and did not live to serve: they are raised again.
        let _ = shared.userfault.wake(region.address() as usize, region.bytes());
        loader::run(shared);
        return;
    }
}
