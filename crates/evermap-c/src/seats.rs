//! Seats: what each thread is using just now, so that nobody takes it away meanwhile.
//!
//! `em_malloc` costs some nanoseconds, so it must not write to memory that other threads write to,
//! nor fence. Each thread has a seat of its own and notes there what it is about to use, then looks
//! whether that is still to be had. Who wants to take it away says so first, and then looks at all
//! seats. For this to be sound each side's store must be seen before the other side's load: the
//! rare side sends a barrier to all threads of the process (`membarrier`), the frequent side needs
//! none then. Where the kernel has no such call, every use fences.
//!
//! Invariant: a seat holds 0 unless its thread is inside of [`Sitting`]; seats are never freed.

use std::cell::Cell;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering, compiler_fence, fence};

use crate::failure::Result;
use crate::fork;

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED` and the call that asks for leave to use it.
const BARRIER: libc::c_int = 1 << 3;
const REGISTER_BARRIER: libc::c_int = 1 << 4;

/// Every use fences: until the kernel said that it sends barriers.
static FENCED: AtomicBool = AtomicBool::new(true);
static SEATS: AtomicPtr<Seat> = AtomicPtr::new(ptr::null_mut());

/// One thread's note; alone in its pair of cache lines, which processors fetch together.
#[repr(align(128))]
pub struct Seat {
    using: AtomicU64,
    taken: AtomicBool,
    next: *mut Seat,
}

thread_local! {
    /// This thread's seat; null until it needs one, and in a forked child.
    static SEAT: Cell<*const Seat> = const { Cell::new(ptr::null()) };
    /// Gives it back when the thread ends.
    static KEEPER: Keeper = const { Keeper };
}

struct Keeper;

impl Drop for Keeper {
    fn drop(&mut self) {
        let seat = SEAT.replace(ptr::null());
        // SAFETY: seats live for ever.
        if let Some(seat) = unsafe { seat.as_ref() } {
            seat.taken.store(false, Ordering::Release);
        }
    }
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the call takes three numbers and touches no memory.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// To be called before anything is there to be used.
pub fn prepare() {
    static PREPARED: Once = Once::new();
    PREPARED.call_once(|| {
        if membarrier(REGISTER_BARRIER) && membarrier(BARRIER) {
            FENCED.store(false, Ordering::SeqCst);
        }
    });
}

/// This thread has no seat any more, without giving it back: for a forked child. The kernel may not
/// send barriers there, so every use fences.
pub fn forget() {
    FENCED.store(true, Ordering::SeqCst);
    let _ = SEAT.try_with(|seat| seat.set(ptr::null()));
}

/// A use that is noted; it ends when this is dropped.
pub struct Sitting {
    seat: &'static Seat,
    borrowed: bool,
}

impl Sitting {
    /// Notes that this thread is about to use `what`; whether it can be had is to be looked at
    /// after that. A thread uses one thing at a time.
    ///
    /// # Errors
    /// `FORKED`.
    #[inline]
    pub fn on(what: u64) -> Result<Sitting> {
        // SAFETY: seats live for ever.
        let mut sitting = match unsafe { SEAT.get().as_ref() } {
            Some(seat) => Sitting { seat, borrowed: false },
            None => first()?,
        };
        sitting.note(what);
        Ok(sitting)
    }

    /// The same in a forked child, for one use: the thread goes on having no seat of its own, by
    /// which all other calls know the child.
    pub fn in_child(what: u64) -> Sitting {
        let seat = free_seat().unwrap_or_else(new_seat);
        let mut sitting = Sitting { seat, borrowed: true };
        sitting.note(what);
        sitting
    }

    #[inline]
    fn note(&mut self, what: u64) {
        debug_assert_eq!(self.seat.using.load(Ordering::Relaxed), 0, "one thing at a time");
        self.seat.using.store(what, Ordering::Relaxed);
        match FENCED.load(Ordering::Relaxed) {
            false => compiler_fence(Ordering::SeqCst),
            true => fence(Ordering::SeqCst),
        }
    }
}

impl Drop for Sitting {
    #[inline]
    fn drop(&mut self) {
        self.seat.using.store(0, Ordering::Release);
        if self.borrowed {
            self.seat.taken.store(false, Ordering::Release);
        }
    }
}

/// A seat for a thread that has none.
#[cold]
fn first() -> Result<Sitting> {
    fork::check()?;
    let seat = free_seat().unwrap_or_else(new_seat);
    // A thread that is ending has nobody to give its seat back later: it borrows one each time.
    let borrowed = KEEPER.try_with(|_| SEAT.set(seat)).is_err();
    Ok(Sitting { seat, borrowed })
}

fn all() -> impl Iterator<Item = &'static Seat> {
    let mut next = SEATS.load(Ordering::Acquire);
    std::iter::from_fn(move || {
        // SAFETY: the list is only ever added to, and seats live for ever.
        let seat = unsafe { next.as_ref() }?;
        next = seat.next;
        Some(seat)
    })
}

fn free_seat() -> Option<&'static Seat> {
    all().find(|seat| {
        let order = (Ordering::Acquire, Ordering::Relaxed);
        seat.taken.compare_exchange(false, true, order.0, order.1).is_ok()
    })
}

fn new_seat() -> &'static Seat {
    let (using, taken) = (AtomicU64::new(0), AtomicBool::new(true));
    let seat = Box::into_raw(Box::new(Seat { using, taken, next: ptr::null_mut() }));
    let mut first = SEATS.load(Ordering::Relaxed);
    loop {
        // SAFETY: nobody else knows of the seat before it is in the list.
        unsafe { (*seat).next = first };
        match SEATS.compare_exchange_weak(first, seat, Ordering::SeqCst, Ordering::Relaxed) {
            // SAFETY: it is never freed.
            Ok(_) => return unsafe { &*seat },
            Err(other) => first = other,
        }
    }
}

/// After this every use noted before what the caller has just withdrawn is seen by [`in_use`],
/// and every later use sees that it was withdrawn.
pub fn barrier() {
    fence(Ordering::SeqCst);
    if !FENCED.load(Ordering::Relaxed) {
        membarrier(BARRIER);
    }
}

/// Does a thread use this? Only to be believed after a [`barrier`].
pub fn in_use(what: u64) -> bool {
    all().any(|seat| seat.using.load(Ordering::Acquire) == what)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sees at once a use that is not noted or not looked for. That a barrier is missing it sees
    /// only where both threads run at the same moment for long enough: a switch is a barrier.
    #[test]
    fn what_was_withdrawn_is_used_by_nobody_who_looked_after_noting() {
        const THING: u64 = 77;
        const ROUNDS: usize = 20_000;
        static TO_BE_HAD: AtomicBool = AtomicBool::new(true);
        static GONE: AtomicBool = AtomicBool::new(false);
        static ENDED: AtomicBool = AtomicBool::new(false);
        prepare();
        let pause = |turns: usize| (0..turns).for_each(|_| std::hint::spin_loop());
        let use_it = || {
            while !ENDED.load(Ordering::Relaxed) {
                let sitting = Sitting::on(THING).unwrap();
                if TO_BE_HAD.load(Ordering::Relaxed) {
                    for _ in 0..500 {
                        assert!(!GONE.load(Ordering::Relaxed), "used after it was gone");
                    }
                }
                drop(sitting);
                // A thread that is mostly inside loses the processor there, and blocks the other.
                pause(50);
            }
        };
        let began = std::time::Instant::now();
        std::thread::scope(|scope| {
            let user = scope.spawn(use_it);
            for round in 0..ROUNDS {
                TO_BE_HAD.store(false, Ordering::Relaxed);
                barrier();
                while in_use(THING) && !user.is_finished() {
                    std::thread::yield_now();
                }
                GONE.store(true, Ordering::Relaxed);
                pause(10);
                GONE.store(false, Ordering::Relaxed);
                barrier();
                TO_BE_HAD.store(true, Ordering::Relaxed);
                pause(round % 50);
                // Enough on a machine that is busy with something else.
                if began.elapsed() > std::time::Duration::from_millis(500) {
                    break;
                }
            }
            ENDED.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn the_seat_of_a_thread_that_ended_is_taken_by_the_next() {
        let count = || all().count();
        let sit = || drop(Sitting::on(1).unwrap());
        std::thread::spawn(sit).join().unwrap();
        let before = count();
        for _ in 0..50 {
            std::thread::spawn(sit).join().unwrap();
        }
        // Other tests of this program run beside this one and need a few.
        assert!(count() < before + 25, "{before} seats became {}", count());
    }
}
