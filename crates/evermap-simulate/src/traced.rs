//! Reads of a traced program, in pages per frame.
//!
//! Only reads count. The marks of the trace delimit frames; without marks, the period does,
//! starting at the first read. A read without an offset continues at the end of the previous read
//! of its file. Reads without a file belong to one unnamed file. Pages are 4 KiB, numbered in the
//! order of their first reference.

use std::collections::HashMap;
use std::sync::Arc;

use evermap_trace::{Event, Operation, Period, Trace};

use crate::error::{Error, at_most};

const PAGE_BYTES: u64 = 4096;
/// Maximum number of page references: a minute to simulate, and a gigabyte of memory.
const PAGES_MAX: u64 = 200_000_000;
/// Maximum number of different pages, as in a profile. They need another gigabyte.
const FOOTPRINT_MAX: u64 = 1 << 24;
const FRAMES_MAX: u64 = 1_000_000;
const REMEDY: &str = "take a shorter trace, or a part of it";

/// Reads of a program, in pages per frame.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Traced {
    frames: Vec<Vec<u32>>,
    footprint_pages: u32,
}

impl Traced {
    /// Extracts the reads of a trace. `period` delimits frames if the trace has no marks.
    ///
    /// # Errors
    ///
    /// The trace has no reads, or too many pages or frames to simulate in reasonable time.
    pub fn of(trace: &Trace, period: Period) -> Result<Self, Error> {
        Self::of_reads(trace, period, |_| true)
    }

    /// Extracts the reads of files that match a pattern: by path if the pattern contains `/`, else
    /// by name. A recording also contains reads of the program's own executable and libraries.
    ///
    /// # Errors
    ///
    /// Same errors as [`of`](Self::of), and an invalid pattern.
    pub fn of_files(trace: &Trace, period: Period, pattern: &str) -> Result<Self, Error> {
        let compiled = glob::Pattern::new(pattern).map_err(|error| {
            let (key, value) = ("files".to_string(), format!("`{pattern}`"));
            Error::InvalidValue { key, value, why: format!("it is not a valid pattern: {error}") }
        })?;
        let has_path = pattern.contains('/');
        Self::of_reads(trace, period, |event| {
            let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_string();
            let matches = |path: &str| match has_path {
                true => compiled.matches(path),
                false => compiled.matches(&name(path)),
            };
            event.file.as_deref().is_some_and(matches)
        })
    }

    fn of_reads(
        trace: &Trace,
        period: Period,
        counts: impl Fn(&Event) -> bool,
    ) -> Result<Self, Error> {
        let is_read = |event: &&Event| event.operation == Operation::Read && counts(event);
        let reads = || trace.events.iter().filter(is_read);
        let first_ns = reads().next().ok_or(Error::EmptyTrace)?.at_ns;
        let first_mark = reads().filter_map(|event| event.frame).min();
        let mut traced = Self::default();
        let mut files = Files::default();
        let mut pages = 0;
        let mut current = 0;
        for event in reads() {
            let frame = match (first_mark, event.frame) {
                (Some(first), Some(mark)) => mark - first,
                // A read between two marks belongs to the earlier frame.
                (Some(_), None) => current,
                // A parsed trace is in order of time. A trace made by the caller may not be.
                (None, _) => period.at(event.at_ns.saturating_sub(first_ns)),
            };
            current = frame;
            at_most("frames of a trace", frame.saturating_add(1), FRAMES_MAX, REMEDY)?;
            let (from, to) = files.pages_of(event);
            pages += to - from;
            at_most("pages read in a trace", pages, PAGES_MAX, REMEDY)?;
            let frame = frame as usize;
            if traced.frames.len() <= frame {
                traced.frames.resize(frame + 1, Vec::new());
            }
            let file = files.number(event);
            traced.frames[frame].extend((from..to).map(|page| files.page(file, page)));
            let different = files.pages.len() as u64;
            at_most("different pages of a trace", different, FOOTPRINT_MAX, REMEDY)?;
        }
        traced.footprint_pages = files.pages.len() as u32;
        Ok(traced)
    }

    pub(crate) fn frames(&self) -> &[Vec<u32>] {
        &self.frames
    }

    /// Returns the number of different pages.
    pub fn footprint_pages(&self) -> u32 {
        self.footprint_pages
    }

    /// Returns the number of frames.
    pub fn frame_count(&self) -> usize {
        self.frames.len()
    }
}

/// Numbers of files and pages, and the current position in each file.
#[derive(Default)]
struct Files {
    numbers: HashMap<Option<Arc<str>>, u32>,
    ends: HashMap<u32, u64>,
    pages: HashMap<(u32, u64), u32>,
}

impl Files {
    fn number(&mut self, event: &Event) -> u32 {
        let next = self.numbers.len() as u32;
        *self.numbers.entry(event.file.clone()).or_insert(next)
    }

    /// Returns the range of pages of a read.
    fn pages_of(&mut self, event: &Event) -> (u64, u64) {
        let file = self.number(event);
        let end = self.ends.entry(file).or_insert(0);
        let from = event.offset_bytes.unwrap_or(*end);
        *end = from.saturating_add(event.length_bytes);
        let first = from / PAGE_BYTES;
        if event.length_bytes == 0 { (first, first) } else { (first, (*end - 1) / PAGE_BYTES + 1) }
    }

    fn page(&mut self, file: u32, page: u64) -> u32 {
        let next = self.pages.len() as u32;
        *self.pages.entry((file, page)).or_insert(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evermap_trace::Format;

    fn read(at_ms: u64, file: &str, offset_bytes: Option<u64>, length_bytes: u64) -> Event {
        Event {
            at_ns: at_ms * 1_000_000,
            frame: None,
            operation: Operation::Read,
            file: Some(file.into()),
            offset_bytes,
            length_bytes,
            latency_ns: None,
            process: None,
        }
    }

    fn traced(events: Vec<Event>) -> Result<Traced, Error> {
        let period = Period::of_us(40_000).unwrap();
        Traced::of(&Trace { format: Format::Json, events, warnings: Vec::new() }, period)
    }

    #[test]
    fn without_marks_the_period_delimits_frames_from_the_first_read() {
        let events = vec![
            read(100, "a", Some(0), 8_192),
            read(139, "a", Some(8_191), 2),
            read(140, "b", Some(0), 1),
            read(260, "a", Some(0), 4_096),
        ];
        let traced = traced(events).unwrap();
        assert_eq!(traced.frames, [vec![0, 1, 1, 2], vec![3], vec![], vec![], vec![0]]);
        assert_eq!(traced.footprint_pages(), 4);
    }

    #[test]
    fn an_out_of_order_read_before_the_first_one_is_in_the_first_frame() {
        let events = vec![read(100, "a", Some(0), 1), read(50, "a", Some(0), 1)];
        assert_eq!(traced(events).unwrap().frames, [vec![0, 0]]);
    }

    #[test]
    fn marks_delimit_frames_and_hold_until_the_next_mark() {
        let mut events = vec![read(0, "a", Some(0), 1), read(1, "a", Some(0), 1)];
        events.push(read(500, "a", Some(0), 1));
        events[0].frame = Some(7);
        events[2].frame = Some(9);
        let traced = traced(events).unwrap();
        assert_eq!(traced.frames, [vec![0, 0], vec![], vec![0]]);
    }

    #[test]
    fn reads_without_an_offset_continue_after_the_previous_read_of_the_file() {
        let events = vec![
            read(0, "a", None, 4_096),
            read(0, "b", None, 4_096),
            read(0, "a", None, 4_096),
            read(0, "a", Some(0), 4_096),
            read(0, "a", None, 4_096),
        ];
        assert_eq!(traced(events).unwrap().frames, [vec![0, 1, 2, 0, 2]]);
    }

    #[test]
    fn files_are_chosen_by_name_or_by_path() {
        let trace = Trace {
            format: Format::Json,
            events: vec![
                read(0, "/lib/libav.so", Some(0), 4_096),
                read(90, "/films/a.mkv", Some(0), 4_096),
                read(91, "/films/b.mkv", Some(0), 4_096),
            ],
            warnings: Vec::new(),
        };
        let period = Period::of_us(40_000).unwrap();
        let frames = |pattern: &str| Traced::of_files(&trace, period, pattern).map(|of| of.frames);
        assert_eq!(frames("*.mkv"), Ok(vec![vec![0, 1]]));
        assert_eq!(frames("/films/b*"), Ok(vec![vec![0]]));
        assert_eq!(frames("*.avi"), Err(Error::EmptyTrace));
        assert!(frames("[").unwrap_err().to_string().contains("`[`"));
    }

    #[test]
    fn only_reads_count_and_a_trace_without_reads_is_an_error() {
        let mut write = read(0, "a", Some(0), 4_096);
        write.operation = Operation::Write;
        assert_eq!(traced(vec![write.clone()]), Err(Error::EmptyTrace));
        let both = traced(vec![write, read(5, "a", Some(4_096), 0), read(6, "a", Some(0), 1)]);
        assert_eq!(both.unwrap().frames, [vec![0]]);
    }

    #[test]
    fn extreme_offsets_and_long_gaps_are_handled() {
        let far = traced(vec![read(0, "a", Some(u64::MAX - 1), u64::MAX)]);
        assert_eq!(far.unwrap().frames[0].len(), 1);
        let huge = traced(vec![read(0, "a", Some(0), u64::MAX)]).unwrap_err().to_string();
        assert!(huge.contains("pages"), "{huge}");
        let apart = traced(vec![read(0, "a", Some(0), 1), read(86_400_000, "a", Some(0), 1)]);
        assert!(apart.unwrap_err().to_string().contains("frames"));
    }
}
