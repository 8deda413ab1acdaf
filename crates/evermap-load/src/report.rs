//! Reports of loads.

use std::sync::atomic::Ordering;

use evermap_observe::Usage;

use crate::history::LoadHistory;
use crate::job::Job;
use crate::plan::{Choice, Method};
use crate::region::Region;
use crate::replay::RecordingUse;
use crate::sys::pages::pages;

/// Memory of an image at this time, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Residency {
    /// Private pages of this process.
    pub private_bytes: u64,
    /// Private pages that are huge; 0 if the kernel does not report it (before Linux 6.7).
    pub huge_bytes: u64,
    /// Mapped pages of the file's cache.
    pub file_bytes: u64,
    /// Swapped pages.
    pub swapped_bytes: u64,
    /// Bytes of the loaded range in the page cache, mapped or not.
    pub cached_bytes: u64,
    /// Bytes both in the page cache and in private pages.
    pub duplicate_bytes: u64,
}

/// Method, reason and cost of a load.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Report {
    /// Method, threads and reason.
    pub choice: Choice,
    /// Methods tried before, with the reasons for refusal.
    pub refused: Vec<(Method, String)>,
    /// Use of a recording; `None` if none was requested.
    pub recording: Option<RecordingUse>,
    /// Bytes of the image.
    pub bytes: u64,
    /// Seconds until the first byte was usable; `None` if it is not yet.
    pub first_use_s: Option<f64>,
    /// Seconds until all bytes were usable; `None` if they are not yet.
    pub complete_s: Option<f64>,
    /// Resources used by the process during the load, including its other threads. Up to now if the
    /// load is not complete.
    pub usage: Usage,
    /// Peak resident memory of the process, in bytes.
    pub peak_resident_bytes: Option<u64>,
    /// Memory of the image now.
    pub residency: Residency,
    /// Windows loaded because a thread waited for them.
    pub windows_on_demand: u64,
    /// Windows loaded before any thread waited for them.
    pub windows_streamed: u64,
    /// Bytes read past the page cache.
    pub direct_bytes: u64,
    /// Bytes read through the page cache.
    pub buffered_bytes: u64,
    /// Bytes in holes of the file.
    pub hole_bytes: u64,
    /// Page moves that the kernel asked to retry.
    pub moves_retried: u64,
    /// Pages copied because they could not be moved.
    pub pages_copied: u64,
    /// Windows read through the cache because a direct read failed.
    pub windows_read_again: u64,
    /// Threads that were killed and replaced.
    pub threads_replaced: u64,
    /// Share of the device's rate that was reached; `None` if there were no direct reads or the
    /// rate is unknown.
    pub device_share: Option<f64>,
    /// True if system calls can use bytes that are not loaded yet.
    pub serves_system_calls: bool,
}

/// Returns the memory of an image. Walks its page tables.
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

pub(crate) fn report(
    job: &Job,
    region: &Region,
    history: &LoadHistory,
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
        choice: history.choice.clone(),
        refused: history.refused.clone(),
        recording: history.replay.used.clone(),
        bytes: job.part.bytes(),
        first_use_s: counters.first_s(),
        complete_s,
        usage,
        peak_resident_bytes: evermap_observe::proc::status_bytes("VmHWM"),
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
