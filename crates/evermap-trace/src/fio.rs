//! Parser for fio logs, as written by `write_iolog` and read by `read_iolog`: version 2 without
//! times, version 3 with times.
//!
//! Times of version 3 are relative to the begin of the run; the documentation names no unit. fio
//! writes microseconds (see its `log_io_u`; measured with fio 3.33: requests 20 ms apart differ by
//! 20,060 to 20,264). A `wait` of version 2 is documented as microseconds since the previous wait,
//! but fio waits until that number of *milliseconds* since its start (measured: the reads after
//! `wait 300` and `wait 600` are 300.5 ms apart). Neither version records completions.

use std::sync::Arc;

use crate::collect::Collector;
use crate::event::{Event, Operation};
use crate::format::TimeUnit;
use crate::numbers::unsigned;
use crate::parser::Parser;
use crate::warning::Problem;

/// Parser for fio logs.
#[derive(Debug)]
pub(crate) struct Fio {
    version: Option<Version>,
    unit: Option<TimeUnit>,
    at_ns: u64,
    is_assumed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Two,
    Three,
}

impl Version {
    fn of(line: &str) -> Option<Version> {
        match line.trim_end() {
            "fio version 2 iolog" => Some(Version::Two),
            "fio version 3 iolog" => Some(Version::Three),
            _ => None,
        }
    }
}

pub(crate) fn is_line(line: &str) -> bool {
    Version::of(line).is_some()
}

impl Fio {
    pub fn new(unit: Option<TimeUnit>) -> Self {
        Self { version: None, unit, at_ns: 0, is_assumed: false }
    }

    fn take_action(&mut self, line: &str, collector: &mut Collector) -> Option<()> {
        let mut words = line.split_ascii_whitespace();
        if self.version == Some(Version::Three) {
            let unit = self.unit.unwrap_or(TimeUnit::Us);
            self.at_ns = unsigned(words.next()?)?.checked_mul(unit.ns())?;
        }
        let (name, action) = (words.next()?, words.next()?);
        let range = match (words.next(), words.next(), words.next()) {
            (None, None, None) => None,
            (Some(offset), Some(length), None) => Some((unsigned(offset)?, unsigned(length)?)),
            _ => return None,
        };
        let (operation, range) = match (action, range) {
            ("add" | "close" | "unlink", None) => return Some(()),
            ("open", None) => (Operation::Other, None),
            ("read", Some(_)) => (Operation::Read, range),
            ("write", Some(_)) => (Operation::Write, range),
            ("trim", Some(_)) => (Operation::Discard, range),
            ("sync_file_range", Some(_)) => (Operation::Flush, range),
            // The log repeats the range of the previous request here.
            ("sync" | "datasync" | "syncfs", Some(_)) => (Operation::Flush, None),
            ("wait", Some((until, _))) if self.version == Some(Version::Two) => {
                return self.wait(until);
            }
            _ => return None,
        };
        let file = collector.name(name);
        collector.add_in_order(self.event(operation, file, range));
        Some(())
    }

    fn wait(&mut self, until: u64) -> Option<()> {
        let unit = self.unit.unwrap_or(TimeUnit::Ms);
        self.at_ns = self.at_ns.max(until.checked_mul(unit.ns())?);
        Some(())
    }

    fn event(
        &self,
        operation: Operation,
        file: Option<Arc<str>>,
        range: Option<(u64, u64)>,
    ) -> Event {
        Event {
            at_ns: self.at_ns,
            frame: None,
            operation,
            file,
            offset_bytes: range.map(|(offset, _)| offset),
            length_bytes: range.map_or(0, |(_, length)| length),
            latency_ns: None,
            process: None,
        }
    }

    /// Warns once about values that the log does not contain.
    fn warn_about_assumptions(&mut self, version: Version, collector: &mut Collector) {
        if self.is_assumed {
            return;
        }
        self.is_assumed = true;
        match (version, self.unit) {
            (Version::Three, None) => collector.warn(
                Problem::Assumed,
                "times in microseconds, as fio writes them; set the unit to `us`, `ms` or `ns` to change this",
            ),
            (Version::Three, Some(_)) => {}
            (Version::Two, _) => collector.warn(
                Problem::Assumed,
                "all requests between two waits at the same time: version 2 has no other times",
            ),
        }
    }
}

impl Parser for Fio {
    fn take(&mut self, line: &str, collector: &mut Collector) -> bool {
        if let Some(version) = Version::of(line) {
            self.version = Some(version);
            self.warn_about_assumptions(version, collector);
            return true;
        }
        self.version.is_some() && self.take_action(line, collector).is_some()
    }
}
