//! Reader slots (hazard slots): each thread publishes the handle that it is using, so that no other
//! thread closes the object during the use.
//!
//! `em_malloc` takes some nanoseconds, so it must neither write to memory that other threads write
//! to nor execute a fence. Each thread has its own slot, stores there what it is about to use, and
//! then checks that this is still available. A thread that withdraws something first marks it as
//! withdrawn and then checks all slots. This is sound only if each side's store is visible before
//! the other side's load: the rare side sends a barrier to all threads of the process
//! (`membarrier`), so the frequent side needs none. If the kernel does not support this call, every
//! use executes a fence.
//!
//! Invariant: a slot holds 0 unless its thread is inside of a [`SlotGuard`]; slots are never freed.

use std::cell::Cell;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering, compiler_fence, fence};

use crate::abi::failure::Result;
use crate::runtime::fork;

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED` and the command that registers the process for it.
const BARRIER: libc::c_int = 1 << 3;
const REGISTER_BARRIER: libc::c_int = 1 << 4;

/// Every use executes a fence, until the kernel has confirmed that it sends barriers.
static FENCED: AtomicBool = AtomicBool::new(true);
static SLOTS_HEAD: AtomicPtr<ReaderSlot> = AtomicPtr::new(ptr::null_mut());

/// One thread's slot, exclusive in its pair of cache lines, which processors fetch together.
#[repr(align(128))]
pub struct ReaderSlot {
    using: AtomicU64,
    taken: AtomicBool,
    next: *mut ReaderSlot,
}

thread_local! {
    /// This thread's slot. Null until the first use, and in a forked child.
    static SLOT: Cell<*const ReaderSlot> = const { Cell::new(ptr::null()) };
    /// Returns the slot when the thread ends.
    static RETURNER: SlotReturner = const { SlotReturner };
}

struct SlotReturner;

impl Drop for SlotReturner {
    fn drop(&mut self) {
        let slot = SLOT.replace(ptr::null());
        // SAFETY: slots are never freed.
        if let Some(slot) = unsafe { slot.as_ref() } {
            slot.taken.store(false, Ordering::Release);
        }
    }
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the call takes three numbers and touches no memory.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Registers for barriers. Must be called before the first object is opened.
pub fn prepare() {
    static PREPARED: Once = Once::new();
    PREPARED.call_once(|| {
        if membarrier(REGISTER_BARRIER) && membarrier(BARRIER) {
            FENCED.store(false, Ordering::SeqCst);
        }
    });
}

/// Drops this thread's slot without returning it, for a forked child. The kernel may not send
/// barriers there, so every use executes a fence.
pub fn forget() {
    FENCED.store(true, Ordering::SeqCst);
    let _ = SLOT.try_with(|slot| slot.set(ptr::null()));
}

/// A registered use. It ends when this is dropped.
pub struct SlotGuard {
    slot: &'static ReaderSlot,
    borrowed: bool,
}

impl SlotGuard {
    /// Registers that this thread is about to use `what`. The caller must check afterwards that it
    /// is still available. A thread uses one thing at a time.
    ///
    /// # Errors
    /// `FORKED`.
    #[inline]
    pub fn on(what: u64) -> Result<SlotGuard> {
        // SAFETY: slots are never freed.
        let mut guard = match unsafe { SLOT.get().as_ref() } {
            Some(slot) => SlotGuard { slot, borrowed: false },
            None => first()?,
        };
        guard.note(what);
        Ok(guard)
    }

    /// Like [`SlotGuard::on`], if this thread has a slot.
    #[inline(always)]
    pub fn quickly(what: u64) -> Option<SlotGuard> {
        // SAFETY: slots are never freed.
        let mut guard = SlotGuard { slot: unsafe { SLOT.get().as_ref() }?, borrowed: false };
        guard.note(what);
        Some(guard)
    }

    /// Registers one use in a forked child. The thread still gets no slot, by which all other calls
    /// detect the child.
    pub fn in_child(what: u64) -> SlotGuard {
        let slot = free_slot().unwrap_or_else(new_slot);
        let mut guard = SlotGuard { slot, borrowed: true };
        guard.note(what);
        guard
    }

    #[inline]
    fn note(&mut self, what: u64) {
        debug_assert_eq!(self.slot.using.load(Ordering::Relaxed), 0, "one thing at a time");
        self.slot.using.store(what, Ordering::Relaxed);
        match FENCED.load(Ordering::Relaxed) {
            false => compiler_fence(Ordering::SeqCst),
            true => fence(Ordering::SeqCst),
        }
    }
}

impl Drop for SlotGuard {
    #[inline]
    fn drop(&mut self) {
        self.slot.using.store(0, Ordering::Release);
        if self.borrowed {
            self.slot.taken.store(false, Ordering::Release);
        }
    }
}

/// Assigns a slot to a thread that has none.
#[cold]
fn first() -> Result<SlotGuard> {
    fork::check()?;
    let slot = free_slot().unwrap_or_else(new_slot);
    // A thread that is ending cannot return its slot later, so it borrows one each time.
    let borrowed = RETURNER.try_with(|_| SLOT.set(slot)).is_err();
    Ok(SlotGuard { slot, borrowed })
}

fn all() -> impl Iterator<Item = &'static ReaderSlot> {
    let mut next = SLOTS_HEAD.load(Ordering::Acquire);
    std::iter::from_fn(move || {
        // SAFETY: slots are only added to the list, and never freed.
        let slot = unsafe { next.as_ref() }?;
        next = slot.next;
        Some(slot)
    })
}

fn free_slot() -> Option<&'static ReaderSlot> {
    all().find(|slot| {
        let order = (Ordering::Acquire, Ordering::Relaxed);
        slot.taken.compare_exchange(false, true, order.0, order.1).is_ok()
    })
}

fn new_slot() -> &'static ReaderSlot {
    let (using, taken) = (AtomicU64::new(0), AtomicBool::new(true));
    let slot = Box::into_raw(Box::new(ReaderSlot { using, taken, next: ptr::null_mut() }));
    let mut first = SLOTS_HEAD.load(Ordering::Relaxed);
    loop {
        // SAFETY: no other thread knows the slot before it is in the list.
        unsafe { (*slot).next = first };
        match SLOTS_HEAD.compare_exchange_weak(first, slot, Ordering::SeqCst, Ordering::Relaxed) {
            // SAFETY: the slot is never freed.
            Ok(_) => return unsafe { &*slot },
            Err(other) => first = other,
        }
    }
}

/// Sends a barrier. Afterwards, [`in_use`] sees every use that was registered before the caller's
/// withdrawal, and every later use sees the withdrawal.
pub fn barrier() {
    fence(Ordering::SeqCst);
    if !FENCED.load(Ordering::Relaxed) {
        membarrier(BARRIER);
    }
}

/// Returns true if a thread uses this. Only valid after a [`barrier`].
pub fn in_use(what: u64) -> bool {
    all().any(|slot| slot.using.load(Ordering::Acquire) == what)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Detects a use that is not registered or not checked. A missing barrier is detected only if
    /// both threads run at the same time for long enough, because a context switch is a barrier.
    #[test]
    fn a_withdrawn_thing_is_not_used_after_the_barrier() {
        const THING: u64 = 77;
        const ROUNDS: usize = 20_000;
        static AVAILABLE: AtomicBool = AtomicBool::new(true);
        static GONE: AtomicBool = AtomicBool::new(false);
        static ENDED: AtomicBool = AtomicBool::new(false);
        prepare();
        let pause = |turns: usize| (0..turns).for_each(|_| std::hint::spin_loop());
        let use_it = || {
            while !ENDED.load(Ordering::Relaxed) {
                let guard = SlotGuard::on(THING).unwrap();
                if AVAILABLE.load(Ordering::Relaxed) {
                    for _ in 0..500 {
                        assert!(!GONE.load(Ordering::Relaxed), "used after it was gone");
                    }
                }
                drop(guard);
                // A thread that spends most time inside is preempted there, and blocks the other
                // one.
                pause(50);
            }
        };
        let began = std::time::Instant::now();
        std::thread::scope(|scope| {
            let user = scope.spawn(use_it);
            for round in 0..ROUNDS {
                AVAILABLE.store(false, Ordering::Relaxed);
                barrier();
                while in_use(THING) && !user.is_finished() {
                    std::thread::yield_now();
                }
                GONE.store(true, Ordering::Relaxed);
                pause(10);
                GONE.store(false, Ordering::Relaxed);
                barrier();
                AVAILABLE.store(true, Ordering::Relaxed);
                pause(round % 50);
                // Enough for a machine that is busy with other work.
                if began.elapsed() > std::time::Duration::from_millis(500) {
                    break;
                }
            }
            ENDED.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn the_slot_of_an_ended_thread_is_reused() {
        let count = || all().count();
        let sit = || drop(SlotGuard::on(1).unwrap());
        std::thread::spawn(sit).join().unwrap();
        let before = count();
        for _ in 0..50 {
            std::thread::spawn(sit).join().unwrap();
        }
        // Other tests of this program run at the same time and need a few slots.
        assert!(count() < before + 25, "{before} reader_slots became {}", count());
    }
}
