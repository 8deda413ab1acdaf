//! Role held by one thread at a time: loader or deputy.
//!
//! Other threads check without a lock whether the role is held, while its holder can be killed at
//! any instruction. A thread that was started but has not run yet also holds its role. On a busy
//! machine this state lasts a while.
//!
//! A role changes hands by compare-and-swap, so only one of several threads gets it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::sys::thread;

const NO_THREAD: u32 = 0;
/// A thread was started but has not stored its id.
const STARTING: u32 = u32::MAX;
/// Time after which such a thread is assumed killed.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Role of one thread. See the module.
#[derive(Debug)]
pub(super) struct Role {
    /// Thread id, or one of the constants above.
    holder: AtomicU32,
    since: Instant,
    /// Time at which a thread was started for the role, after `since`.
    started_ms: AtomicU64,
}

impl Role {
    /// Creates a role without holder.
    pub(super) fn vacant() -> Role {
        Role {
            holder: AtomicU32::new(NO_THREAD),
            since: Instant::now(),
            started_ms: AtomicU64::new(0),
        }
    }

    /// Records that a thread is being started for the role. Returns false if `predecessor` is no
    /// longer the holder.
    pub(super) fn announce(&self, predecessor: u32) -> bool {
        self.started_ms.store(self.age_ms(), Ordering::Release);
        self.change(predecessor, STARTING)
    }

    /// Makes the calling thread, which was started for the role, its holder. Returns false if
    /// another thread has taken the role since.
    pub(super) fn take(&self) -> bool {
        self.take_from(STARTING)
    }

    /// Makes the calling thread the holder if `predecessor` still is.
    pub(super) fn take_from(&self, predecessor: u32) -> bool {
        self.change(predecessor, thread::current())
    }

    fn change(&self, from: u32, to: u32) -> bool {
        self.holder.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Gives up the role.
    pub(super) fn release(&self) {
        self.holder.store(NO_THREAD, Ordering::Release);
    }

    /// Returns the holder, for comparisons.
    pub(super) fn holder(&self) -> u32 {
        self.holder.load(Ordering::Acquire)
    }

    /// Returns true if the role has no holder, not even a killed one.
    pub(super) fn is_vacant(&self) -> bool {
        self.holder() == NO_THREAD
    }

    /// Returns true if a living thread holds the role.
    pub(super) fn is_held(&self) -> bool {
        match self.holder() {
            NO_THREAD => false,
            STARTING => {
                let started_ms = self.started_ms.load(Ordering::Acquire);
                u128::from(self.age_ms().saturating_sub(started_ms)) < START_TIMEOUT.as_millis()
            }
            number => thread::is_alive(number),
        }
    }

    fn age_ms(&self) -> u64 {
        self.since.elapsed().as_millis() as u64
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_starting_thread_holds_its_role_and_an_ended_thread_does_not() {
        let role = Role::vacant();
        assert!(!role.is_held() && role.is_vacant());
        assert!(role.announce(NO_THREAD));
        assert!(role.is_held() && !role.is_vacant());
        assert!(std::thread::scope(|scope| scope.spawn(|| role.take()).join().unwrap()));
        // The kernel removes the thread a moment later.
        while role.is_held() {
            std::thread::yield_now();
        }
        let gone = role.holder();
        assert!(role.take_from(gone) && role.is_held());
        assert!(!role.take_from(gone), "another thread holds the role");
    }

    #[test]
    fn of_two_threads_started_for_a_role_one_gets_it() {
        let role = Role::vacant();
        assert!(role.announce(NO_THREAD) && !role.announce(NO_THREAD));
        assert!(role.take());
        assert!(!std::thread::scope(|scope| scope.spawn(|| role.take()).join().unwrap()));
        assert_eq!(role.holder(), thread::current());
    }
}
