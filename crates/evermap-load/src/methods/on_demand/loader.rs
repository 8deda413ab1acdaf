//! The loader thread: the only thread that reads windows and moves them into place.
//!
//! It can be killed at any instruction. So it takes no lock of this crate, and everything that a
//! successor needs is in `Shared`. It accesses no byte of the image and receives no signals.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::place::place;
use super::reads::Reads;
use super::staging::{SLOTS, Staging};
use super::stream::Stream;
use super::{Shared, deputy};
use crate::counters::{add, count};
use crate::error::Error;
use crate::methods::errno_of;
use crate::methods::read::{clear_behind, fill};
use crate::plan::ForkPolicy;
use crate::sys::HUGE_PAGE_BYTES;
use crate::sys::advice::SafeAdvice;
use crate::sys::read::Caching;
use crate::sys::ring::Event;
use crate::sys::thread;
use crate::windows::State;

/// Maximum number of outstanding reads of the stream.
const DEPTH_MAX: usize = 24;
/// Maximum sleep before it checks that its deputy lives.
const CHECK_PERIOD: Duration = Duration::from_millis(20);
/// Time that a stream without a known start waits for the first access.
const HELD_TIMEOUT: Duration = Duration::from_millis(1);
/// Maximum sleep when the remaining windows are loaded on access only.
const IDLE_TIMEOUT: Duration = Duration::from_millis(500);
/// Tags of the watched descriptors.
const FAULTS: u32 = 0;
const WAKEUP: u32 = 1;

/// Starts the loader thread.
pub(super) fn spawn(shared: &Arc<Shared>, staging: Staging) -> std::io::Result<()> {
    let is_announced = shared.loader.announce(shared.loader.holder());
    assert!(is_announced, "another thread starts the loader");
    let shared = shared.clone();
    let builder = std::thread::Builder::new().name("evermap-load".into());
    let work = move || {
        if shared.loader.take() {
            run(&shared, Some(staging), 0);
        }
    };
    thread::without_signals(|| builder.spawn(work)).map(drop)
}

/// Loads until all windows are loaded or the load is stopped. `lost` is the number of threads lost
/// since the last window was loaded.
pub(super) fn run(shared: &Arc<Shared>, staging: Option<Staging>, lost: u32) {
    thread::mark_as_loading();
    let staging = staging.map_or_else(|| Staging::new(shared.windows.len()), Ok);
    match staging.and_then(|staging| Loader::new(shared, staging, lost)) {
        Ok(mut loader) => {
            let outcome = loader.run();
            loader.end();
            if let Err(errno) = outcome {
                fail_all(shared, errno);
            }
        }
        Err(errno) => fail_all(shared, errno),
    }
    finish(shared);
    has_ended(shared);
}

/// Fails all missing windows when no thread is left to load them. The calling thread is the loader.
pub(super) fn give_up(shared: &Shared) {
    fail_all(shared, Errno::OWNERDEAD);
    has_ended(shared);
}

fn has_ended(shared: &Shared) {
    shared.turn.end();
    thread::count_up(&shared.ended);
    shared.windows.notify();
}

/// Fails all missing windows.
fn fail_all(shared: &Shared, errno: Errno) {
    for window in 0..shared.windows.len() {
        fail(shared, window, errno);
    }
}

/// Fails a missing window. An access to it, or a thread that already waits, receives SIGBUS.
///
/// Only the loader calls this, and only before it has ended, because then the region is unmapped.
/// The kernel would poison a later image at the same addresses, although another userfaultfd serves
/// it.
fn fail(shared: &Shared, window: usize, errno: Errno) {
    if matches!(shared.windows.state(window), State::Present | State::Mapped | State::Failed) {
        return;
    }
    let begin = shared.region.address() as usize + window * HUGE_PAGE_BYTES;
    shared.userfault.poison(begin, HUGE_PAGE_BYTES);
    shared.windows.fail(window, errno);
}

/// Turns a complete image into ordinary memory, which children may have.
fn finish(shared: &Shared) {
    let windows = &shared.windows;
    if !windows.are_complete() || windows.failed() > 0 {
        return;
    }
    let region = &shared.region;
    // Windows mapped from the file are no longer registered, and must not be unregistered.
    let is_ours = |window: &usize| windows.state(*window) != State::Mapped;
    let mut window = 0;
    while window < windows.len() {
        let run = (window..windows.len()).take_while(is_ours).count();
        if run > 0 {
            let at = region.address() as usize + window * HUGE_PAGE_BYTES;
            let _ = shared.userfault.unregister(at, run * HUGE_PAGE_BYTES);
        }
        window += run.max(1);
    }
    if shared.fork == ForkPolicy::Finish {
        let _ = region.advise(0, region.bytes(), SafeAdvice::DoFork);
    }
    let _ = shared.usage.set(shared.begun.since());
    shared.job.counters.complete();
    shared.is_over.store(true, Ordering::Release);
}

struct Loader<'l> {
    shared: &'l Arc<Shared>,
    reads: Reads,
    staging: Staging,
    stream: Stream,
    /// Windows that threads wait for, accessed ones first. Can contain windows loaded since.
    wanted: VecDeque<usize>,
    /// Windows contained in `wanted`.
    is_noted: Vec<bool>,
    /// Slots whose window is read because a thread wants it.
    is_wanted: [bool; SLOTS],
    checked_at: Instant,
}

impl Loader<'_> {
    fn new(shared: &Arc<Shared>, staging: Staging, lost: u32) -> Result<Loader<'_>, Errno> {
        let mut loader = Loader {
            shared,
            // After two losses in a row, the ring may be the reason that threads are killed.
            reads: if lost < 2 { Reads::new(SLOTS) } else { Reads::one_by_one() },
            staging,
            stream: Stream::new(shared.recorded.clone(), DEPTH_MAX),
            wanted: VecDeque::new(),
            is_noted: vec![false; shared.windows.len()],
            is_wanted: [false; SLOTS],
            checked_at: Instant::now(),
        };
        if shared.is_random && shared.recorded.is_empty() {
            loader.stream.pause();
        }
        loader.reads.watch(FAULTS, shared.userfault.as_fd())?;
        loader.reads.watch(WAKEUP, shared.wakeup.as_fd())?;
        Ok(loader)
    }

    fn run(&mut self) -> Result<(), Errno> {
        let shared = self.shared;
        // Windows known to an earlier loader thread.
        self.note_wanted();
        while !shared.stop.load(Ordering::Acquire) && !shared.windows.are_complete() {
            self.begin_reads()?;
            let is_idle = shared.windows.are_settled();
            if is_idle {
                shared.turn.end();
            }
            let timeout = match is_idle {
                true => IDLE_TIMEOUT,
                false if self.stream.is_paused() => HELD_TIMEOUT,
                false => CHECK_PERIOD,
            };
            let watched = [shared.userfault.as_fd(), shared.wakeup.as_fd()];
            for event in self.reads.wait(timeout, &watched)? {
                match event {
                    Event::Ready { tag: FAULTS } => self.note_faults(),
                    Event::Ready { .. } => {
                        let mut rung = [0; 8];
                        let _ = rustix::io::read(&shared.wakeup, &mut rung);
                        self.note_wanted();
                    }
                    Event::Read { tag, result } => self.read_completed(tag as usize, result),
                }
            }
            self.stream.resume();
            if self.checked_at.elapsed() >= CHECK_PERIOD {
                self.checked_at = Instant::now();
                deputy::keep_deputy(shared);
            }
        }
        Ok(())
    }

    /// Waits for outstanding reads. Leaks memory that the kernel may still write to.
    fn end(&mut self) {
        if !self.reads.drain() {
            self.staging.leak();
        }
    }

    fn note_faults(&mut self) {
        let shared = self.shared;
        let base = shared.region.address() as usize;
        for fault in shared.userfault.faults() {
            let Some(window) = fault.address.checked_sub(base).map(|at| at / HUGE_PAGE_BYTES)
            else {
                continue;
            };
            if window >= shared.windows.len() {
                continue;
            }
            if shared.windows.want(window) {
                self.stream.jump_to(window, &shared.windows);
            }
            match shared.windows.state(window) {
                State::Reading => {}
                // Accessed windows come before requested ones.
                State::Wanted => {
                    self.wanted.push_front(window);
                    self.is_noted[window] = true;
                }
                // Loaded in the meantime.
                _ => {
                    let at = base + window * HUGE_PAGE_BYTES;
                    let _ = shared.userfault.wake(at, HUGE_PAGE_BYTES);
                }
            }
        }
    }

    fn note_wanted(&mut self) {
        for window in 0..self.shared.windows.len() {
            if !self.is_noted[window] && self.shared.windows.state(window) == State::Wanted {
                self.wanted.push_back(window);
                self.is_noted[window] = true;
            }
        }
    }

    /// Starts as many reads as allowed: wanted windows first, then the stream.
    fn begin_reads(&mut self) -> Result<(), Errno> {
        loop {
            let is_wanted = !self.wanted.is_empty();
            let depth = if self.shared.turn.has_come() { self.stream.depth() } else { 0 };
            if !is_wanted && self.reads.under_way() >= depth {
                return Ok(());
            }
            if self.reads.under_way() >= SLOTS {
                return Ok(());
            }
            let windows = &self.shared.windows;
            let next = match self.wanted.front() {
                Some(window) => Some(*window),
                None => self.stream.next(windows),
            };
            let Some(window) = next else { return Ok(()) };
            if is_wanted && windows.state(window) != State::Wanted {
                self.forget_first();
                continue;
            }
            let Some(slot) = self.staging.take(window) else { return Ok(()) };
            if is_wanted {
                self.forget_first();
            }
            if !windows.claim(window) {
                self.staging.free(slot, true);
                continue;
            }
            self.is_wanted[slot] = is_wanted;
            self.begin_read(window, slot)?;
        }
    }

    fn forget_first(&mut self) {
        if let Some(window) = self.wanted.pop_front() {
            self.is_noted[window] = false;
        }
    }

    fn begin_read(&mut self, number: usize, slot: usize) -> Result<(), Errno> {
        let job = &self.shared.job;
        let window = job.part.window(number);
        let bytes = window.bytes as u64;
        #[cfg(test)]
        self.shared.injected.before_read(number);
        if !job.has_data(window.offset, window.bytes) {
            add(&job.counters.hole_bytes, bytes);
            match self.staging.populate(slot) {
                Ok(()) => self.publish(number, slot),
                Err(errno) => self.give_up(number, slot, errno),
            }
            return Ok(());
        }
        let is_cached = job.is_partly_cached
            && evermap_observe::residency_of(job.source.cached(), window.offset, bytes)
                .is_some_and(|residency| residency.resident_bytes >= bytes);
        let file = match job.source.direct() {
            Some(direct) if !is_cached => {
                add(&job.counters.direct_bytes, bytes);
                direct
            }
            _ => {
                add(&job.counters.cached_bytes, bytes);
                job.source.cached()
            }
        };
        if window.blocks_bytes < HUGE_PAGE_BYTES {
            // All pages are moved, so those after the end must exist too.
            self.staging.populate(slot)?;
        }
        // SAFETY: the slot belongs to this thread, has room for the window's blocks, and its memory
        // is leaked if the ring cannot be drained.
        unsafe {
            let address = self.staging.address(slot);
            self.reads.begin(slot as u32, file, address, window.blocks_bytes, window.offset)
        }
    }

    /// Handles a completed read.
    fn read_completed(&mut self, slot: usize, result: Result<usize, Errno>) {
        let Some(number) = self.staging.window(slot) else { return };
        let job = &self.shared.job;
        let window = job.part.window(number);
        #[cfg(test)]
        let result = self.shared.injected.result(number, result);
        match result {
            Ok(read_bytes) if read_bytes >= window.bytes => {
                // SAFETY: the slot belongs to this thread and holds a whole window, and the read
                // into it has completed.
                unsafe { clear_behind(self.staging.address(slot), window) };
            }
            _ => {
                // A read through the cache may succeed, or gives the error.
                count(&job.counters.read_again);
                let address = self.staging.address(slot);
                // SAFETY: the slot belongs to this thread and holds a whole window, and the read
                // into it has completed.
                let refill =
                    || unsafe { fill(job, job.source.cached(), address, window, Caching::Kept) };
                #[cfg(test)]
                let refilled = self.shared.injected.refill(number, job, refill);
                #[cfg(not(test))]
                let refilled = refill();
                if let Err(error) = refilled {
                    return self.lost(number, slot, &error);
                }
            }
        }
        self.publish(number, slot);
    }

    /// Moves a window into place if the file is still the version that was opened.
    fn publish(&mut self, number: usize, slot: usize) {
        let shared = self.shared;
        if let Err(error) = shared.job.source.check() {
            return self.lost(number, slot, &error);
        }
        let target = shared.region.address() as usize + number * HUGE_PAGE_BYTES;
        let source = self.staging.address(slot) as usize;
        let counters = &shared.job.counters;
        let placer = &shared.userfault;
        #[cfg(test)]
        let placer = &shared.injected.moves(placer, number);
        // SAFETY: the slot belongs to this thread, its pages are present, and no read into it is
        // outstanding.
        match unsafe { place(placer, target, source, HUGE_PAGE_BYTES, counters) } {
            Err(errno) => self.give_up(number, slot, errno),
            Ok(pages_are_gone) => {
                #[cfg(test)]
                shared.injected.before_publishing(number);
                counters.first();
                counters.loaded(shared.job.part.window(number).bytes as u64);
                shared.windows.publish(number);
                shared.lost.store(0, Ordering::Release);
                self.staging.free(slot, pages_are_gone);
                if self.is_wanted[slot] {
                    count(&counters.on_demand);
                } else {
                    count(&counters.streamed);
                    self.stream.speed_up();
                }
            }
        }
    }

    fn give_up(&mut self, number: usize, slot: usize, errno: Errno) {
        self.staging.free(slot, false);
        fail(self.shared, number, errno);
    }

    /// Fails a window that cannot be read. If the file has changed, fails all windows.
    fn lost(&mut self, number: usize, slot: usize, error: &Error) {
        if let Error::Changed { change, .. } = error {
            let _ = self.shared.change.set(*change);
            self.staging.free(slot, false);
            fail_all(self.shared, Errno::STALE);
            return;
        }
        self.give_up(number, slot, errno_of(error));
    }
}
