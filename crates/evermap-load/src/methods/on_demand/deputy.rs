//! The deputy thread, which takes over when the loader thread is killed.
//!
//! A system call filter can kill a single thread. Without the loader thread, an access to a missing
//! page would wait for ever. So there are two threads, and each replaces the other. The cause may
//! kill a successor at the same call, so after several losses without progress no other is started.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Shared, loader};
use crate::counters::count;
use crate::sys::thread;

/// Interval of the liveness check.
const PERIOD: Duration = Duration::from_millis(20);
/// Interval when the remaining windows are loaded on access only.
const PERIOD_IDLE: Duration = Duration::from_millis(500);
/// Maximum number of loader threads lost in a row, without a window loaded in between.
const LOST_MAX: u32 = 8;

/// Starts a deputy if there is none. If no thread can be started, the loader thread continues
/// alone.
pub(super) fn keep_deputy(shared: &Arc<Shared>) {
    let (predecessor, is_first) = (shared.deputy.holder(), shared.deputy.is_vacant());
    if shared.deputy.is_held() || !shared.deputy.announce(predecessor) {
        return;
    }
    if !is_first {
        count(&shared.job.counters.threads_replaced);
    }
    let deputy = shared.clone();
    let builder = std::thread::Builder::new().name("evermap-deputy".into());
    let started = thread::without_signals(|| builder.spawn(move || run(&deputy)));
    if started.is_err() {
        shared.deputy.release();
    }
}

fn run(shared: &Arc<Shared>) {
    thread::mark_as_loading();
    if !shared.deputy.take() {
        return;
    }
    #[cfg(test)]
    shared.injected.as_deputy();
    loop {
        let period = if shared.windows.are_settled() { PERIOD_IDLE } else { PERIOD };
        thread::sleep_while(&shared.ended, 0, period);
        if shared.has_ended() {
            return;
        }
        let loader = shared.loader.holder();
        // A thread that ends by itself sets `ended` first.
        if shared.loader.is_held() || shared.has_ended() || !shared.loader.take_from(loader) {
            continue;
        }
        // This thread is now the loader and has no deputy until it starts one.
        shared.deputy.release();
        count(&shared.job.counters.threads_replaced);
        take_over(shared);
        return;
    }
}

/// Loads in place of a lost loader thread.
fn take_over(shared: &Arc<Shared>) {
    let lost = shared.lost.fetch_add(1, Ordering::AcqRel) + 1;
    if lost > LOST_MAX {
        loader::give_up(shared);
        return;
    }
    keep_deputy(shared);
    shared.windows.requeue_lost();
    let region = &shared.region;
    // Raise the faults again that the lost thread had read but not served.
    let _ = shared.userfault.wake(region.address() as usize, region.bytes());
    loader::run(shared, None, lost);
}
