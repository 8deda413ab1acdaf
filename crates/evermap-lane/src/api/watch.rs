//! Watchdog: a thread at a higher priority on another core that demotes a program that does not
//! sleep.
//!
//! It counts processor time since the thread last slept; waiting for a disk counts as sleep. It
//! compares the thread's clock and its voluntary switches every `max_overrun` periods, at most 50
//! times a second.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::counters::voluntary_switches;
use crate::reads::Aside;
use crate::report::{Cause, Demotion, ms};
use crate::sys::scheduler::{self, Scheduling, Thread};
use crate::sys::time::processor_ns;

const LOOK_MIN: Duration = Duration::from_millis(20);

/// Settings of the watchdog.
#[derive(Clone, Debug)]
pub(super) struct Orders {
    /// Time that the program may run without sleeping.
    pub(super) allowed: Duration,
    /// End of the lane. The program loses its priority then.
    pub(super) end: Option<Instant>,
    /// Placement of the watchdog.
    pub(super) aside: Aside,
    /// Priority of the program.
    pub(super) priority: u32,
}

/// Handle of the watchdog, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Watchman {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    is_over: AtomicBool,
    /// Reason why the watchdog did not get its priority.
    refused: OnceLock<String>,
    is_there: AtomicBool,
    /// Even during frames, odd outside of them: before the first frame and while a file is opened.
    /// Time outside of frames is not counted.
    rests: AtomicU64,
    demotion: OnceLock<Demotion>,
}

impl Watchman {
    /// Starts a watchdog of the calling thread.
    pub(super) fn start(orders: Orders) -> io::Result<Self> {
        let watched = rustix::thread::gettid();
        let shared = Arc::new(Shared::default());
        let of_watchman = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("evermap-watch".into())
            .stack_size(128 << 10)
            .spawn(move || {
                of_watchman.go_to(&orders);
                of_watchman.is_there.store(true, Ordering::Release);
                of_watchman.watch(watched, &orders);
            })?;
        let watchman = Self { shared, thread: Some(thread) };
        watchman.rest();
        // The watchdog must have its priority before the program gets its own.
        while !watchman.shared.is_there.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(watchman)
    }

    /// Reason why the watchdog has a lower priority than intended, or `None`.
    pub(super) fn refused(&self) -> Option<&str> {
        self.shared.refused.get().map(String::as_str)
    }

    /// Stops counting until the next frame.
    pub(super) fn rest(&self) {
        self.shared.rests.fetch_or(1, Ordering::Relaxed);
    }

    /// Counts again. Cost during frames: one load.
    pub(super) fn resume(&self) {
        if self.shared.rests.load(Ordering::Relaxed) % 2 == 1 {
            self.shared.rests.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Ends the watchdog. Returns the demotion if there was one.
    pub(super) fn end(mut self) -> Option<Demotion> {
        self.stop();
        self.shared.demotion.get().copied()
    }

    fn stop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }

    /// Forgets the thread in a forked process, which has no such thread.
    pub(super) fn forget(&mut self) {
        self.thread = None;
    }
}

impl Drop for Watchman {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn go_to(&self, orders: &Orders) {
        orders.aside.go();
        let above = orders.priority + 1;
        if let Err(error) = scheduler::set(Thread::CURRENT, &Scheduling::fifo(above)) {
            let _ = scheduler::set(Thread::CURRENT, &Scheduling::fifo(orders.priority));
            let why = format!(
                "priority {above} was refused ({error}): the watchdog has the program's priority or none"
            );
            let _ = self.refused.set(why);
        }
    }

    fn watch(&self, watched: rustix::thread::Pid, orders: &Orders) {
        let begin = Instant::now();
        let id = watched.as_raw_nonzero().get() as u32;
        let Some(thread) = Thread::of(id) else { return };
        let look =
            || Some((voluntary_switches(std::process::id(), id)?, processor_ns(watched).ok()?));
        let Some(mut slept) = look() else { return };
        let mut rests = self.rests.load(Ordering::Relaxed);
        let mut pause = orders.allowed.max(LOOK_MIN);
        while !self.is_over.load(Ordering::Relaxed) {
            std::thread::park_timeout(pause);
            // An error means that the thread has ended.
            let Some(now) = look() else { return };
            let rests_now = self.rests.load(Ordering::Relaxed);
            if now.0 != slept.0 || rests_now % 2 == 1 || rests_now != rests {
                (slept, rests) = (now, rests_now);
            }
            let ran = Duration::from_nanos(now.1.saturating_sub(slept.1));
            let is_late = orders.end.is_some_and(|end| end.elapsed() >= orders.allowed);
            let cause = match ran >= orders.allowed {
                true => Cause::Ran,
                false if is_late => Cause::TimeOver,
                false => {
                    pause = (orders.allowed - ran).max(LOOK_MIN);
                    continue;
                }
            };
            if !self.is_over.load(Ordering::Relaxed) {
                let _ = scheduler::set_back(thread, &Scheduling::default());
                let _ = self.demotion.set(Demotion {
                    cause,
                    after_ms: ms(begin.elapsed().as_nanos() as u64),
                    ran_ms: ms(ran.as_nanos() as u64),
                    allowed_ms: ms(orders.allowed.as_nanos() as u64),
                });
            }
            return;
        }
    }
}
