//! Takeover, all at once: a ring of direct reads whose target is the image itself. Its pages never are the cache's, and nobody copies them.

use rustix::io::Errno;
use std::time::Duration;

use super::read::{Way, clear_behind, fill};
use super::{Job, Stop};
use crate::counters::{add, count};
use crate::error::Error;
use crate::region::Region;
use crate::sys::read::Caching;
use crate::sys::ring::{Event, Ring};

/// Reads under way at a time, of 2 MiB each.
const DEPTH: usize = 24;
/// How long a wait takes at most; only to look whether anything went wrong.
const PATIENCE: Duration = Duration::from_millis(500);

/// Reads all of a part into huge pages.
pub(crate) fn takeover(job: &Job, threads: usize) -> Result<Region, Stop> {
    Stop::if_unsized(job)?;
    if job.source.direct().is_none() {
        let name = job.source.file_system().name();
        return Err(Stop::Refused(format!("{name} has no direct reads of it")));
    }
    let Ok(ring) = Ring::new(DEPTH) else {
        // Where rings are forbidden, threads read.
        return super::read::read(job, Way::Direct, true, threads.max(4));
    };
    let region = Region::huge(job.part.memory_bytes())
        .map_err(|errno| job.source.failed("get memory for", errno))?;
    let mut filling = Filling { job, region, ring, next: 0, again: Vec::new() };
    let outcome = filling.run();
    let is_settled = filling.ring.settle();
    let Filling { mut region, again, .. } = filling;
    if !is_settled {
        region.leak();
    }
    outcome?;
    // Whatever did not come as it should: through the cache, which says why, or has it.
    for window in again {
        count(&job.counters.read_again);
        let window = job.part.window(window);
        // SAFETY: the window is within the region, which has room for whole blocks of it; the ring has settled, or the region was leaked
        // and the outcome was an error.
        unsafe {
            let address = region.address().add(window.at);
            fill(job, job.source.cached(), address, window, Caching::Kept)?;
        }
        job.counters.loaded(window.bytes as u64);
    }
    job.source.check()?;
    region.unite();
    job.counters.complete();
    Ok(region)
}

struct Filling<'f> {
    job: &'f Job,
    region: Region,
    ring: Ring,
    /// The next window to read.
    next: usize,
    /// Windows to read through the cache afterwards.
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
            for event in self.ring.wait(PATIENCE, &mut Vec::new()).map_err(broken)? {
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
        // SAFETY: the window is within the region, which has room for whole blocks of it and outlives the read: it is leaked
        // if the ring does not settle.
        unsafe {
            let address = self.region.address().add(window.at);
            self.ring.read(number as u32, file, address, window.blocks_bytes, window.offset)
        }
    }

    fn done(&mut self, number: usize, result: Result<usize, Errno>) {
        let window = self.job.part.window(number);
        match result {
            Ok(came) if came >= window.bytes => {
                // SAFETY: within the region, which has room for whole blocks; the read into them is over.
                unsafe { clear_behind(self.region.address().add(window.at), window) };
                self.job.counters.loaded(window.bytes as u64);
            }
            _ => self.again.push(number),
        }
    }
}
