//! The watchman: a thread above the program's priority and on another core, which takes the priority from a program that runs and runs.
//!
//! What counts is processor time since the thread last slept, of whatever kind: who waits for a disk keeps nobody from anything. So the watchman looks at the
//! thread's clock and at its voluntary switches, every `max_overrun` periods and no more than 50 times a second.

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

/// What the watchman is told.
#[derive(Clone, Debug)]
pub(super) struct Orders {
    /// The program may run so long without sleeping.
    pub(super) allowed: Duration,
    /// The lane is over then: the program has no priority any more, whatever it does.
    pub(super) end: Option<Instant>,
    /// Where the watchman is.
    pub(super) aside: Aside,
    /// The priority of the program.
    pub(super) priority: u32,
}

/// Stands until it is dropped.
#[derive(Debug)]
pub(super) struct Watchman {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    is_over: AtomicBool,
    /// Why the watchman has not the priority it should have, if so.
    refused: OnceLock<String>,
    is_there: AtomicBool,
    /// Even while there are frames, odd while there are none, as before the first and while a file is opened: what is done there is not counted.
    rests: AtomicU64,
    demotion: OnceLock<Demotion>,
}

impl Watchman {
    /// Has this thread watched.
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
        // Before the program is: what is above it must not come after it.
        while !watchman.shared.is_there.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(watchman)
    }

    /// Why it stands lower than it should; none if it does not.
    pub(super) fn refused(&self) -> Option<&str> {
        self.shared.refused.get().map(String::as_str)
    }

    /// No frames for now: what is done is not counted before the next.
    pub(super) fn rest(&self) {
        self.shared.rests.fetch_or(1, Ordering::Relaxed);
    }

    /// Frames from now on. Cost: a load, where there were frames before.
    pub(super) fn resume(&self) {
        if self.shared.rests.load(Ordering::Relaxed) % 2 == 1 {
            self.shared.rests.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Ends it, and gives what it has done until then.
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

    /// In a process that was forked there is no thread to wait for.
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
                "it may not have priority {above} ({error}): it has the program's, or none"
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
            // It has ended.
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
