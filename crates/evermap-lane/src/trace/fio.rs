//! fio's logs of requests, as `write_iolog` makes them and `read_iolog` takes them: version 2 without times, version 3 with.
//!
//! Times of version 3 count from the run's beginning; the documentation names no unit. fio writes microseconds (its `log_io_u`, and
//! measured with fio 3.33: requests 20 ms apart lie 20,060 to 20,264 apart). A `wait` of version 2 is documented as microseconds since the wait before, but fio
//! waits until so many *milliseconds* since its beginning (measured: the reads after `wait 300` and `wait 600` lie 300.5 ms apart).
//! Neither version records answers.

use std::sync::Arc;

use super::collect::Collector;
use super::format::{Parser, TimeUnit};
use super::numbers::unsigned;
use super::warning::Problem;
use super::{Event, Operation};

/// Reads the lines.
#[derive(Debug)]
pub(super) struct Fio {
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

pub(super) fn is_line(line: &str) -> bool {
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
            // The range that stands here is that of the request before.
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

    /// What is not in the file is said once.
    fn say_what_is_assumed(&mut self, version: Version, collector: &mut Collector) {
        if self.is_assumed {
            return;
        }
        self.is_assumed = true;
        match (version, self.unit) {
            (Version::Three, None) => collector.warn(
                Problem::Assumed,
                "times in microseconds, as fio writes them; `us`, `ms` or `ns` can be said",
            ),
            (Version::Three, Some(_)) => {}
            (Version::Two, _) => collector.warn(
                Problem::Assumed,
                "all between two waits at one moment: version 2 has no other times",
            ),
        }
    }
}

impl Parser for Fio {
    fn take(&mut self, line: &str, collector: &mut Collector) -> bool {
        if let Some(version) = Version::of(line) {
            self.version = Some(version);
            self.say_what_is_assumed(version, collector);
            return true;
        }
        self.version.is_some() && self.take_action(line, collector).is_some()
    }
}
