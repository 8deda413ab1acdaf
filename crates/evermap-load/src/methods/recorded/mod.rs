//! An image that records its use: each window of 64 KiB is loaded on first access, by a copy.
//!
//! Slower than every other method and used once. Its recording makes later loads fast. `ensure`
//! needs no thread. Two equal threads serve faults. Either can be killed at any instruction, so
//! there are no locks.

mod load;
mod service;

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use evermap_observe::{Moment, Usage};
use rustix::event::EventfdFlags;

use super::fork::{self, Forked};
use super::{Stop, serve_missing_pages, wait_for_last_reference};
use crate::error::Result;
use crate::job::Job;
use crate::plan::ForkPolicy;
use crate::recording::{Recording, Touch, WINDOW_BYTES};
use crate::region::Region;
use crate::sys::pages::written_bytes;
use crate::sys::userfault::{Scope, Userfault};

/// Window without contents.
const MISSING: u8 = 0;
/// Window with the file's bytes. Each higher value is [`PRESENT`] plus the error number of a window
/// that cannot be loaded.
const PRESENT: u8 = 1;

/// State of a recorded image, shared by its threads and users.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) region: Region,
    job: Job,
    userfault: Userfault,
    /// Event that tells the threads to stop.
    wakeup: OwnedFd,
    fork: ForkPolicy,
    /// For each window: twice its position in the order of touches (from 1), plus 1 if the first
    /// access was a write; 0 if untouched.
    touches: Box<[AtomicU32]>,
    touched: AtomicU32,
    /// State of each window.
    states: Box<[AtomicU8]>,
    stop: AtomicBool,
    is_over: AtomicBool,
    /// Bytes written, once the kernel no longer records writes.
    written_bytes: AtomicU64,
    /// Process that owns the threads. A forked child has none of them.
    process: u32,
    /// Ids of the serving threads; 0 if none.
    threads: [AtomicU32; service::THREADS],
    begun: Moment,
    usage: OnceLock<Usage>,
    /// Number of threads that shall vanish at their next fault.
    #[cfg(test)]
    vanishing: AtomicU32,
}

/// Owner of a recorded image's state.
#[derive(Debug)]
pub(crate) struct Recorded {
    shared: Arc<Shared>,
}

impl Recorded {
    /// Creates an image without any loaded window.
    pub(crate) fn start(job: &Job, fork: ForkPolicy) -> Result<Recorded, Stop> {
        Stop::if_unsized(job)?;
        let userfault = Userfault::for_recording().map_err(Stop::Refused)?;
        let wakeup = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| job.source.failed("make an event for", errno))?;
        let windows = job.part.memory_bytes().div_ceil(WINDOW_BYTES);
        let region = Region::private(windows * WINDOW_BYTES)
            .map_err(|errno| job.source.failed("get memory for", errno))?;
        // SAFETY: no other user of the region exists yet, and it lives as long as the userfaultfd.
        unsafe { serve_missing_pages(job, &region, &userfault) }?;
        let shared = Arc::new(Shared {
            region,
            job: job.clone(),
            userfault,
            wakeup,
            fork,
            touches: (0..windows).map(|_| AtomicU32::new(0)).collect(),
            touched: AtomicU32::new(0),
            states: (0..windows).map(|_| AtomicU8::new(MISSING)).collect(),
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
            Stop::Refused(format!("cannot start a thread to record it: {error}"))
        })?;
        let load: Arc<dyn Forked> = shared.clone();
        fork::note(Arc::downgrade(&load), fork);
        Ok(Recorded { shared })
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Returns true if faults in system calls are served too.
    pub(crate) fn serves_system_calls(&self) -> bool {
        self.shared.userfault.scope() == Scope::All || self.shared.is_over()
    }

    /// Loads a part of the memory. Counts as an access.
    pub(crate) fn ensure(&self, part: Range<usize>) -> Result<()> {
        if part.is_empty() {
            return Ok(());
        }
        let mut buffer = vec![0; WINDOW_BYTES];
        for window in part.start / WINDOW_BYTES..part.end.div_ceil(WINDOW_BYTES) {
            self.shared.touch(window, false);
            self.shared.load_window(window, &mut buffer)?;
        }
        Ok(())
    }

    /// Loads everything, which ends the recording, if system calls need that. Otherwise accesses
    /// load on their own.
    pub(crate) fn wait(&self) -> Result<()> {
        if !self.serves_system_calls() {
            self.shared.load_all()?;
        }
        self.shared.failure()
    }

    /// Loads everything, which ends the recording, before the memory gets another owner. Waits for
    /// threads that may still be loading a window or finishing the load for a fork. They would
    /// write to other memory that is later mapped at the same addresses.
    pub(crate) fn finish(&self) -> Result<()> {
        if !self.shared.is_over() {
            self.shared.load_all()?;
        }
        self.shared.failure()?;
        if !self.shared.is_forked_child() {
            service::stop(&self.shared);
            wait_for_last_reference(&self.shared);
        }
        Ok(())
    }

    /// Returns the recording so far.
    pub(crate) fn recording(&self) -> Recording {
        self.shared.recording()
    }

    /// Returns the resources used until now, or until loading was complete.
    pub(crate) fn usage(&self) -> Usage {
        self.shared.usage.get().copied().unwrap_or_else(|| self.shared.begun.since())
    }
}

impl Shared {
    /// Records the first access to a window.
    fn touch(&self, window: usize, is_write: bool) {
        let Some(touch) = self.touches.get(window) else { return };
        if touch.load(Ordering::Relaxed) == 0 && !self.is_over() {
            let order = self.touched.fetch_add(1, Ordering::Relaxed) + 1;
            let noted = order << 1 | u32::from(is_write);
            // If two threads touch it at once, one wins and one number stays unused.
            let _ = touch.compare_exchange(0, noted, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Returns the bytes of pages written so far, or, if the kernel does not record writes, of
    /// windows whose first access was a write.
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

    /// Returns true in a forked child.
    fn is_forked_child(&self) -> bool {
        self.process != std::process::id()
    }
}

impl Forked for Shared {
    fn is_over(&self) -> bool {
        Shared::is_over(self)
    }

    fn finish(&self) {
        let _ = self.load_all();
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        if !self.shared.is_forked_child() {
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

    fn job(path: &std::path::Path) -> Job {
        let source = Arc::new(Source::open(path).unwrap());
        let part = Part::new(0..source.bytes(), source.block_bytes());
        let data = source.data(evermap_observe::Span::new(0, part.end)).into();
        let counters = Arc::new(Counters::new());
        Job { source, part, data, counters, is_partly_cached: true }
    }

    #[test]
    fn a_window_loaded_by_another_thread_does_not_fail() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        std::fs::write(&path, vec![7; 2 * WINDOW_BYTES]).unwrap();
        let job = job(&path);
        let recorded = match Recorded::start(&job, ForkPolicy::Finish) {
            Err(Stop::Refused(why)) => return println!("skipped: {why}"),
            other => other.unwrap(),
        };
        let shared = recorded.shared();
        let error = || job.source.failed("read", rustix::io::Errno::NOMEM);
        recorded.ensure(0..1).unwrap();
        shared.fail(0, error()).unwrap();
        recorded.ensure(0..1).unwrap();
        shared.failure().unwrap();
        assert!(shared.fail(1, error()).is_err());
        let failed = recorded.ensure(WINDOW_BYTES..WINDOW_BYTES + 1).unwrap_err();
        let crate::Error::Unreadable { offset_bytes, source, .. } = failed else {
            panic!("{failed:?}")
        };
        assert_eq!(offset_bytes, WINDOW_BYTES as u64);
        assert_eq!(source.raw_os_error(), Some(rustix::io::Errno::NOMEM.raw_os_error()));
    }

    #[test]
    fn windows_load_on_access_while_threads_vanish() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        std::fs::write(&path, vec![7; 8 * WINDOW_BYTES]).unwrap();
        let job = job(&path);
        let recorded = match Recorded::start(&job, ForkPolicy::Finish) {
            Err(Stop::Refused(why)) => return println!("skipped: {why}"),
            other => other.unwrap(),
        };
        let shared = recorded.shared();
        for window in 0..8 {
            shared.vanishing.store(1, Ordering::Relaxed);
            // SAFETY: the address is within the region, whose pages are loaded on access.
            let byte =
                unsafe { shared.region.address().add(window * WINDOW_BYTES).read_volatile() };
            assert_eq!(byte, 7);
        }
        assert_eq!(recorded.recording().touches().len(), 8);
        assert!(job.counters.threads_replaced.load(Ordering::Relaxed) > 0);
    }
}
