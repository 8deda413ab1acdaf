//! Reads into private memory with several threads. Each takes the next window.

use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::io::Errno;

use super::{Stop, ended_early};
use crate::counters::add;
use crate::error::Error;
use crate::huge::HugePages;
use crate::job::Job;
use crate::part::Window;
use crate::region::Region;
use crate::sys::HUGE_PAGE_BYTES;
use crate::sys::read::{Caching, read_at};
use crate::sys::thread;

/// Source of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadPath {
    /// The page cache, which keeps the pages read.
    Cached,
    /// The page cache, evicting the pages read.
    Uncached,
    /// The device, past the page cache.
    Direct,
}

/// Reads a whole part into private memory.
pub(crate) fn read(
    job: &Job,
    read_path: ReadPath,
    huge: bool,
    threads: usize,
) -> Result<Region, Stop> {
    let part = &job.part;
    if let Some(contents) = job.source.contents() {
        return of_contents(job, contents, huge);
    }
    if read_path == ReadPath::Direct && job.source.direct().is_none() {
        return Err(Stop::Refused("the file does not support direct reads".into()));
    }
    let bytes = part.blocks_bytes();
    let is_huge = huge || read_path == ReadPath::Direct;
    let region = if is_huge { Region::aligned(bytes) } else { Region::private(bytes) }
        .map_err(|errno| job.source.failed("get memory for", errno))?;
    let was_cached = match read_path {
        ReadPath::Uncached if job.is_partly_cached => cached_windows(job),
        _ => Vec::new(),
    };
    let reading = Reading {
        job,
        region: &region,
        huge: is_huge.then(|| HugePages::query(region.bytes())),
        read_path,
        was_cached,
        next: AtomicUsize::new(0),
        error: OnceLock::new(),
    };
    let threads = threads.clamp(1, part.windows().max(1));
    // The caller is one worker; failed spawns are ignored.
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
        region.merge_advice();
    }
    job.counters.complete();
    Ok(region)
}

/// Copies the contents of a file that was read when it was opened.
fn of_contents(job: &Job, contents: &[u8], huge: bool) -> Result<Region, Stop> {
    let part = &job.part;
    let region =
        if huge { Region::huge(part.memory_bytes()) } else { Region::private(part.memory_bytes()) }
            .map_err(|errno| job.source.failed("get memory for", errno))?;
    let wanted = &contents[part.begin as usize..part.end as usize];
    // SAFETY: the region is at least as long as the part, and has no other user yet.
    unsafe { std::ptr::copy_nonoverlapping(wanted.as_ptr(), region.address(), wanted.len()) };
    if huge {
        region.merge_advice();
    }
    add(&job.counters.cached_bytes, wanted.len() as u64);
    job.counters.loaded(part.bytes());
    job.counters.complete();
    Ok(region)
}

/// Returns which windows have cached pages.
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
    /// Budget of huge pages, used window by window.
    huge: Option<HugePages>,
    read_path: ReadPath,
    /// Windows that were cached before the load, if that matters. Queried before the first read,
    /// which reads ahead.
    was_cached: Vec<bool>,
    /// Next window to read.
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
            // SAFETY: the window is within the region, which has room for its whole blocks.
            let address = unsafe { self.region.address().add(window.at) };
            // SAFETY: only this thread fills this window, and the region has no other user yet.
            let read = |file| unsafe { fill(self.job, file, address, window, Caching::Kept) };
            match self.read_path {
                ReadPath::Direct => {
                    let direct = source.direct().unwrap_or(source.cached());
                    read(direct).or_else(|_| {
                        crate::counters::count(&counters.read_again);
                        read(source.cached())
                    })?;
                    add(&counters.direct_bytes, bytes);
                }
                ReadPath::Uncached => {
                    // SAFETY: only this thread fills this window, and the region has no other user
                    // yet.
                    unsafe { self.read_uncached(address, window) }?;
                    add(&counters.cached_bytes, bytes);
                }
                ReadPath::Cached => {
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

    /// Reads a window without leaving it in the page cache: with `RWF_DONTCACHE`, or by evicting it
    /// afterwards. A window of which any page was cached before stays in the cache as a whole.
    ///
    /// # Safety
    ///
    /// Same requirements as [`fill`].
    unsafe fn read_uncached(&self, address: *mut u8, window: Window) -> Result<(), Error> {
        let source = &self.job.source;
        let was_cached = self.was_cached.get(window.at / HUGE_PAGE_BYTES) == Some(&true);
        // SAFETY: the caller owns memory for the window's whole blocks, without other users.
        let through_cache =
            || unsafe { fill(self.job, source.cached(), address, window, Caching::Kept) };
        if was_cached {
            return through_cache();
        }
        // SAFETY: the caller owns memory for the window's whole blocks, without other users.
        match unsafe { fill_by(source.cached(), address, window, Caching::Dropped) } {
            Ok(()) => return Ok(()),
            Err(FillError::Errno(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS)) => {}
            Err(error) => return Err(error.into_error(self.job, window)),
        }
        through_cache()?;
        drop_cache(self.job, window.offset, window.bytes as u64);
        Ok(())
    }
}

/// Evicts a range from the page cache. Best effort: dirty and used pages stay.
pub(crate) fn drop_cache(job: &Job, offset: u64, bytes: u64) {
    let bytes = std::num::NonZeroU64::new(bytes);
    let _ = rustix::fs::fadvise(job.source.cached(), offset, bytes, rustix::fs::Advice::DontNeed);
}

/// Reason why a window could not be filled.
#[derive(Debug)]
pub(crate) enum FillError {
    Errno(Errno),
    Ended,
}

impl FillError {
    pub(crate) fn into_error(self, job: &Job, window: Window) -> Error {
        match self {
            FillError::Ended => ended_early(job, window.offset, window.bytes),
            FillError::Errno(errno) => Error::Unreadable {
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
/// At `address`, the caller owns memory for the window's whole blocks (`blocks_bytes`), without
/// other users during the call.
pub(crate) unsafe fn fill(
    job: &Job,
    file: BorrowedFd<'_>,
    address: *mut u8,
    window: Window,
    caching: Caching,
) -> Result<(), Error> {
    // SAFETY: the caller owns memory for the window's whole blocks, without other users.
    unsafe { fill_by(file, address, window, caching) }
        .map_err(|error| error.into_error(job, window))
}

/// Reads one window to `address`, with an error that lacks the path.
///
/// # Safety
///
/// Same requirements as [`fill`].
unsafe fn fill_by(
    file: BorrowedFd<'_>,
    address: *mut u8,
    window: Window,
    caching: Caching,
) -> Result<(), FillError> {
    let mut done = 0;
    while done < window.bytes {
        // Request whole blocks. A read at the end of the file returns fewer bytes.
        let wanted = window.blocks_bytes - done;
        // SAFETY: the bytes are within the window's whole blocks, which belong to the caller.
        let read_bytes = unsafe {
            read_at(file, address.add(done), wanted, window.offset + done as u64, caching)
        };
        match read_bytes.map_err(FillError::Errno)? {
            0 => return Err(FillError::Ended),
            read_bytes => done += read_bytes,
        }
    }
    // SAFETY: the caller owns memory for the window's whole blocks, without other users.
    unsafe { clear_behind(address, window) };
    Ok(())
}

/// Zeros the rest of a window's last block, so that other bytes of the file are not visible there.
///
/// # Safety
///
/// Same requirements as [`fill`].
pub(crate) unsafe fn clear_behind(address: *mut u8, window: Window) {
    let behind = window.blocks_bytes - window.bytes;
    // SAFETY: the bytes are within the window's whole blocks, which belong to the caller.
    unsafe { address.add(window.bytes).write_bytes(0, behind) };
}
