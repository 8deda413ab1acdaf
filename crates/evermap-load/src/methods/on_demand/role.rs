//! What one thread at a time is: the one that loads, or its deputy.
//!
//! Others ask whether the post is held, without any lock, while the thread that holds it may be killed at any instruction. A thread that was
//! started and has not run yet holds its post, too: on a busy machine that takes a while.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::sys::thread;

const NOBODY: u32 = 0;
/// A thread was started that has not said its number.
const CALLED: u32 = u32::MAX;
/// If it does not within this time, something killed it before it could.
const ARRIVAL: Duration = Duration::from_secs(30);

/// See the module.
#[derive(Debug)]
pub(super) struct Post {
    /// A thread's number, or one of the above.
    holder: AtomicU32,
    since: Instant,
    /// When a thread was started for it, after `since`.
    called_ms: AtomicU64,
}

impl Post {
    /// Nobody's.
    pub(super) fn vacant() -> Post {
        Post { holder: AtomicU32::new(NOBODY), since: Instant::now(), called_ms: AtomicU64::new(0) }
    }

    /// A thread is being started for it.
    pub(super) fn call(&self) {
        self.called_ms.store(self.age_ms(), Ordering::Release);
        self.holder.store(CALLED, Ordering::Release);
    }

    /// The caller's from now on.
    pub(super) fn take(&self) {
        self.holder.store(thread::current(), Ordering::Release);
    }

    /// The caller's, if it is still that of `predecessor`.
    pub(super) fn take_from(&self, predecessor: u32) -> bool {
        let me = thread::current();
        self.holder.compare_exchange(predecessor, me, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Nobody's again.
    pub(super) fn leave(&self) {
        self.holder.store(NOBODY, Ordering::Release);
    }

    /// Whose it is: for comparisons.
    pub(super) fn holder(&self) -> u32 {
        self.holder.load(Ordering::Acquire)
    }

    /// Whether it ever was somebody's since it was left.
    pub(super) fn is_vacant(&self) -> bool {
        self.holder() == NOBODY
    }

    /// Whether there is a thread that holds it.
    pub(super) fn is_held(&self) -> bool {
        match self.holder() {
            NOBODY => false,
            CALLED => {
                let called_ms = self.called_ms.load(Ordering::Acquire);
                u128::from(self.age_ms().saturating_sub(called_ms)) < ARRIVAL.as_millis()
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
    fn a_thread_that_has_not_run_yet_holds_its_post_and_one_that_has_ended_does_not() {
        let post = Post::vacant();
        assert!(!post.is_held() && post.is_vacant());
        post.call();
        assert!(post.is_held() && !post.is_vacant());
        std::thread::scope(|scope| scope.spawn(|| post.take()).join().unwrap());
        // The kernel takes a moment to forget it.
        while post.is_held() {
            std::thread::yield_now();
        }
        let gone = post.holder();
        assert!(post.take_from(gone) && post.is_held());
        assert!(!post.take_from(gone), "it is somebody else's by now");
    }
}
