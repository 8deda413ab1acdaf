//! Reads into private memory, by several threads: each takes the next piece that nobody has taken.

use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::io::Errno;

use super::{Job, Stop, ended_early};
use crate::counters::add;
use crate::error::Error;
use crate::huge::HugePages;
use crate::part::Window;
use crate::region::Region;
use crate::sys::HUGE_PAGE_BYTES;
use crate::sys::read::{Caching, read_at};
use crate::sys::thread;

/// What a read takes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// The page cache, which keeps what it did not have.
    Cached,
    /// The page cache, which is as before afterwards.
    Uncached,
    /// The device.
    Direct,
}

/// Reads all of a part into private memory.
pub(crate) fn read(job: &Job, way: Way, huge: bool, threads: usize) -> Result<Region, Stop> {
    let part = &job.part;
    if let Some(contents) = job.source.contents() {
        return of_contents(job, contents, huge);
    }
    if way == Way::Direct && job.source.direct().is_none() {
        return Err(Stop::Refused("it cannot be read past the page cache".into()));
    }
    let bytes = part.blocks_bytes();
    let is_huge = huge || way == Way::Direct;
    let region = if is_huge { Region::aligned(bytes) } else { Region::private(bytes) }
        .map_err(|errno| job.source.failed("get memory for", errno))?;
    let was_cached = match way {
        Way::Uncached if job.is_partly_cached => cached_windows(job),
        _ => Vec::new(),
    };
    let reading = Reading {
        job,
        region: &region,
        huge: is_huge.then(|| HugePages::look(region.bytes())),
        way,
        was_cached,
        next: AtomicUsize::new(0),
        error: OnceLock::new(),
    };
    let threads = threads.clamp(1, part.windows().max(1));
    // The one that calls is one of them; a thread that cannot be had is none.
    std::thread::scope(|scope| {
        for _ in 1..threads {
            let builder = std::thread::Builder::new().name("evermap-load".into());
            let started =
                thread::without_signals(|| builder.spawn_scoped(scope, || reading.work()));
            if started.is_err() {
                break;
            }
        }
        reading.work();
    });
    if let Some(error) = reading.error.into_inner() {
        return Err(error.into());
    }
    job.source.check()?;
    if is_huge {
        region.unite();
    }
    job.counters.complete();
    Ok(region)
}

/// Of a file that was read to its end when it was opened.
fn of_contents(job: &Job, contents: &[u8], huge: bool) -> Result<Region, Stop> {
    let part = &job.part;
    let region =
        if huge { Region::huge(part.memory_bytes()) } else { Region::private(part.memory_bytes()) }
            .map_err(|errno| job.source.failed("get memory for", errno))?;
    let wanted = &contents[part.begin as usize..part.end as usize];
    // SAFETY: the region is as long as the part at least, and nobody has seen it.
    unsafe { std::ptr::copy_nonoverlapping(wanted.as_ptr(), region.address(), wanted.len()) };
    if huge {
        region.unite();
    }
    add(&job.counters.cached_bytes, wanted.len() as u64);
    job.counters.loaded(part.bytes());
    job.counters.complete();
    Ok(region)
}

/// Which windows have something in the cache.
fn cached_windows(job: &Job) -> Vec<bool> {
    let is_cached = |window: Window| {
        evermap_observe::residency_of(job.source.cached(), window.offset, window.bytes as u64)
            .is_some_and(|residency| residency.resident_bytes > 0)
    };
    (0..job.part.windows()).map(|number| is_cached(job.part.window(number))).collect()
}

struct Reading<'r> {
    job: &'r Job,
    region: &'r Region,
    /// Asked for window by window.
    huge: Option<HugePages>,
    way: Way,
    /// Which windows were in the cache, if that matters: asked before the first read, which reads ahead.
    was_cached: Vec<bool>,
    /// The next window that nobody has.
    next: AtomicUsize,
    error: OnceLock<Error>,
}

impl Reading<'_> {
    fn work(&self) {
        let part = &self.job.part;
        while self.error.get().is_none() {
            let window = self.next.fetch_add(1, Ordering::Relaxed);
            if window >= part.windows() {
                return;
            }
            if let Err(error) = self.window_of_huge_pages(part.window(window)) {
                let _ = self.error.set(error);
            }
        }
    }

    fn window_of_huge_pages(&self, window: Window) -> Result<(), Error> {
        let Some(huge) = &self.huge else { return self.window(window) };
        let address = self.region.address() as usize + window.at;
        let bytes = HUGE_PAGE_BYTES.min(self.region.bytes() - window.at);
        huge.fill(address, bytes, || true, || self.window(window))
    }

    fn window(&self, window: Window) -> Result<(), Error> {
        let Job { source, counters, .. } = self.job;
        let has_data = self.job.has_data(window.offset, window.bytes);
        let bytes = window.bytes as u64;
        if has_data {
            // SAFETY: the window is within the region, which has room for whole blocks.
            let address = unsafe { self.region.address().add(window.at) };
            // SAFETY: this thread alone fills this window, and nobody has seen the region.
            let read = |file| unsafe { fill(self.job, file, address, window, Caching::Kept) };
            match self.way {
                Way::Direct => {
                    let direct = source.direct().unwrap_or(source.cached());
                    read(direct).or_else(|_| {
                        crate::counters::count(&counters.read_again);
                        read(source.cached())
                    })?;
                    add(&counters.direct_bytes, bytes);
                }
                Way::Uncached => {
                    // SAFETY: as above.
                    unsafe { self.read_uncached(address, window) }?;
                    add(&counters.cached_bytes, bytes);
                }
                Way::Cached => {
                    read(source.cached())?;
                    add(&counters.cached_bytes, bytes);
                }
            }
        } else {
            add(&counters.hole_bytes, bytes);
        }
        counters.loaded(bytes);
        Ok(())
    }

    /// By the kernel's own means, or by dropping behind; never what was in the cache before.
    ///
    /// # Safety
    ///
    /// As [`fill`].
    unsafe fn read_uncached(&self, address: *mut u8, window: Window) -> Result<(), Error> {
        let source = &self.job.source;
        let was_cached = self.was_cached.get(window.at / HUGE_PAGE_BYTES) == Some(&true);
        // SAFETY: the caller's promise.
        let through_cache =
            || unsafe { fill(self.job, source.cached(), address, window, Caching::Kept) };
        if was_cached {
            return through_cache();
        }
        // SAFETY: the caller's promise.
        match unsafe { fill_by(source.cached(), address, window, Caching::Dropped) } {
            Ok(()) => return Ok(()),
            Err(Why::Errno(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS)) => {}
            Err(why) => return Err(why.of(self.job, window)),
        }
        through_cache()?;
        drop_cache(self.job, window.offset, window.bytes as u64);
        Ok(())
    }
}

/// Drops what is cached of a range. Only advice: what is dirty or in use stays.
pub(crate) fn drop_cache(job: &Job, offset: u64, bytes: u64) {
    let bytes = std::num::NonZeroU64::new(bytes);
    let _ = rustix::fs::fadvise(job.source.cached(), offset, bytes, rustix::fs::Advice::DontNeed);
}

/// Why a window could not be filled.
#[derive(Debug)]
pub(crate) enum Why {
    Errno(Errno),
    Ended,
}

impl Why {
    pub(crate) fn of(self, job: &Job, window: Window) -> Error {
        match self {
            Why::Ended => ended_early(job, window.offset, window.bytes),
            Why::Errno(errno) => Error::Unreadable {
                path: job.source.path().into(),
                offset_bytes: window.offset,
                length_bytes: window.bytes as u64,
                source: errno.into(),
            },
        }
    }
}

/// Reads one window to `address`.
///
/// # Safety
///
/// At `address` is memory for whole blocks of the window (`blocks_bytes`), which is the caller's and which nobody else uses meanwhile.
pub(crate) unsafe fn fill(
    job: &Job,
    file: BorrowedFd<'_>,
    address: *mut u8,
    window: Window,
    caching: Caching,
) -> Result<(), Error> {
    // SAFETY: the caller's promise.
    unsafe { fill_by(file, address, window, caching) }.map_err(|why| why.of(job, window))
}

/// # Safety
///
/// As [`fill`].
unsafe fn fill_by(
    file: BorrowedFd<'_>,
    address: *mut u8,
    window: Window,
    caching: Caching,
) -> Result<(), Why> {
    let mut done = 0;
    while done < window.bytes {
        // Whole blocks are asked for; what the file does not have does not come.
        let wanted = window.blocks_bytes - done;
        // SAFETY: within whole blocks of the window, which are the caller's.
        let came = unsafe {
            read_at(file, address.add(done), wanted, window.offset + done as u64, caching)
        };
        match came.map_err(Why::Errno)? {
            0 => return Err(Why::Ended),
            came => done += came,
        }
    }
    // SAFETY: the caller's promise.
    unsafe { clear_behind(address, window) };
    Ok(())
}

/// Zeros behind the last byte that an image has of a window's last block: nobody shall find there what else a read brought.
///
/// # Safety
///
/// As [`fill`].
pub(crate) unsafe fn clear_behind(address: *mut u8, window: Window) {
    let behind = window.blocks_bytes - window.bytes;
    // SAFETY: within whole blocks of the window, which are the caller's.
    unsafe { address.add(window.bytes).write_bytes(0, behind) };
}
