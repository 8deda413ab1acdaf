//! What a load has to say for itself.

use std::sync::atomic::Ordering;

use evermap_observe::Usage;

use crate::image::Made;
use crate::methods::Job;
use crate::plan::{Choice, Method};
use crate::region::Region;
use crate::replay::RecordingUse;
use crate::sys::pages::pages;

/// What an image has in memory now, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Residency {
    /// Private pages: this process's alone.
    pub private_bytes: u64,
    /// Of these, in huge pages; 0 where the kernel does not tell (before Linux 6.7).
    pub huge_bytes: u64,
    /// Pages of the file's cache that are mapped.
    pub file_bytes: u64,
    /// Swapped out.
    pub swapped_bytes: u64,
    /// Of the loaded range, in the page cache, mapped or not.
    pub cached_bytes: u64,
    /// In the page cache and in private pages as well.
    pub duplicate_bytes: u64,
}

/// What was done, why, and what it cost.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Report {
    /// The method, its threads, and why it was picked.
    pub choice: Choice,
    /// Methods that were tried before, and why they did not do.
    pub refused: Vec<(Method, String)>,
    /// What was done with a recording; `None` if nobody spoke of one.
    pub recording: Option<RecordingUse>,
    /// Bytes of the image.
    pub bytes: u64,
    /// Seconds until the first byte could be used; `None` if it can't yet.
    pub first_use_s: Option<f64>,
    /// Seconds until all could.
    pub complete_s: Option<f64>,
    /// What the process has used meanwhile; other threads of it too. Until now, if it is not complete.
    pub usage: Usage,
    /// The most memory that the process ever had.
    pub peak_resident_bytes: Option<u64>,
    /// What is in memory now.
    pub residency: Residency,
    /// Windows that somebody waited for.
    pub windows_on_demand: u64,
    /// Windows that came before anybody waited.
    pub windows_streamed: u64,
    /// Bytes that were read past the page cache.
    pub direct_bytes: u64,
    /// Bytes that were read through it.
    pub buffered_bytes: u64,
    /// Bytes that are holes in the file.
    pub hole_bytes: u64,
    /// Moves of pages that the kernel asked to try again.
    pub moves_retried: u64,
    /// Pages that were copied as they could not be moved.
    pub pages_copied: u64,
    /// Windows that were read through the cache as they could not be read past it.
    pub windows_read_again: u64,
    /// Threads that were killed, and replaced.
    pub threads_replaced: u64,
    /// The share of the device's rate that was reached; `None` if nothing was read past the cache, or the rate is not known.
    pub device_share: Option<f64>,
    /// Whether system calls could be given bytes from the beginning.
    pub serves_system_calls: bool,
}

/// What of an image is in memory. Costs a walk over its page tables.
pub(crate) fn residency(job: &Job, region: &Region) -> Residency {
    let mut found = Residency::default();
    let source = job.source.cached();
    let length = job.part.end - job.part.begin;
    if length == 0 {
        return found;
    }
    let cached = |offset, bytes| {
        evermap_observe::residency_of(source, offset, bytes)
            .map_or(0, |residency| residency.resident_bytes)
    };
    found.cached_bytes = cached(job.part.begin, length);
    let base = region.address() as usize;
    for pages in pages(base, region.bytes()).unwrap_or_default() {
        let bytes = pages.bytes as u64;
        match (pages.is_present, pages.is_file) {
            (false, _) => found.swapped_bytes += bytes,
            (true, true) => found.file_bytes += bytes,
            (true, false) => {
                found.private_bytes += bytes;
                found.huge_bytes += if pages.is_huge { bytes } else { 0 };
                let from = (pages.address - base) as u64;
                let to = (from + bytes).min(length);
                if found.cached_bytes > 0 && from < to {
                    found.duplicate_bytes += cached(job.part.begin + from, to - from).min(bytes);
                }
            }
        }
    }
    found
}

/// The most memory this process has had.
pub(crate) fn peak_resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

pub(crate) fn report(
    job: &Job,
    region: &Region,
    made: &Made,
    usage: Usage,
    serves_system_calls: bool,
) -> Report {
    let counters = &job.counters;
    let of = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let direct_bytes = of(&counters.direct_bytes);
    let complete_s = counters.complete_s();
    let device = evermap_observe::read_rate(job.source.identity().device);
    let device_share = match (complete_s, device) {
        (Some(seconds), Some(rate)) if direct_bytes > 0 => {
            Some(direct_bytes as f64 / seconds / rate)
        }
        _ => None,
    };
    Report {
        choice: made.choice.clone(),
        refused: made.refused.clone(),
        recording: made.replay.used.clone(),
        bytes: job.part.bytes(),
        first_use_s: counters.first_s(),
        complete_s,
        usage,
        peak_resident_bytes: peak_resident_bytes(),
        residency: residency(job, region),
        windows_on_demand: of(&counters.on_demand),
        windows_streamed: of(&counters.streamed),
        direct_bytes,
        buffered_bytes: of(&counters.cached_bytes),
        hole_bytes: of(&counters.hole_bytes),
        moves_retried: of(&counters.moved_again),
        pages_copied: of(&counters.copied_instead),
        windows_read_again: of(&counters.read_again),
        threads_replaced: of(&counters.threads_replaced),
        device_share,
        serves_system_calls,
    }
}
