//! Lock that a fork can hold: locked before it in the parent, unlocked after it in parent and
//! child. It is held for table lookups only, never during file reads or program code.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::futex;

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// Locked, with possible waiters.
const AWAITED: u32 = 2;

/// Lock around a value. See the module.
pub(crate) struct Lock<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: only the thread that holds the lock accesses the value.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Lock<T> {
        Lock { word: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    pub(crate) fn lock(&self) -> Held<'_, T> {
        let taken = self.word.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_err() {
            while self.word.swap(AWAITED, Ordering::Acquire) != FREE {
                let _ = futex::wait(&self.word, futex::Flags::PRIVATE, AWAITED, None);
            }
        }
        Held { lock: self }
    }

    /// Unlocks without a guard: for a holder that has forgotten its guard, and for the child of a
    /// holder.
    pub(crate) fn release(&self) {
        if self.word.swap(FREE, Ordering::Release) == AWAITED {
            let _ = futex::wake(&self.word, futex::Flags::PRIVATE, 1);
        }
    }
}

/// Guard that gives access to the value.
pub(crate) struct Held<'l, T> {
    lock: &'l Lock<T>,
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock and is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        self.lock.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time_has_the_value() {
        let lock = Lock::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        *lock.lock() += 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), 80_000);
    }
}
