//! Advice about parts of an image, during or after the load.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::job::Job;
use crate::methods::on_demand::OnDemand;
use crate::methods::read::fill;
use crate::region::{Backing, Region};
use crate::sys::HUGE_PAGE_BYTES;
use crate::sys::advice::SafeAdvice;
use crate::sys::pages::pages;
use crate::sys::read::Caching;

/// Expected use of a range of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum Advice {
    /// The range will be written. In a private mapping of the file, makes each whole window of 2
    /// MiB private now, as a huge page, unless part of it was written. This saves a fault and a
    /// copy for each page. In an on-demand image, loads the range before others.
    WriteSoon,
    /// The range will only be read. In a mapped image, reads it ahead. In an on-demand image,
    /// missing windows are mapped from the file instead of taking memory. This requires `may_map`
    /// and is ignored without.
    ReadOnly,
    /// The range will not be accessed, so it is not read ahead. Accesses still work.
    Never,
    /// The range will soon be accessed in order.
    Sequential,
}

/// Returns the windows that lie entirely in a range of memory.
fn whole(part: &Range<usize>) -> Range<usize> {
    let first = part.start.div_ceil(HUGE_PAGE_BYTES);
    first..(part.end / HUGE_PAGE_BYTES).max(first)
}

/// Gives advice about an on-demand image. `part` is a range of its memory. The caller has exclusive
/// access to the image.
pub(crate) fn advise_on_demand(
    load: &OnDemand,
    job: &Job,
    part: Range<usize>,
    advice: Advice,
    may_map: bool,
) -> Result<()> {
    let shared = load.shared();
    match advice {
        Advice::WriteSoon | Advice::Sequential => {
            let end = part.end.div_ceil(HUGE_PAGE_BYTES).min(shared.windows.len());
            load.want(part.start / HUGE_PAGE_BYTES..end);
        }
        Advice::Never => {
            for window in whole(&part) {
                shared.windows.skip(window);
            }
        }
        Advice::ReadOnly if may_map => {
            for window in whole(&part) {
                map_window(load, job, window)?;
            }
        }
        // Without permission to map, only copies are allowed.
        Advice::ReadOnly => {}
    }
    Ok(())
}

/// Maps the file in a missing window.
fn map_window(load: &OnDemand, job: &Job, window: usize) -> Result<()> {
    let shared = load.shared();
    if !shared.windows.begin_mapping(window) {
        return Ok(());
    }
    let part = job.part.window(window);
    let from = window * HUGE_PAGE_BYTES;
    // SAFETY: the window is missing and not loaded while it is being mapped. The caller has
    // exclusive access to the image, so no thread waits for a page of it.
    let mapped = unsafe {
        shared.region.replace_by_file(
            from,
            from + HUGE_PAGE_BYTES,
            job.source.cached(),
            part.offset,
            Backing::FilePrivate,
        )
    };
    if let Err(errno) = mapped {
        shared.windows.end_mapping(window, false);
        shared.wake_loader();
        return Err(job.source.failed("map a part of", errno));
    }
    if shared.windows.end_mapping(window, true) {
        job.counters.first();
        job.counters.loaded(part.bytes as u64);
    }
    Ok(())
}

/// Gives advice about a complete image. `part` is a range of its memory. The caller has exclusive
/// access to the image.
pub(crate) fn advise_whole(
    region: &Region,
    job: &Job,
    part: Range<usize>,
    advice: Advice,
) -> Result<()> {
    if region.backing() == Backing::Private {
        return Ok(());
    }
    let safe_advice = match advice {
        Advice::WriteSoon if region.backing() == Backing::FilePrivate => {
            return whole(&part).try_for_each(|window| take_over(region, job, window));
        }
        Advice::WriteSoon | Advice::ReadOnly => SafeAdvice::WillNeed,
        Advice::Never => SafeAdvice::Random,
        Advice::Sequential => SafeAdvice::Sequential,
    };
    // Best effort.
    let _ = region.advise(part.start, part.end, safe_advice);
    Ok(())
}

/// Replaces a window of a private mapping by a private huge page with the same bytes, unless part
/// of it was written.
fn take_over(region: &Region, job: &Job, number: usize) -> Result<()> {
    let from = number * HUGE_PAGE_BYTES;
    let Some(found) = pages(region.address() as usize + from, HUGE_PAGE_BYTES) else {
        return Ok(());
    };
    // Swapped pages were written before.
    if found.iter().any(|pages| !pages.is_file || !pages.is_present) {
        return Ok(());
    }
    let taken = Region::huge(HUGE_PAGE_BYTES)
        .map_err(|errno| job.source.failed("get memory for", errno))?;
    let window = job.part.window(number);
    let source = &job.source;
    let is_cached =
        evermap_observe::residency_of(source.cached(), window.offset, window.bytes as u64)
            .is_some_and(|residency| residency.resident_bytes > 0);
    let file = match source.direct() {
        Some(direct) if !is_cached => direct,
        _ => source.cached(),
    };
    // SAFETY: `taken` is a whole window without other users.
    let read = |file| unsafe { fill(job, file, taken.address(), window, Caching::Kept) };
    read(file).or_else(|_| read(source.cached()))?;
    source.check()?;
    // SAFETY: the window was not written, so `taken` holds the same bytes. The caller has exclusive
    // access to the image.
    unsafe { region.replace_by_region(from, taken) }
        .map_err(|errno| job.source.failed("take over a part of", errno))
}

/// Converts a range of the image to a range of its memory.
pub(crate) fn part_of(job: &Job, range: &Range<usize>) -> Result<Range<usize>> {
    let slice = job.part.slice();
    if range.start > range.end || range.end > slice.len() {
        return Err(Error::NoSuchRange {
            path: job.source.path().into(),
            there_bytes: slice.len() as u64,
            begin_bytes: range.start as u64,
            end_bytes: range.end as u64,
        });
    }
    Ok(slice.start + range.start..slice.start + range.end)
}
