//! Loads that a fork waits for.
//!
//! The list stays locked from before a fork until after it. Otherwise another thread could hold the
//! lock during the fork, and the child, which lacks that thread, could neither load nor fork.

use std::cell::UnsafeCell;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

use crate::plan::ForkPolicy;
use crate::sys::at_fork::{ForkCallbacks, call};

/// Number of times that a fork checks for loads started while it waited.
const ROUNDS_MAX: usize = 8;

/// Load that may be in progress during a fork.
pub(crate) trait Forked: Send + Sync {
    /// Returns true if loading is complete and children may have the memory.
    fn is_over(&self) -> bool;

    /// Completes the load as far as possible. Children lack the memory of an incomplete load, which
    /// stays `MADV_DONTFORK`.
    fn finish(&self);
}

type Loads = Vec<Weak<dyn Forked>>;

static UNDER_WAY: Mutex<Loads> = Mutex::new(Vec::new());

/// Lock guard kept during a fork.
struct Held(UnsafeCell<Option<MutexGuard<'static, Loads>>>);

// SAFETY: only the thread that holds the lock uses it: the guard is stored after locking, and taken
// out to unlock.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None));

fn lock() -> MutexGuard<'static, Loads> {
    UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes forks wait for this load, if its policy says so. Loading threads never take this lock.
pub(super) fn note(load: Weak<dyn Forked>, policy: ForkPolicy) {
    if policy != ForkPolicy::Finish {
        return;
    }
    call(ForkCallbacks { before: finish_all, after: go_on });
    let mut under_way = lock();
    under_way.retain(|load| load.upgrade().is_some_and(|load| !load.is_over()));
    under_way.push(load);
}

/// Runs in the forking thread before the fork.
fn finish_all() {
    let mut done: Loads = Vec::new();
    for _ in 0..ROUNDS_MAX {
        // Release the lock before waiting, so that other threads can start loads.
        let is_left = |load: &&Weak<dyn Forked>| !done.iter().any(|done| done.ptr_eq(load));
        let left: Loads = lock().iter().filter(is_left).cloned().collect();
        if left.is_empty() {
            break;
        }
        for load in left {
            // Hold each load only while waiting for it. A load that is held keeps its memory and
            // descriptors after its image is dropped.
            if let Some(load) = load.upgrade() {
                load.finish();
            }
            done.push(load);
        }
    }
    let guard = lock();
    // SAFETY: this thread holds the lock.
    unsafe { *HELD.0.get() = Some(guard) };
}

/// Runs in the parent and in the child after the fork.
fn go_on() {
    // SAFETY: this thread holds the lock. In the child, it is the thread that forked.
    drop(unsafe { (*HELD.0.get()).take() });
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_child_can_take_the_lock_that_another_thread_held_before_the_fork() {
        call(ForkCallbacks { before: finish_all, after: go_on });
        let barrier = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let guard = lock();
                barrier.wait();
                std::thread::sleep(std::time::Duration::from_millis(50));
                drop(guard);
            });
            barrier.wait();
            // SAFETY: the child checks one word of memory and ends.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let is_free = UNDER_WAY.try_lock().is_ok();
                // SAFETY: ends the child.
                unsafe { libc::_exit(if is_free { 0 } else { 1 }) };
            }
            let mut status = 0;
            // SAFETY: waits only for that child.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert_eq!(status, 0, "the lock is held by a thread that the child lacks");
        });
        drop(lock());
    }
}
