//! Collects events and warnings from the parsers. Checks what all formats share: lengths, offsets,
//! order, and the number of events. Makes times relative to the first event.

use std::collections::HashSet;
use std::sync::Arc;

use crate::event::{Event, LENGTH_BYTES_MAX, Operation, Trace};
use crate::format::Format;
use crate::warning::{Problem, Warning, Warnings};

/// Longest path in Linux.
const NAME_BYTES_MAX: usize = 4_096;
const OFFSET_BYTES_END: u64 = 1 << 63;

/// Events and warnings collected so far.
#[derive(Debug)]
pub(crate) struct Collector {
    events: Vec<Event>,
    warnings: Warnings,
    names: HashSet<Arc<str>>,
    events_max: usize,
    latest_ns: u64,
    latest_line_ns: u64,
    is_ordered: bool,
    is_full: bool,
    line: u64,
    format: Format,
    is_relative_to_first: bool,
    zero_length_is_odd: bool,
}

impl Collector {
    /// Creates a collector for events of this format.
    pub fn new(format: Format, events_max: usize) -> Self {
        Self {
            events: Vec::new(),
            warnings: Warnings::default(),
            names: HashSet::new(),
            events_max,
            latest_ns: 0,
            latest_line_ns: 0,
            is_ordered: true,
            is_full: false,
            line: 0,
            format,
            // Times in our own format are already relative, and are kept as written.
            is_relative_to_first: format != Format::Json,
            // A read at the end of a file returns 0 bytes. Requests to devices never have 0 bytes.
            zero_length_is_odd: !matches!(format, Format::Json | Format::Strace),
        }
    }

    /// Sets the original format of an imported trace.
    pub fn set_original_format(&mut self, format: Format) {
        self.format = format;
    }

    /// Sets the number of the current line, from 1, for warnings.
    pub fn at_line(&mut self, line: u64) {
        self.line = line;
    }

    /// Returns the number of the current line, from 1.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Checks the time of the current line, for formats whose events are not in the order of their
    /// lines.
    pub fn check_order(&mut self, at_ns: u64) {
        if at_ns < self.latest_line_ns {
            let late_us = (self.latest_line_ns - at_ns) as f64 / 1e3;
            self.warn(Problem::Unordered, &format!("by {late_us} us"));
        }
        self.latest_line_ns = self.latest_line_ns.max(at_ns);
    }

    /// Returns true if no more events are accepted, so that reading can stop.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Returns the number of events that are still accepted.
    pub fn room(&self) -> usize {
        self.events_max.saturating_sub(self.events.len())
    }

    /// Stops accepting events, and warns once.
    pub fn mark_full(&mut self) {
        if !self.is_full {
            let text = format!("{} events were kept, which is the limit", self.events_max);
            self.warn(Problem::TooManyEvents, &text);
        }
        self.is_full = true;
    }

    /// Returns true if there is no event yet.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Adds a warning about the current line.
    pub fn warn(&mut self, problem: Problem, text: &str) {
        self.warnings.add(problem, Some(self.line), text);
    }

    /// Adds a warning about an earlier line.
    pub fn warn_at(&mut self, line: u64, problem: Problem, text: &str) {
        self.warnings.add(problem, Some(line), text);
    }

    /// Returns the first warning.
    pub fn first_warning(&self) -> Option<&Warning> {
        self.warnings.first()
    }

    /// Interns a name: each is stored once.
    pub fn name(&mut self, name: &str) -> Option<Arc<str>> {
        if let Some(known) = self.names.get(name) {
            return Some(Arc::clone(known));
        }
        if name.len() > NAME_BYTES_MAX {
            self.warn(Problem::Malformed, "a name of more than 4,096 bytes");
            return None;
        }
        let name: Arc<str> = name.into();
        self.names.insert(Arc::clone(&name));
        Some(name)
    }

    /// Adds an event. Its time may have any origin.
    pub fn add(&mut self, mut event: Event) {
        let is_transfer = matches!(event.operation, Operation::Read | Operation::Write);
        if is_transfer && event.length_bytes > LENGTH_BYTES_MAX {
            return self.warn(Problem::LengthTooLarge, &event.length_bytes.to_string());
        }
        if self.room() == 0 {
            return self.mark_full();
        }
        if is_transfer && event.length_bytes == 0 && self.zero_length_is_odd {
            self.warn(Problem::ZeroLength, "");
        }
        if let Some(offset_bytes) = event.offset_bytes {
            let end = offset_bytes.checked_add(event.length_bytes);
            if end.is_none_or(|end| end > OFFSET_BYTES_END) || offset_bytes >= OFFSET_BYTES_END {
                self.warn(Problem::OffsetTooLarge, &offset_bytes.to_string());
                event.offset_bytes = None;
            }
        }
        if event.at_ns < self.latest_ns {
            self.is_ordered = false;
        }
        self.latest_ns = self.latest_ns.max(event.at_ns);
        self.events.push(event);
    }

    /// Like [`add`](Self::add), for formats whose lines are ordered by time. Warns about a line out
    /// of order.
    pub fn add_in_order(&mut self, event: Event) {
        self.check_order(event.at_ns);
        self.add(event);
    }

    /// Returns all events ordered by time, relative to the first event.
    pub fn finish(mut self) -> Trace {
        if !self.is_ordered {
            self.events.sort_by_key(|event| event.at_ns);
        }
        let first_ns = self.events.first().map_or(0, |event| event.at_ns);
        if self.is_relative_to_first {
            for event in &mut self.events {
                event.at_ns -= first_ns;
            }
        }
        Trace { format: self.format, events: self.events, warnings: self.warnings.into_listed() }
    }
}
