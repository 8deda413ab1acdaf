//! Where parsers put events and warnings. What every format shares is checked here, once: lengths and offsets that cannot be, order, the
//! number of events, and the beginning that all times are counted from.

use std::collections::HashSet;
use std::sync::Arc;

use super::warning::{Problem, Warning, Warnings};
use super::{Event, Format, LENGTH_BYTES_MAX, Operation, Trace};

/// Linux has no path that is longer.
const NAME_BYTES_MAX: usize = 4_096;
const OFFSET_BYTES_END: u64 = 1 << 63;

/// Events as they are found.
#[derive(Debug)]
pub(super) struct Collector {
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
    is_from_first: bool,
    zero_length_is_odd: bool,
}

impl Collector {
    /// For events of this format.
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
            // Times of our own format were counted from a beginning before: as written, so read.
            is_from_first: format != Format::Json,
            // A read at a file's end brings nothing; a device is never asked for nothing.
            zero_length_is_odd: !matches!(format, Format::Json | Format::Strace),
        }
    }

    /// What it was before it came into the format that is being read.
    pub fn came_from(&mut self, format: Format) {
        self.format = format;
    }

    /// Which line is being read, from 1: warnings are about it.
    pub fn at_line(&mut self, line: u64) {
        self.line = line;
    }

    /// Which line is being read, from 1.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Of formats whose events come in another order than their lines: the line that is being read says this time.
    pub fn check_order(&mut self, at_ns: u64) {
        if at_ns < self.latest_line_ns {
            let late_us = (self.latest_line_ns - at_ns) as f64 / 1e3;
            self.warn(Problem::Unordered, &format!("by {late_us} us"));
        }
        self.latest_line_ns = self.latest_line_ns.max(at_ns);
    }

    /// No more events are taken: reading on would be in vain.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// How many more are taken.
    pub fn room(&self) -> usize {
        self.events_max.saturating_sub(self.events.len())
    }

    /// There are more than were asked for: said once.
    pub fn fill(&mut self) {
        if !self.is_full {
            let text = format!("{} events were kept, as many as asked for", self.events_max);
            self.warn(Problem::TooManyEvents, &text);
        }
        self.is_full = true;
    }

    /// Whether there is an event yet.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// A warning about the line that is being read.
    pub fn warn(&mut self, problem: Problem, text: &str) {
        self.warnings.add(problem, Some(self.line), text);
    }

    /// A warning about an earlier line.
    pub fn warn_at(&mut self, line: u64, problem: Problem, text: &str) {
        self.warnings.add(problem, Some(line), text);
    }

    /// What was wrong first.
    pub fn first_warning(&self) -> Option<&Warning> {
        self.warnings.first()
    }

    /// A name that may have been there before: each is held once.
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

    /// Takes an event whose time is counted from anywhere.
    pub fn add(&mut self, mut event: Event) {
        let is_transfer = matches!(event.operation, Operation::Read | Operation::Write);
        if is_transfer && event.length_bytes > LENGTH_BYTES_MAX {
            return self.warn(Problem::LengthTooLarge, &event.length_bytes.to_string());
        }
        if self.room() == 0 {
            return self.fill();
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

    /// As [`add`](Self::add), for formats whose lines are by time: one that isn't is worth a warning.
    pub fn add_in_order(&mut self, event: Event) {
        self.check_order(event.at_ns);
        self.add(event);
    }

    /// All of it, by time, which is counted from the first event.
    pub fn finish(mut self) -> Trace {
        if !self.is_ordered {
            self.events.sort_by_key(|event| event.at_ns);
        }
        let first_ns = self.events.first().map_or(0, |event| event.at_ns);
        if self.is_from_first {
            for event in &mut self.events {
                event.at_ns -= first_ns;
            }
        }
        Trace { format: self.format, events: self.events, warnings: self.warnings.into_listed() }
    }
}
