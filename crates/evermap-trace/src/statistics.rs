//! Statistics of a trace: amounts and latencies of requests, footprint, and reads per frame.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use evermap_observe::Quantiles;
use serde::Serialize;

use crate::event::{Event, Operation, Trace};
use crate::format::Format;
use crate::period::Period;
use crate::ranges::Ranges;

/// Size of a memory page.
pub const PAGE_BYTES: u64 = 4_096;

/// Statistics of a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Statistics {
    /// Format of the recording.
    pub format: Format,
    /// Number of requests of all kinds.
    pub events: u64,
    /// Time from the begin of the trace to the last completion, or to the last request if it has
    /// none.
    pub duration_s: f64,
    /// Reads.
    pub reads: Transfers,
    /// Writes.
    pub writes: Transfers,
    /// Number of flushes, and their latencies.
    pub flushes: Flushes,
    /// Number of discards.
    pub discards: u64,
    /// Number of other requests.
    pub others: u64,
    /// Pages touched by reads and writes whose file and offset are known.
    pub pages: Pages,
    /// Reads per frame, if a period is given or the events have frames.
    pub frames: Option<Frames>,
    /// Files, the one with the most bytes first.
    pub files: Vec<FileStatistics>,
    /// Number of warnings from reading the trace.
    pub warnings: u64,
}

/// Statistics of reads or of writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Transfers {
    /// Number of requests.
    pub count: u64,
    /// Total bytes.
    pub bytes: u64,
    /// Bytes per request.
    pub size_bytes: Quantiles,
    /// Latency per request, of those that have one.
    pub latency_ms: Quantiles,
    /// Share of requests that begin where the previous one in the same file ended, of those whose
    /// file and offset are known. From 0 to 1.
    pub sequential_share: f64,
}

/// Statistics of requests that move no bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Flushes {
    /// Number of requests.
    pub count: u64,
    /// Latency per request, of those that have one.
    pub latency_ms: Quantiles,
}

/// Pages of [`PAGE_BYTES`] that were touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Pages {
    /// Page references by reads and writes.
    pub references: u64,
    /// Number of different pages: the footprint. A cache of this size would miss each page once.
    pub distinct: u64,
    /// Share of references to a page that was touched before. From 0 to 1.
    pub again_share: f64,
}

/// Reads per frame. Frames without reads count in `count` only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Frames {
    /// Length of a frame, or `None` if the events have frames of their own.
    pub period_ms: Option<f64>,
    /// Number of frames from the first to the last request.
    pub count: u64,
    /// Number of frames with reads.
    pub reading: u64,
    /// Reads per frame.
    pub reads: Quantiles,
    /// Bytes read per frame.
    pub read_bytes: Quantiles,
    /// Pages read per frame. A page counts for each read of it.
    pub read_pages: Quantiles,
    /// Total latency of the reads per frame.
    pub read_ms: Quantiles,
}

/// Statistics of a file or device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FileStatistics {
    /// Name of the file, or `None` for requests whose file is unknown.
    pub file: Option<String>,
    /// Number of reads.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Number of writes.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Number of different pages touched.
    pub distinct_pages: u64,
}

/// Computes the statistics. `period` defines the frames; without it, the events' own frames are
/// used, if they have any.
///
/// Sorts once for each kind of quantile. Each event takes logarithmic time, independent of its
/// length.
pub fn stat(trace: &Trace, period: Option<Period>) -> Statistics {
    let mut counter = Counter::default();
    for event in &trace.events {
        counter.take(event, period);
    }
    let Counter { duration_ns, reads, writes, flushes, discards, others, files, frames, .. } =
        counter;
    let references = files.values().map(|file| file.references).fold(0, u64::saturating_add);
    let distinct = files.values().map(|file| file.touched.total()).fold(0, u64::saturating_add);
    let again_share = share(references.saturating_sub(distinct), references);
    Statistics {
        format: trace.format,
        events: trace.events.len() as u64,
        duration_s: duration_ns as f64 / 1e9,
        reads: reads.transfers(),
        writes: writes.transfers(),
        flushes: Flushes {
            count: flushes.count,
            latency_ms: Quantiles::of_ns_in_ms(&flushes.latencies_ns),
        },
        discards,
        others,
        pages: Pages { references, distinct, again_share },
        frames: frames_of(&frames, period),
        files: files_of(files),
        warnings: trace.warnings.iter().map(|warning| 1 + warning.and_more).sum(),
    }
}

#[derive(Debug, Default)]
struct Counter {
    duration_ns: u64,
    reads: Sum,
    writes: Sum,
    flushes: Sum,
    discards: u64,
    others: u64,
    files: HashMap<Option<Arc<str>>, File>,
    frames: BTreeMap<u64, Frame>,
}

#[derive(Debug, Default)]
struct Sum {
    count: u64,
    bytes: u64,
    sizes: Vec<f64>,
    latencies_ns: Vec<u64>,
    placed: u64,
    sequential: u64,
}

#[derive(Debug, Default)]
struct File {
    reads: u64,
    read_bytes: u64,
    writes: u64,
    write_bytes: u64,
    references: u64,
    touched: Ranges,
    read_end: Option<u64>,
    write_end: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Frame {
    reads: u64,
    bytes: u64,
    pages: u64,
    latency_ns: u64,
}

impl Counter {
    fn take(&mut self, event: &Event, period: Option<Period>) {
        let end_ns = event.at_ns.saturating_add(event.latency_ns.unwrap_or(0));
        self.duration_ns = self.duration_ns.max(end_ns);
        let frame = period.map(|period| period.at(event.at_ns)).or(event.frame);
        match event.operation {
            Operation::Read | Operation::Write => self.take_transfer(event),
            Operation::Flush => self.flushes.take(event),
            Operation::Discard => self.discards += 1,
            Operation::Other => self.others += 1,
        }
        // Every request extends the range of frames.
        let Some(frame) = frame else { return };
        let frame = self.frames.entry(frame).or_default();
        if event.operation == Operation::Read {
            frame.reads += 1;
            frame.bytes = frame.bytes.saturating_add(event.length_bytes);
            frame.pages = frame.pages.saturating_add(pages(event).map_or(0, |(a, b)| b - a));
            frame.latency_ns = frame.latency_ns.saturating_add(event.latency_ns.unwrap_or(0));
        }
    }

    fn take_transfer(&mut self, event: &Event) {
        let file = self.files.entry(event.file.clone()).or_default();
        let (sum, end) = match event.operation {
            Operation::Write => {
                file.writes += 1;
                file.write_bytes = file.write_bytes.saturating_add(event.length_bytes);
                (&mut self.writes, &mut file.write_end)
            }
            _ => {
                file.reads += 1;
                file.read_bytes = file.read_bytes.saturating_add(event.length_bytes);
                (&mut self.reads, &mut file.read_end)
            }
        };
        sum.take(event);
        let (Some(_), Some(offset_bytes)) = (&event.file, event.offset_bytes) else { return };
        sum.placed += 1;
        sum.sequential += u64::from(*end == Some(offset_bytes));
        *end = Some(offset_bytes.saturating_add(event.length_bytes));
        if let Some((begin, end)) = pages(event) {
            file.references = file.references.saturating_add(end - begin);
            file.touched.add(begin, end);
        }
    }
}

impl Sum {
    fn take(&mut self, event: &Event) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(event.length_bytes);
        self.sizes.push(event.length_bytes as f64);
        self.latencies_ns.extend(event.latency_ns);
    }

    fn transfers(&self) -> Transfers {
        Transfers {
            count: self.count,
            bytes: self.bytes,
            size_bytes: Quantiles::of(&self.sizes),
            latency_ms: Quantiles::of_ns_in_ms(&self.latencies_ns),
            sequential_share: share(self.sequential, self.placed),
        }
    }
}

/// Returns the pages that a request touches. Without an offset, counts from page 0.
fn pages(event: &Event) -> Option<(u64, u64)> {
    let begin = event.offset_bytes.unwrap_or(0);
    let end = begin.checked_add(event.length_bytes)?;
    (event.length_bytes > 0).then(|| (begin / PAGE_BYTES, end.div_ceil(PAGE_BYTES)))
}

fn share(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 }
}

fn frames_of(frames: &BTreeMap<u64, Frame>, period: Option<Period>) -> Option<Frames> {
    let (&first, _) = frames.first_key_value()?;
    let (&last, _) = frames.last_key_value()?;
    // With a period, the first frame begins with the trace.
    let first = if period.is_some() { 0 } else { first };
    let reading: Vec<&Frame> = frames.values().filter(|frame| frame.reads > 0).collect();
    let of = |value: fn(&Frame) -> f64| {
        Quantiles::of(&reading.iter().map(|frame| value(frame)).collect::<Vec<f64>>())
    };
    Some(Frames {
        period_ms: period.map(|period| 1e3 / period.rate_hz()),
        count: (last - first).saturating_add(1),
        reading: reading.len() as u64,
        reads: of(|frame| frame.reads as f64),
        read_bytes: of(|frame| frame.bytes as f64),
        read_pages: of(|frame| frame.pages as f64),
        read_ms: of(|frame| frame.latency_ns as f64 / 1e6),
    })
}

fn files_of(files: HashMap<Option<Arc<str>>, File>) -> Vec<FileStatistics> {
    let of = |(file, sums): (Option<Arc<str>>, File)| FileStatistics {
        file: file.map(|file| file.to_string()),
        reads: sums.reads,
        read_bytes: sums.read_bytes,
        writes: sums.writes,
        write_bytes: sums.write_bytes,
        distinct_pages: sums.touched.total(),
    };
    let mut files: Vec<FileStatistics> = files.into_iter().map(of).collect();
    let bytes = |file: &FileStatistics| file.read_bytes.saturating_add(file.write_bytes);
    files.sort_by(|a, b| bytes(b).cmp(&bytes(a)).then_with(|| a.file.cmp(&b.file)));
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(at_ms: u64, operation: Operation, file: &str, offset: u64, length: u64) -> Event {
        Event {
            at_ns: at_ms * 1_000_000,
            frame: None,
            operation,
            file: Some(file.into()),
            offset_bytes: Some(offset),
            length_bytes: length,
            latency_ns: Some(2_000_000),
            process: None,
        }
    }

    fn trace(events: Vec<Event>) -> Trace {
        Trace { format: Format::Json, events, warnings: Vec::new() }
    }

    #[test]
    fn statistics_of_a_small_trace_match_a_manual_count() {
        let trace = trace(vec![
            event(0, Operation::Read, "a", 0, 8_192),
            event(1, Operation::Read, "a", 8_192, 4_096),
            event(2, Operation::Read, "b", 100, 8_192),
            event(50, Operation::Read, "a", 4_096, 8_192),
            event(51, Operation::Write, "a", 0, 1),
            event(90, Operation::Flush, "a", 0, 0),
        ]);
        let statistics = stat(&trace, Some("24".parse().unwrap()));
        assert_eq!((statistics.reads.count, statistics.reads.bytes), (4, 28_672));
        assert_eq!(statistics.reads.sequential_share, 0.25);
        assert_eq!(statistics.reads.latency_ms.p50, 2.0);
        assert_eq!((statistics.writes.count, statistics.flushes.count), (1, 1));
        // File a has 2 + 1 + 2 + 1 references to 3 pages. File b has 3 references to 3 pages,
        // because it begins within a page.
        assert_eq!((statistics.pages.references, statistics.pages.distinct), (9, 6));
        assert!((statistics.pages.again_share - 3.0 / 9.0).abs() < 1e-12);
        let frames = statistics.frames.unwrap();
        assert_eq!((frames.count, frames.reading), (3, 2));
        assert_eq!((frames.reads.max, frames.reads.min), (3.0, 1.0));
        assert_eq!((frames.read_pages.max, frames.read_ms.max), (6.0, 6.0));
        assert_eq!(statistics.duration_s, 0.092);
        let files: Vec<_> = statistics.files.iter().map(|f| f.file.as_deref().unwrap()).collect();
        assert_eq!(files, ["a", "b"]);
    }

    #[test]
    fn frames_of_the_trace_are_used_without_a_period() {
        let mut marked = trace(vec![event(0, Operation::Read, "a", 0, 1)]);
        assert_eq!(stat(&marked, None).frames, None);
        marked.events[0].frame = Some(7);
        let frames = stat(&marked, None).frames.unwrap();
        assert_eq!((frames.count, frames.reading, frames.period_ms), (1, 1, None));
    }

    #[test]
    fn empty_traces_and_the_largest_numbers_are_counted() {
        let none = stat(&trace(Vec::new()), None);
        assert_eq!((none.events, none.pages.again_share), (0, 0.0));
        let huge = Event {
            at_ns: u64::MAX,
            frame: Some(u64::MAX),
            length_bytes: u64::MAX,
            latency_ns: Some(u64::MAX),
            ..event(0, Operation::Read, "a", (1 << 63) - 1, 0)
        };
        let first = Event { at_ns: 0, frame: Some(0), ..huge.clone() };
        let huge = stat(&trace(vec![first, huge.clone(), huge]), None);
        assert_eq!((huge.reads.count, huge.reads.bytes), (3, u64::MAX));
        assert_eq!(huge.frames.unwrap().count, u64::MAX);
    }
}
