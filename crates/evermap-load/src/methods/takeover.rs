//! Eager takeover: direct reads through an io_uring into the image itself, without the page cache
//! and without copies.

use rustix::io::Errno;
use std::time::Duration;

use super::Stop;
use super::read::{ReadPath, clear_behind, fill};
use crate::counters::{add, count};
use crate::error::Error;
use crate::job::Job;
use crate::region::Region;
use crate::sys::read::Caching;
use crate::sys::ring::{Event, Ring};

/// Number of outstanding reads, of 2 MiB each.
const DEPTH: usize = 24;
/// Maximum time of one wait. A timeout only rechecks the state.
const TIMEOUT: Duration = Duration::from_millis(500);

/// Reads a whole part into huge pages.
pub(crate) fn takeover(job: &Job, threads: usize) -> Result<Region, Stop> {
    Stop::if_unsized(job)?;
    if job.source.direct().is_none() {
        let name = job.source.file_system().name();
        return Err(Stop::Refused(format!("{name} does not support direct reads of this file")));
    }
    let Ok(ring) = Ring::new(DEPTH) else {
        // If io_uring is forbidden, read with threads.
        return super::read::read(job, ReadPath::Direct, true, threads.max(4));
    };
    let region = Region::huge(job.part.memory_bytes())
        .map_err(|errno| job.source.failed("get memory for", errno))?;
    let mut filling = Filling { job, region, ring, next: 0, again: Vec::new() };
    let outcome = filling.run();
    let is_drained = filling.ring.drain();
    let Filling { mut region, again, .. } = filling;
    if !is_drained {
        region.leak();
    }
    outcome?;
    // Windows whose direct read failed are read through the cache, which succeeds or gives the
    // error.
    for window in again {
        count(&job.counters.read_again);
        let window = job.part.window(window);
        // SAFETY: the window is within the region, which has room for its whole blocks. No read is
        // outstanding: if the ring was not drained, `run` failed and this is not reached.
        unsafe {
            let address = region.address().add(window.at);
            fill(job, job.source.cached(), address, window, Caching::Kept)?;
        }
        job.counters.loaded(window.bytes as u64);
    }
    job.source.check()?;
    region.merge_advice();
    job.counters.complete();
    Ok(region)
}

struct Filling<'f> {
    job: &'f Job,
    region: Region,
    ring: Ring,
    /// Next window to read.
    next: usize,
    /// Windows to read again through the cache.
    again: Vec<usize>,
}

impl Filling<'_> {
    fn run(&mut self) -> Result<(), Error> {
        let broken = |errno: Errno| self.job.source.failed("read by a ring", errno);
        loop {
            while self.ring.reads() < DEPTH && self.next < self.job.part.windows() {
                let window = self.next;
                self.next += 1;
                self.begin(window).map_err(broken)?;
            }
            if self.ring.reads() == 0 {
                return Ok(());
            }
            for event in self.ring.wait(TIMEOUT, &mut Vec::new()).map_err(broken)? {
                if let Event::Read { tag, result } = event {
                    self.done(tag as usize, result);
                }
            }
        }
    }

    fn begin(&mut self, number: usize) -> Result<(), Errno> {
        let Job { source, part, counters, .. } = self.job;
        let window = part.window(number);
        let bytes = window.bytes as u64;
        if !self.job.has_data(window.offset, window.bytes) {
            add(&counters.hole_bytes, bytes);
            counters.loaded(bytes);
            return Ok(());
        }
        let is_cached = self.job.is_partly_cached
            && evermap_observe::residency_of(source.cached(), window.offset, bytes)
                .is_some_and(|residency| residency.resident_bytes >= bytes);
        let file = match source.direct() {
            Some(direct) if !is_cached => {
                add(&counters.direct_bytes, bytes);
                direct
            }
            _ => {
                add(&counters.cached_bytes, bytes);
                source.cached()
            }
        };
        // SAFETY: the window is within the region, which has room for its whole blocks and outlives
        // the read: it is leaked if the ring cannot be drained.
        unsafe {
            let address = self.region.address().add(window.at);
            self.ring.read(number as u32, file, address, window.blocks_bytes, window.offset)
        }
    }

    fn done(&mut self, number: usize, result: Result<usize, Errno>) {
        let window = self.job.part.window(number);
        match result {
            Ok(read_bytes) if read_bytes >= window.bytes => {
                // SAFETY: the window is within the region, which has room for its whole blocks, and
                // the read has completed.
                unsafe { clear_behind(self.region.address().add(window.at), window) };
                self.job.counters.loaded(window.bytes as u64);
            }
            _ => self.again.push(number),
        }
    }
}
