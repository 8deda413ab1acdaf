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
use crate::reads::HelperPlacement;
use crate::report::{Cause, Demotion, ms};
use crate::sys::scheduler::{self, Scheduling, Thread};
use crate::sys::time::processor_ns;

const POLL_INTERVAL_MIN: Duration = Duration::from_millis(20);

/// Settings of the watchdog.
#[derive(Clone, Debug)]
pub(super) struct WatchdogOptions {
    /// Time that the program may run without sleeping.
    pub(super) allowed: Duration,
    /// End of the lane. The program loses its priority then.
    pub(super) end: Option<Instant>,
    /// Placement of the watchdog.
    pub(super) placement: HelperPlacement,
    /// Priority of the program.
    pub(super) priority: u32,
}

/// Handle of the watchdog, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Watchdog {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    is_over: AtomicBool,
    /// Reason why the watchdog did not get its priority.
    refused: OnceLock<String>,
    is_ready: AtomicBool,
    /// Even during frames, odd outside of them: before the first frame and while a file is opened.
    /// Time outside of frames is not counted.
    suspensions: AtomicU64,
    demotion: OnceLock<Demotion>,
}

impl Watchdog {
    /// Starts a watchdog of the calling thread.
    pub(super) fn start(options: WatchdogOptions) -> io::Result<Self> {
        let watched = rustix::thread::gettid();
        let shared = Arc::new(Shared::default());
        let of_watchdog = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("evermap-watch".into())
            .stack_size(128 << 10)
            .spawn(move || {
                of_watchdog.raise(&options);
                of_watchdog.is_ready.store(true, Ordering::Release);
                of_watchdog.watch(watched, &options);
            })?;
        let watchdog = Self { shared, thread: Some(thread) };
        watchdog.suspend();
        // The watchdog must have its priority before the program gets its own.
        while !watchdog.shared.is_ready.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(watchdog)
    }

    /// Reason why the watchdog has a lower priority than intended, or `None`.
    pub(super) fn refused(&self) -> Option<&str> {
        self.shared.refused.get().map(String::as_str)
    }

    /// Stops counting until the next frame.
    pub(super) fn suspend(&self) {
        self.shared.suspensions.fetch_or(1, Ordering::Relaxed);
    }

    /// Counts again. Cost during frames: one load.
    pub(super) fn resume(&self) {
        if self.shared.suspensions.load(Ordering::Relaxed) % 2 == 1 {
            self.shared.suspensions.fetch_add(1, Ordering::Relaxed);
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

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn raise(&self, options: &WatchdogOptions) {
        options.placement.apply();
        let above = options.priority + 1;
        if let Err(error) = scheduler::set(Thread::CURRENT, &Scheduling::fifo(above)) {
            let _ = scheduler::set(Thread::CURRENT, &Scheduling::fifo(options.priority));
            let why = format!(
                "priority {above} was refused ({error}): the watchdog has the program's priority or none"
            );
            let _ = self.refused.set(why);
        }
    }

    fn watch(&self, watched: rustix::thread::Pid, options: &WatchdogOptions) {
        let begin = Instant::now();
        let id = watched.as_raw_nonzero().get() as u32;
        let Some(thread) = Thread::of(id) else { return };
        let sample =
            || Some((voluntary_switches(std::process::id(), id)?, processor_ns(watched).ok()?));
        let Some(mut slept) = sample() else { return };
        let mut suspensions = self.suspensions.load(Ordering::Relaxed);
        let mut pause = options.allowed.max(POLL_INTERVAL_MIN);
        while !self.is_over.load(Ordering::Relaxed) {
            std::thread::park_timeout(pause);
            // An error means that the thread has ended.
            let Some(now) = sample() else { return };
            let suspensions_now = self.suspensions.load(Ordering::Relaxed);
            if now.0 != slept.0 || suspensions_now % 2 == 1 || suspensions_now != suspensions {
                (slept, suspensions) = (now, suspensions_now);
            }
            let ran = Duration::from_nanos(now.1.saturating_sub(slept.1));
            let is_late = options.end.is_some_and(|end| end.elapsed() >= options.allowed);
            let cause = match ran >= options.allowed {
                true => Cause::Overrun,
                false if is_late => Cause::TimeOver,
                false => {
                    pause = (options.allowed - ran).max(POLL_INTERVAL_MIN);
                    continue;
                }
            };
            if !self.is_over.load(Ordering::Relaxed) {
                let _ = scheduler::restore(thread, &Scheduling::default());
                let _ = self.demotion.set(Demotion {
                    cause,
                    after_ms: ms(begin.elapsed().as_nanos() as u64),
                    ran_ms: ms(ran.as_nanos() as u64),
                    allowed_ms: ms(options.allowed.as_nanos() as u64),
                });
            }
            return;
        }
    }
}
