//! Takeover on demand: an image that is usable at once. Its windows are loaded in the background
//! and on access.
//!
//! `docs/load.md`, "Takeover on demand", describes the design. This module holds the state shared
//! between threads. `loader` reads, `deputy` watches the loader, `role` records which thread is
//! which, `place` moves pages, `stream` picks the next window, and `staging` is the memory for
//! reads.

mod deputy;
#[cfg(test)]
mod injected;
mod loader;
mod place;
mod reads;
mod role;
mod staging;
mod stream;
#[cfg(test)]
mod tests;
pub(crate) mod turns;

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use evermap_observe::{Moment, Usage};
use rustix::event::EventfdFlags;
use rustix::io::Errno;

use self::turns::Turn;
use super::fork::{self, Forked};
use super::{Stop, serve_missing_pages, wait_for_last_reference};
use crate::error::{Change, Error, Result};
use crate::job::Job;
use crate::plan::{ForkPolicy, Order};
use crate::region::Region;
use crate::sys::userfault::{Scope, Userfault};
use crate::windows::{State, Windows};

use role::Role;
use staging::Staging;

/// Interval at which a waiting thread checks that the threads live.
const CHECK_PERIOD: Duration = Duration::from_millis(100);
/// Maximum time for a stopped load to end, for outstanding reads.
const END_TIMEOUT: Duration = Duration::from_secs(30);

/// State of a load, shared by its threads and its image.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) region: Region,
    pub(crate) job: Job,
    pub(crate) windows: Windows,
    userfault: Userfault,
    /// Event for the loader thread: a window is wanted, or the load shall stop.
    wakeup: OwnedFd,
    fork: ForkPolicy,
    recorded: Vec<u32>,
    is_random: bool,
    stop: AtomicBool,
    loader: Role,
    deputy: Role,
    /// Number of loader threads lost since the last window was loaded.
    lost: AtomicU32,
    /// Process that owns the threads. A forked child has none of them.
    process: u32,
    /// Nonzero once no thread uses the region or will use it. Set by the loader. Threads sleep on
    /// it.
    ended: AtomicU32,
    /// Turn of its stream in a set of loads.
    turn: Turn,
    /// True if all windows are loaded and children may have the memory.
    is_over: AtomicBool,
    change: OnceLock<Change>,
    begun: Moment,
    usage: OnceLock<Usage>,
    #[cfg(test)]
    pub(crate) injected: injected::Injected,
}

/// Owner of a load.
#[derive(Debug)]
pub(crate) struct OnDemand {
    shared: Arc<Shared>,
}

/// Options of an on-demand load.
#[derive(Debug, Default)]
pub(crate) struct Start {
    pub(crate) fork: ForkPolicy,
    /// Windows in the order of their first touches in a recording.
    pub(crate) recorded: Vec<u32>,
    /// True if access is expected at random.
    pub(crate) is_random: bool,
    pub(crate) turn: Turn,
    #[cfg(test)]
    pub(crate) injected: injected::Injected,
}

impl Start {
    pub(crate) fn new(fork: ForkPolicy, recorded: Vec<u32>, order: Order, turn: Turn) -> Start {
        Start {
            fork,
            recorded,
            is_random: order == Order::Random,
            turn,
            #[cfg(test)]
            injected: injected::Injected::default(),
        }
    }
}

impl OnDemand {
    /// Creates an image without any loaded window, and starts the threads that load it.
    pub(crate) fn start(job: &Job, start: Start) -> Result<OnDemand, Stop> {
        Stop::if_unsized(job)?;
        let userfault = Userfault::new().map_err(Stop::Refused)?;
        let wakeup = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| Stop::Refused(format!("cannot create an event: {errno}")))?;
        // Allocate here, so that lack of memory is detected before any thread waits for bytes.
        let staging = Staging::new(job.part.windows())
            .map_err(|errno| Stop::Refused(format!("cannot allocate the staging area: {errno}")))?;
        let region = Region::aligned(job.part.windows() * crate::sys::HUGE_PAGE_BYTES)
            .map_err(|errno| job.source.failed("get memory for", errno))?;
        // Its huge pages come from the staging area.
        region.merge_advice();
        // SAFETY: no other user of the region exists yet, and it lives as long as the userfaultfd.
        unsafe { serve_missing_pages(job, &region, &userfault) }?;
        let shared = Arc::new(Shared {
            windows: Windows::new(job.part.windows()),
            region,
            job: job.clone(),
            userfault,
            wakeup,
            fork: start.fork,
            recorded: start.recorded,
            is_random: start.is_random,
            stop: AtomicBool::new(false),
            loader: Role::vacant(),
            deputy: Role::vacant(),
            lost: AtomicU32::new(0),
            process: std::process::id(),
            ended: AtomicU32::new(0),
            turn: start.turn,
            is_over: AtomicBool::new(false),
            change: OnceLock::new(),
            begun: Moment::now(),
            usage: OnceLock::new(),
            #[cfg(test)]
            injected: start.injected,
        });
        loader::spawn(&shared, staging)
            .map_err(|error| Stop::Refused(format!("cannot start a thread to load it: {error}")))?;
        // Not in the loader thread, whose first system call may get it killed.
        deputy::keep_deputy(&shared);
        let load: Arc<dyn Forked> = shared.clone();
        fork::note(Arc::downgrade(&load), shared.fork);
        Ok(OnDemand { shared })
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Returns true if faults in system calls are served too.
    pub(crate) fn serves_system_calls(&self) -> bool {
        self.shared.userfault.scope() == Scope::All
    }

    /// Loads these windows before others, without waiting.
    pub(crate) fn want(&self, windows: Range<usize>) {
        self.shared.want(windows);
    }

    /// Waits until these windows are loaded.
    pub(crate) fn ensure(&self, windows: Range<usize>) -> Result<()> {
        self.shared.ensure(windows)
    }

    /// Waits until all windows are loaded that were not skipped.
    pub(crate) fn wait(&self) -> Result<()> {
        let shared = &self.shared;
        // A complete load must also be over, so that the memory is ordinary and the report final.
        shared.wait_until(|| {
            let windows = &shared.windows;
            windows.are_settled()
                && (shared.is_over() || windows.failed() > 0 || !windows.are_complete())
        })?;
        shared.failure(0..shared.windows.len())
    }

    /// Returns the resources used until the load was over, or until now.
    pub(crate) fn usage(&self) -> Usage {
        self.shared.usage.get().copied().unwrap_or_else(|| self.shared.begun.since())
    }
}

impl Shared {
    /// Returns true if all windows are loaded and the memory is ordinary.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Returns true if no thread uses this state any more.
    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire) != 0
    }

    fn want(&self, windows: Range<usize>) {
        let mut is_new = false;
        for window in windows {
            is_new |= self.windows.want(window);
        }
        if is_new {
            self.wake_loader();
        }
    }

    /// Wakes the loader thread to check for wanted windows.
    pub(crate) fn wake_loader(&self) {
        let _ = rustix::io::write(&self.wakeup, &1u64.to_ne_bytes());
    }

    fn ensure(&self, windows: Range<usize>) -> Result<()> {
        let is_present =
            |window| matches!(self.windows.state(window), State::Present | State::Mapped);
        if windows.clone().all(is_present) {
            return Ok(());
        }
        self.want(windows.clone());
        self.wait_until(|| {
            windows
                .clone()
                .all(|window| is_present(window) || self.windows.state(window) == State::Failed)
        })?;
        self.failure(windows)
    }

    /// Waits for a condition that the threads bring about, while any of them lives. A fork can wait
    /// for an image that another thread drops, and must not use its region after the threads have
    /// ended.
    fn wait_until(&self, is_enough: impl Fn() -> bool) -> Result<()> {
        while !self.windows.wait(CHECK_PERIOD, &is_enough) {
            let is_child = self.is_forked_child();
            // A thread that ends by itself sets `ended` first.
            if !is_child && self.replaces_lost_threads() && !self.has_ended() {
                // Threads that wait at a missing page would wait for ever, so raise a signal there.
                loader::give_up(self);
            }
            if !is_child && !self.has_ended() {
                continue;
            }
            // The threads may have ended because the condition holds.
            return match is_enough() {
                true => Ok(()),
                false => Err(Error::ThreadsLost { path: self.job.source.path().into() }),
            };
        }
        Ok(())
    }

    /// Returns true in a forked child, where the userfaultfd would change the parent's memory.
    fn is_forked_child(&self) -> bool {
        self.process != std::process::id()
    }

    /// Returns true if both the loader thread and its deputy are gone.
    fn threads_are_lost(&self) -> bool {
        let loader = self.loader.holder();
        // A deputy becomes the loader before it gives up its own role, and the holder changes then.
        !self.loader.is_held() && !self.deputy.is_held() && self.loader.holder() == loader
    }

    /// Makes this thread the loader if the loader thread and its deputy are gone.
    fn replaces_lost_threads(&self) -> bool {
        let loader = self.loader.holder();
        self.threads_are_lost() && self.loader.take_from(loader)
    }

    /// Returns the error of the first failed window in a range.
    fn failure(&self, windows: Range<usize>) -> Result<()> {
        let Some((window, errno)) = self.windows.failure(windows) else { return Ok(()) };
        let path = self.job.source.path().into();
        if let Some(change) = self.change.get() {
            return Err(Error::Changed { path, change: *change });
        }
        if errno == Errno::OWNERDEAD {
            return Err(Error::ThreadsLost { path });
        }
        let window = self.job.part.window(window);
        Err(Error::Unreadable {
            path,
            offset_bytes: window.offset,
            length_bytes: window.bytes as u64,
            source: errno.into(),
        })
    }
}

impl Forked for Shared {
    fn is_over(&self) -> bool {
        Shared::is_over(self)
    }

    fn finish(&self) {
        self.want(0..self.windows.len());
        let _ = self.wait_until(|| {
            self.is_over() || (self.windows.are_settled() && self.windows.failed() > 0)
        });
    }
}

impl Drop for OnDemand {
    /// Stops the load and waits for its threads, because reads may be outstanding. Afterwards the
    /// addresses and descriptors are free for reuse.
    fn drop(&mut self) {
        let shared = &self.shared;
        if shared.is_forked_child() {
            return;
        }
        shared.stop.store(true, Ordering::Release);
        shared.wake_loader();
        let begun = std::time::Instant::now();
        while !shared.windows.wait(CHECK_PERIOD, || shared.has_ended()) {
            if shared.threads_are_lost() || begun.elapsed() > END_TIMEOUT {
                return;
            }
        }
        // SAFETY: the image that used the addresses is being dropped, and its threads have ended. A
        // fork that still waits for the load does not access them.
        unsafe { shared.region.unmap() };
        // The last reference releases memory and descriptors. Wait for it, because the next image
        // may need them.
        wait_for_last_reference(shared);
    }
}
