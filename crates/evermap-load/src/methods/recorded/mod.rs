//! An image that notes how it is used: each window of 64 KiB is asked for when it is first touched, and copied.
//!
//! Slower than every other way, and used once: what it notes makes the next loads fast. No thread is needed for what `ensure` asks for; two equal
//! threads serve what is touched, either of which may disappear at any instruction: nothing is locked.

mod bring;
mod service;

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use evermap_observe::{Moment, Usage};
use rustix::event::EventfdFlags;
use rustix::io::Errno;

use super::fork::{self, Forked};
use super::{Job, Stop};
use crate::error::Result;
use crate::plan::ForkPolicy;
use crate::recording::{Recording, Touch, WINDOW_BYTES};
use crate::region::Region;
use crate::sys::advice::{Harmless, forget};
use crate::sys::pages::written_bytes;
use crate::sys::userfault::{Scope, Userfault};

/// Nothing is there.
const MISSING: u8 = 0;
/// Bytes of the file are.
const PRESENT: u8 = 1;
/// Nothing ever will be.
const FAILED: u8 = 2;

/// An image that is being recorded, as its threads and whoever uses it see it.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) region: Region,
    job: Job,
    userfault: Userfault,
    /// Rung when the threads are to stop.
    bell: OwnedFd,
    fork: ForkPolicy,
    /// A window each: how many were touched before it, twice, and one more if it was touched by a write; 0 is not touched.
    touches: Box<[AtomicU32]>,
    touched: AtomicU32,
    /// A window each.
    states: Box<[AtomicU8]>,
    /// Why the first one failed that did.
    failure: OnceLock<(usize, Errno)>,
    stop: AtomicBool,
    is_over: AtomicBool,
    /// What was written, when the kernel does not note it any more.
    written_bytes: AtomicU64,
    /// The process that the threads are of: a child that was forked has none of them.
    process: u32,
    /// Numbers of the threads that serve; 0 is none.
    threads: [AtomicU32; service::THREADS],
    begun: Moment,
    usage: OnceLock<Usage>,
    /// So many threads disappear when they are told of a fault.
    #[cfg(test)]
    vanishing: AtomicU32,
}

/// An image's hold on its recording.
#[derive(Debug)]
pub(crate) struct Recorded {
    shared: Arc<Shared>,
}

impl Recorded {
    /// Makes an image of which nothing is there yet.
    pub(crate) fn start(job: &Job, fork: ForkPolicy) -> Result<Recorded, Stop> {
        Stop::if_unsized(job)?;
        let userfault = Userfault::for_recording().map_err(Stop::Refused)?;
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| job.source.failed("make an event for", errno))?;
        let windows = job.part.memory_bytes().div_ceil(WINDOW_BYTES);
        let region = Region::private(windows * WINDOW_BYTES)
            .map_err(|errno| job.source.failed("get memory for", errno))?;
        let (address, bytes) = (region.address() as usize, region.bytes());
        if bytes > 0 {
            // SAFETY: nobody has seen the region.
            if unsafe { forget(address, bytes) }.is_err() {
                let why = "all memory of this process is locked (mlockall)";
                return Err(Stop::Refused(why.into()));
            }
            region
                .advise(0, bytes, Harmless::DontFork)
                .map_err(|errno| job.source.failed("keep from children the memory for", errno))?;
            // SAFETY: the region is anonymous and unused, and lives as long as the userfaultfd.
            unsafe { userfault.register(address, bytes) }.map_err(|errno| {
                Stop::Refused(format!("userfaultfd does not serve it: {errno}"))
            })?;
        }
        let shared = Arc::new(Shared {
            region,
            job: job.clone(),
            userfault,
            bell,
            fork,
            touches: (0..windows).map(|_| AtomicU32::new(0)).collect(),
            touched: AtomicU32::new(0),
            states: (0..windows).map(|_| AtomicU8::new(MISSING)).collect(),
            failure: OnceLock::new(),
            stop: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            written_bytes: AtomicU64::new(0),
            process: std::process::id(),
            threads: Default::default(),
            begun: Moment::now(),
            usage: OnceLock::new(),
            #[cfg(test)]
            vanishing: AtomicU32::new(0),
        });
        service::start(&shared).map_err(|error| {
            Stop::Refused(format!("no thread is to be had that would record it: {error}"))
        })?;
        let load: Arc<dyn Forked> = shared.clone();
        fork::note(Arc::downgrade(&load), fork);
        Ok(Recorded { shared })
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Whether faults within system calls are served too.
    pub(crate) fn serves_system_calls(&self) -> bool {
        self.shared.userfault.scope() == Scope::All || self.shared.is_over()
    }

    /// Has a part of the memory there. Counts as touched.
    pub(crate) fn ensure(&self, part: Range<usize>) -> Result<()> {
        if part.is_empty() {
            return Ok(());
        }
        let mut buffer = vec![0; WINDOW_BYTES];
        for window in part.start / WINDOW_BYTES..part.end.div_ceil(WINDOW_BYTES) {
            self.shared.touch(window, false);
            self.shared.bring(window, &mut buffer)?;
        }
        Ok(())
    }

    /// Has all of it there where system calls need that, which ends the recording; else it is there for whoever looks.
    pub(crate) fn wait(&self) -> Result<()> {
        if !self.serves_system_calls() {
            self.shared.bring_all()?;
        }
        self.shared.failure()
    }

    /// Has all of it there, which ends the recording.
    pub(crate) fn finish(&self) -> Result<()> {
        if !self.shared.is_over() {
            self.shared.bring_all()?;
        }
        self.shared.failure()
    }

    /// What was noted until now.
    pub(crate) fn recording(&self) -> Recording {
        self.shared.recording()
    }

    /// What it has cost the process until now, or until it was over.
    pub(crate) fn usage(&self) -> Usage {
        self.shared.usage.get().copied().unwrap_or_else(|| self.shared.begun.since())
    }
}

impl Shared {
    /// Notes that a window is touched, if it was not before.
    fn touch(&self, window: usize, is_write: bool) {
        let Some(touch) = self.touches.get(window) else { return };
        if touch.load(Ordering::Relaxed) == 0 && !self.is_over() {
            let order = self.touched.fetch_add(1, Ordering::Relaxed) + 1;
            let noted = order << 1 | u32::from(is_write);
            // Two may touch it at once: one of them is the first, and a number is left out.
            let _ = touch.compare_exchange(0, noted, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Bytes of pages that were written until now, as far as the kernel notes them; else of windows that were first touched by a write.
    fn noted_bytes(&self) -> u64 {
        if self.is_over() {
            return self.written_bytes.load(Ordering::Acquire);
        }
        let (address, bytes) = (self.region.address() as usize, self.region.bytes());
        let noted = match self.userfault.notes_writes() {
            true => written_bytes(address, bytes),
            false => None,
        };
        noted.unwrap_or_else(|| {
            let touches = self.touches.iter().map(|touch| touch.load(Ordering::Relaxed));
            touches.filter(|touch| touch & 1 == 1).count() as u64 * WINDOW_BYTES as u64
        })
    }

    fn recording(&self) -> Recording {
        let mut touches: Vec<(u32, Touch)> = Vec::new();
        for (window, touch) in self.touches.iter().enumerate() {
            let noted = touch.load(Ordering::Relaxed);
            if noted != 0 {
                let touch = Touch { window: window as u32, is_write: noted & 1 == 1 };
                touches.push((noted >> 1, touch));
            }
        }
        touches.sort_unstable_by_key(|(order, _)| *order);
        let touches = touches.into_iter().map(|(_, touch)| touch).collect();
        Recording::new(&self.job, touches, self.noted_bytes())
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// This is a child that was forked.
    fn is_elsewhere(&self) -> bool {
        self.process != std::process::id()
    }
}

impl Forked for Shared {
    fn is_over(&self) -> bool {
        Shared::is_over(self)
    }

    fn finish(&self) {
        let _ = self.bring_all();
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        if !self.shared.is_elsewhere() {
            service::stop(&self.shared);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::counters::Counters;
    use crate::part::Part;
    use crate::source::Source;

    #[test]
    fn whoever_touches_a_window_sees_it_though_threads_disappear() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        std::fs::write(&path, vec![7; 8 * WINDOW_BYTES]).unwrap();
        let source = Arc::new(Source::open(&path).unwrap());
        let part = Part::new(0..source.bytes(), source.block_bytes());
        let data = source.data(evermap_observe::Span::new(0, part.end)).into();
        let counters = Arc::new(Counters::new());
        let job = Job { source, part, data, counters, is_partly_cached: true };
        let recorded = match Recorded::start(&job, ForkPolicy::Finish) {
            Err(Stop::Refused(why)) => return println!("skipped: {why}"),
            other => other.unwrap(),
        };
        let shared = recorded.shared();
        for window in 0..8 {
            shared.vanishing.store(1, Ordering::Relaxed);
            // SAFETY: within the region, whose pages are there or come.
            let byte =
                unsafe { shared.region.address().add(window * WINDOW_BYTES).read_volatile() };
            assert_eq!(byte, 7);
        }
        assert_eq!(recorded.recording().touches().len(), 8);
        assert!(job.counters.threads_replaced.load(Ordering::Relaxed) > 0);
    }
}
