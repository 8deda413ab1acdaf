//! The control of a part of an image: what will be done with it, said after it was loaded or while it is.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::methods::Job;
use crate::methods::on_demand::OnDemand;
use crate::methods::read::fill;
use crate::region::{Backing, Region};
use crate::sys::HUGE_PAGE_BYTES;
use crate::sys::advice::Harmless;
use crate::sys::pages::pages;
use crate::sys::read::Caching;

/// What will be done with a range of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum Advice {
    /// It will be written: its pages become private now, as huge pages, instead of one by one by a copy and a fault each.
    WriteSoon,
    /// It will be read only. Windows of an image that comes on demand that are missing show the file instead of taking memory; needs
    /// `may_map`.
    ReadOnly,
    /// It will not be touched: nothing is read ahead. If it is touched all the same, it is there.
    Never,
    /// It will be touched in order, soon.
    Sequential,
}

/// The windows of memory that lie wholly in a part of it.
fn whole(part: &Range<usize>) -> Range<usize> {
    let first = part.start.div_ceil(HUGE_PAGE_BYTES);
    first..(part.end / HUGE_PAGE_BYTES).max(first)
}

/// Advice about an image that comes on demand. `part` is of its memory; the caller holds the image for itself.
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
                shared.windows.leave(window);
            }
        }
        Advice::ReadOnly if may_map => {
            for window in whole(&part) {
                give_back(load, job, window)?;
            }
        }
        // Copies are all that is allowed.
        Advice::ReadOnly => {}
    }
    Ok(())
}

/// Shows the file in a window that is missing.
fn give_back(load: &OnDemand, job: &Job, window: usize) -> Result<()> {
    let shared = load.shared();
    if !shared.windows.give_back(window) {
        return Ok(());
    }
    let from = window * HUGE_PAGE_BYTES;
    // SAFETY: the window is missing and will not be read any more; the image is held by the caller alone, so nobody waits for a page of
    // it.
    unsafe {
        shared.region.replace_by_file(
            from,
            from + HUGE_PAGE_BYTES,
            job.source.cached(),
            job.part.window(window).offset,
            Backing::FilePrivate,
        )
    }
    .map_err(|errno| job.source.failed("map a part of", errno))
}

/// Advice about an image that is all there. `part` is of its memory; the caller holds the image for itself.
pub(crate) fn advise_whole(
    region: &Region,
    job: &Job,
    part: Range<usize>,
    advice: Advice,
) -> Result<()> {
    if region.backing() == Backing::Private {
        return Ok(());
    }
    let harmless = match advice {
        Advice::WriteSoon if region.backing() == Backing::FilePrivate => {
            return whole(&part).try_for_each(|window| take_over(region, job, window));
        }
        Advice::WriteSoon | Advice::ReadOnly => Harmless::WillNeed,
        Advice::Never => Harmless::Random,
        Advice::Sequential => Harmless::Sequential,
    };
    // Only advice.
    let _ = region.advise(part.start, part.end, harmless);
    Ok(())
}

/// Makes a window of a private mapping a private huge page, with the file's bytes, unless something in it was written.
fn take_over(region: &Region, job: &Job, number: usize) -> Result<()> {
    let from = number * HUGE_PAGE_BYTES;
    let Some(found) = pages(region.address() as usize + from, HUGE_PAGE_BYTES) else {
        return Ok(());
    };
    // A page that is swapped was written, too.
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
    // SAFETY: `taken` is a whole window, and nobody else knows of it.
    let read = |file| unsafe { fill(job, file, taken.address(), window, Caching::Kept) };
    read(file).or_else(|_| read(source.cached()))?;
    source.check()?;
    // SAFETY: the part was not written, so what is in `taken` is what was there; the caller holds the image alone.
    unsafe { region.replace_by_region(from, taken) }
        .map_err(|errno| job.source.failed("take over a part of", errno))
}

/// A range of an image as a part of its memory.
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
