//! Takeover on demand: an image that can be used at once, whose windows come when they are touched, and before.
//!
//! `docs/load.md`, "Takeover on demand", has the design. What is shared between threads is here; `loader` is the thread that reads,
//! `deputy` the one that sees to it, `post` who is which, `place` how pages get where they belong, `stream` what is read next, `staging` where to.

mod deputy;
#[cfg(test)]
mod injected;
mod loader;
mod place;
mod post;
mod reads;
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
use super::{Job, Stop};
use crate::error::{Change, Error, Result};
use crate::plan::{ForkPolicy, Order};
use crate::region::Region;
use crate::sys::advice::{Harmless, forget};
use crate::sys::userfault::{Scope, Userfault};
use crate::windows::{State, Windows};

use post::Post;
use staging::Staging;

/// How long somebody waits before it looks whether the threads still live.
const PATIENCE: Duration = Duration::from_millis(100);
/// How long a stopped load may take to end: the reads that are under way.
const ENDING: Duration = Duration::from_secs(30);

/// How long threads of a load that has ended may take to go, in steps.
const GOING_STEP: Duration = Duration::from_micros(50);
const GOING_STEPS_MAX: usize = 1000;

/// A load that may be under way, as its threads and its image see it.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) region: Region,
    pub(crate) job: Job,
    pub(crate) windows: Windows,
    userfault: Userfault,
    /// Rung when a window is wanted, or the load is to stop.
    bell: OwnedFd,
    fork: ForkPolicy,
    recorded: Vec<u32>,
    is_random: bool,
    stop: AtomicBool,
    loader: Post,
    deputy: Post,
    /// Loader threads that were lost since the last window came.
    lost: AtomicU32,
    /// The process that the threads are of: a child that was forked has none of them.
    process: u32,
    /// Not 0: no thread looks at anything here any more. Slept on.
    ended: AtomicU32,
    /// When its stream's turn is, among others.
    turn: Turn,
    /// All is there, and children may have it.
    is_over: AtomicBool,
    change: OnceLock<Change>,
    begun: Moment,
    usage: OnceLock<Usage>,
    #[cfg(test)]
    pub(crate) injected: injected::Injected,
}

/// An image's hold on its load.
#[derive(Debug)]
pub(crate) struct OnDemand {
    shared: Arc<Shared>,
}

/// How a load on demand begins.
#[derive(Debug, Default)]
pub(crate) struct Start {
    pub(crate) fork: ForkPolicy,
    /// Windows in the order in which they were used the last time.
    pub(crate) recorded: Vec<u32>,
    /// It will be touched at random.
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
    /// Makes an image of which nothing is there yet, and has threads load it.
    pub(crate) fn start(job: &Job, start: Start) -> Result<OnDemand, Stop> {
        Stop::if_unsized(job)?;
        let userfault = Userfault::new().map_err(Stop::Refused)?;
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| Stop::Refused(format!("no event is to be had: {errno}")))?;
        // Here, where want of memory is known before anybody waits for bytes.
        let staging = Staging::new(job.part.windows())
            .map_err(|errno| Stop::Refused(format!("no memory to stage reads in: {errno}")))?;
        let region = Region::aligned(job.part.windows() * crate::sys::HUGE_PAGE_BYTES)
            .map_err(|errno| job.source.failed("get memory for", errno))?;
        // Its huge pages come from the staging area.
        region.unite();
        let (address, bytes) = (region.address() as usize, region.bytes());
        // A process that locks all its future memory (`mlockall`) has these pages already: as zeros.
        // SAFETY: nobody has seen the region.
        if unsafe { forget(address, bytes) }.is_err() {
            return Err(Stop::Refused("all memory of this process is locked (mlockall)".into()));
        }
        region
            .advise(0, bytes, Harmless::DontFork)
            .map_err(|errno| job.source.failed("keep from children the memory for", errno))?;
        // SAFETY: the region is anonymous and unused, and lives as long as the userfaultfd.
        unsafe { userfault.register(address, bytes) }
            .map_err(|errno| Stop::Refused(format!("userfaultfd does not serve it: {errno}")))?;
        let shared = Arc::new(Shared {
            windows: Windows::new(job.part.windows()),
            region,
            job: job.clone(),
            userfault,
            bell,
            fork: start.fork,
            recorded: start.recorded,
            is_random: start.is_random,
            stop: AtomicBool::new(false),
            loader: Post::vacant(),
            deputy: Post::vacant(),
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
        loader::spawn(&shared, staging).map_err(|error| {
            Stop::Refused(format!("no thread is to be had that would load it: {error}"))
        })?;
        // Not by the loader thread: its first call may be what it is killed for.
        deputy::look(&shared);
        let load: Arc<dyn Forked> = shared.clone();
        fork::note(Arc::downgrade(&load), shared.fork);
        Ok(OnDemand { shared })
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Whether faults within system calls are served too.
    pub(crate) fn serves_system_calls(&self) -> bool {
        self.shared.userfault.scope() == Scope::All
    }

    /// Has some windows read before others, and waits for nothing.
    pub(crate) fn want(&self, windows: Range<usize>) {
        self.shared.want(windows);
    }

    /// Waits until some windows are there.
    pub(crate) fn ensure(&self, windows: Range<usize>) -> Result<()> {
        self.shared.ensure(windows)
    }

    /// Waits until all windows are there that were not left out.
    pub(crate) fn wait(&self) -> Result<()> {
        let shared = &self.shared;
        // Complete is what is also over: ordinary memory, with all figures of its report.
        shared.wait_until(|| {
            let windows = &shared.windows;
            windows.are_settled()
                && (shared.is_over() || windows.failed() > 0 || !windows.are_complete())
        })?;
        shared.failure(0..shared.windows.len())
    }

    /// What it has cost the process, when it is over.
    pub(crate) fn usage(&self) -> Usage {
        self.shared.usage.get().copied().unwrap_or_else(|| self.shared.begun.since())
    }
}

impl Shared {
    /// Whether all is there, as ordinary memory.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Whether no thread looks at anything here any more.
    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire) != 0
    }

    fn want(&self, windows: Range<usize>) {
        let mut is_news = false;
        for window in windows {
            is_news |= self.windows.want(window);
        }
        if is_news {
            self.ring();
        }
    }

    /// Has the loader thread look at what is wanted.
    fn ring(&self) {
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    fn ensure(&self, windows: Range<usize>) -> Result<()> {
        let is_there =
            |window| matches!(self.windows.state(window), State::Present | State::Mapped);
        if windows.clone().all(is_there) {
            return Ok(());
        }
        self.want(windows.clone());
        self.wait_until(|| {
            windows
                .clone()
                .all(|window| is_there(window) || self.windows.state(window) == State::Failed)
        })?;
        self.failure(windows)
    }

    /// Waits for something that the threads bring about, as long as there are any.
    fn wait_until(&self, is_enough: impl Fn() -> bool) -> Result<()> {
        while !self.windows.wait(PATIENCE, &is_enough) {
            let is_lost = self.is_elsewhere() || self.threads_are_lost();
            if !is_lost && !self.has_ended() {
                continue;
            }
            // They may have ended because it is enough.
            if is_enough() {
                return Ok(());
            }
            if !self.is_elsewhere() {
                // Whoever has touched a page waits for nobody: a signal is better.
                loader::give_up(self);
            }
            return Err(Error::ThreadsLost { path: self.job.source.path().into() });
        }
        Ok(())
    }

    /// This is a child that was forked: what is changed by the userfaultfd is its parent's memory.
    fn is_elsewhere(&self) -> bool {
        self.process != std::process::id()
    }

    /// Neither the thread that loads nor the one that would replace it is there.
    fn threads_are_lost(&self) -> bool {
        let loader = self.loader.holder();
        // A deputy becomes the loader thread before it leaves its own post: then the holder has changed.
        !self.loader.is_held() && !self.deputy.is_held() && self.loader.holder() == loader
    }

    /// The error of the first of some windows that failed.
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
    /// Has the load stop, and waits for that: reads may be under way. Afterwards its addresses and its descriptors are free, so that others may have
    /// the same ones.
    fn drop(&mut self) {
        let shared = &self.shared;
        if shared.is_elsewhere() {
            return;
        }
        shared.stop.store(true, Ordering::Release);
        shared.ring();
        let begun = std::time::Instant::now();
        while !shared.windows.wait(PATIENCE, || shared.has_ended()) {
            if shared.threads_are_lost() || begun.elapsed() > ENDING {
                return;
            }
        }
        // SAFETY: the image that had its addresses is being dropped, and its threads have ended.
        unsafe { shared.region.unmap() };
        // Memory and descriptors are given back with the last hold on them: not a moment after the image is gone, when the next one may
        // need them.
        for _ in 0..GOING_STEPS_MAX {
            if Arc::strong_count(&self.shared) == 1 {
                return;
            }
            std::thread::sleep(GOING_STEP);
        }
    }
}
