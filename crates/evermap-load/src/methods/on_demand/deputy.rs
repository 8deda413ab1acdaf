//! The thread that takes over when the one that loads is gone.
//!
//! A filter of system calls may kill a single thread. Without the loader thread, whoever touches a missing page would wait for ever: so there are two,
//! each of which replaces the other. What kills one may kill the next at the same call: after some that brought nothing, no other is sent.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Shared, loader};
use crate::counters::count;
use crate::sys::thread;

/// How often it looks.
const PERIOD: Duration = Duration::from_millis(20);
/// The same when all that is left waits to be touched.
const PERIOD_IDLE: Duration = Duration::from_millis(500);
/// Loader threads that are lost one after the other, with no window brought in between, before there are no more.
const LOST_MAX: u32 = 8;

/// Sees to it that there is a deputy. Without one (no thread is to be had) the loader thread is alone.
pub(super) fn look(shared: &Arc<Shared>) {
    if shared.deputy.is_held() {
        return;
    }
    if !shared.deputy.is_vacant() {
        count(&shared.job.counters.threads_replaced);
    }
    shared.deputy.call();
    let deputy = shared.clone();
    let builder = std::thread::Builder::new().name("evermap-deputy".into());
    let started = thread::without_signals(|| builder.spawn(move || run(&deputy)));
    if started.is_err() {
        shared.deputy.leave();
    }
}

fn run(shared: &Arc<Shared>) {
    thread::mark_as_loading();
    shared.deputy.take();
    #[cfg(test)]
    shared.injected.as_deputy();
    loop {
        let period = if shared.windows.are_settled() { PERIOD_IDLE } else { PERIOD };
        thread::sleep_while(&shared.ended, 0, period);
        if shared.has_ended() {
            return;
        }
        let loader = shared.loader.holder();
        // Who has ended has said so before it went.
        if shared.loader.is_held() || shared.has_ended() || !shared.loader.take_from(loader) {
            continue;
        }
        // It is the loader thread from now on, and has no deputy until it looks for one.
        shared.deputy.leave();
        count(&shared.job.counters.threads_replaced);
        succeed(shared);
        return;
    }
}

/// Loads in the place of a thread that is gone.
fn succeed(shared: &Arc<Shared>) {
    let lost = shared.lost.fetch_add(1, Ordering::AcqRel) + 1;
    if lost > LOST_MAX {
        loader::give_up(shared);
        return;
    }
    look(shared);
    shared.windows.take_back();
    let region = &shared.region;
    // Faults that the other one was told of, and did not live to serve: they are raised again.
    let _ = shared.userfault.wake(region.address() as usize, region.bytes());
    loader::run(shared, None, lost);
}
