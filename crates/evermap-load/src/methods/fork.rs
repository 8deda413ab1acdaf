//! Loads that a fork has to wait for.
//!
//! The list is locked from before a fork until after it: a child in which it is locked by a thread that the child does not have could neither load
//! nor fork.

use std::cell::UnsafeCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::plan::ForkPolicy;
use crate::sys::at_fork::{Around, call};

/// How often a fork looks whether other threads have begun loads while it waited for some.
const ROUNDS_MAX: usize = 8;

/// A load that a process may fork in the midst of.
pub(crate) trait Forked: Send + Sync {
    /// All is there, and children may have it.
    fn is_over(&self) -> bool;

    /// Brings that about, as far as it can be. What cannot be had a child does not have: its memory stays `MADV_DONTFORK`.
    fn finish(&self);
}

type Loads = Vec<Weak<dyn Forked>>;

static UNDER_WAY: Mutex<Loads> = Mutex::new(Vec::new());

/// The lock while a fork is under way.
struct Held(UnsafeCell<Option<MutexGuard<'static, Loads>>>);

// SAFETY: it is used only by who has the lock: the guard is put in after it was taken, and taken out to give it back.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None));

fn lock() -> MutexGuard<'static, Loads> {
    UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on forks wait until this load is over, if that is its policy. No thread that loads ever takes this lock.
pub(super) fn note(load: Weak<dyn Forked>, policy: ForkPolicy) {
    if policy != ForkPolicy::Finish {
        return;
    }
    call(Around { before: finish_all, after: go_on });
    let mut under_way = lock();
    under_way.retain(|load| load.upgrade().is_some_and(|load| !load.is_over()));
    under_way.push(load);
}

/// In the thread that forks, before it does.
fn finish_all() {
    let mut done: Vec<Arc<dyn Forked>> = Vec::new();
    for _ in 0..ROUNDS_MAX {
        // Not in one expression with the wait: others load meanwhile.
        let loads: Vec<Arc<dyn Forked>> = lock().iter().filter_map(Weak::upgrade).collect();
        let is_done = |load: &Arc<dyn Forked>| {
            done.iter().any(|done| std::ptr::addr_eq(Arc::as_ptr(done), Arc::as_ptr(load)))
        };
        let left: Vec<_> = loads.into_iter().filter(|load| !is_done(load)).collect();
        if left.is_empty() {
            break;
        }
        for load in left {
            load.finish();
            done.push(load);
        }
    }
    // Before the lock: dropping the last hold on a load takes a while.
    drop(done);
    let guard = lock();
    // SAFETY: this thread has the lock.
    unsafe { *HELD.0.get() = Some(guard) };
}

/// In the parent and in the child, after the fork.
fn go_on() {
    // SAFETY: this thread has the lock, in the child as well: it is the one that forked.
    drop(unsafe { (*HELD.0.get()).take() });
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_child_can_lock_what_another_thread_had_locked_when_it_was_forked() {
        call(Around { before: finish_all, after: go_on });
        let barrier = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let guard = lock();
                barrier.wait();
                std::thread::sleep(std::time::Duration::from_millis(50));
                drop(guard);
            });
            barrier.wait();
            // SAFETY: the child looks at a word of memory, and ends.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let is_free = UNDER_WAY.try_lock().is_ok();
                // SAFETY: ends the child.
                unsafe { libc::_exit(if is_free { 0 } else { 1 }) };
            }
            let mut status = 0;
            // SAFETY: waits for that child alone.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert_eq!(status, 0, "the lock is another's, who is not in the child");
        });
        drop(lock());
    }
}
