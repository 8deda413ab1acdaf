//! Parser for the default format of `blkparse`: `major,minor cpu sequence seconds pid action
//! letters sector + sectors [program]`.
//!
//! A request starts when it is issued to the device (`D`) and lasts until its completion (`C`).
//! Filtered traces may lack `D`; then the insertion (`I`), or else the queueing (`Q`), starts it.
//! Sectors are 512 bytes. The summary at the end is skipped.

use crate::block::{self, Request, Requests};
use crate::collect::Collector;
use crate::numbers::{seconds_in_ns, unsigned};
use crate::parser::Parser;
use crate::perf::is_device;

/// Parser for blkparse.
#[derive(Debug, Default)]
pub(crate) struct Blkparse {
    requests: Requests,
    /// The most specific start event seen (D over I over Q); less specific ones are ignored as
    /// duplicates.
    most_specific: Option<StartEvent>,
    is_summary: bool,
}

/// Start events, from the least specific to the most specific.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum StartEvent {
    Queued,
    Inserted,
    Issued,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line<'a> {
    Start(StartEvent, Request<'a>),
    Complete(Request<'a>),
    /// Action that is not a request: plugging, merging, remapping, messages.
    Other {
        at_ns: u64,
    },
}

fn parsed(line: &str) -> Option<Line<'_>> {
    let mut words = line.split_ascii_whitespace();
    let device = words.next().filter(|device| is_device(device))?;
    unsigned(words.next()?)?;
    unsigned(words.next()?)?;
    let at_ns = seconds_in_ns(words.next()?)?;
    let process = words.next()?.parse().ok()?;
    let action = words.next()?;
    let start_event = match action {
        "Q" => Some(StartEvent::Queued),
        "I" => Some(StartEvent::Inserted),
        "D" => Some(StartEvent::Issued),
        "C" => None,
        _ => return Some(Line::Other { at_ns }),
    };
    let operation = block::operation(words.next()?)?;
    let rest: Vec<&str> = words.collect();
    let (sector, sectors) = match rest.as_slice() {
        [sector, "+", sectors, ..] => (unsigned(sector)?, unsigned(sectors)?),
        // Requests without data, such as flushes, have no range. Their completions still have a
        // number.
        [] => (0, 0),
        [word, ..] if word.starts_with('[') || unsigned(word).is_some() => (0, 0),
        _ => return None,
    };
    let request = Request { device, operation, sector, sectors, at_ns, process: Some(process) };
    Some(match start_event {
        Some(start_event) => Line::Start(start_event, request),
        None => Line::Complete(request),
    })
}

/// Recognizes the head of the summary, and messages about input files.
fn is_summary_head(line: &str) -> bool {
    let is_of = |start: &str| line.starts_with(start) && line.ends_with(':');
    is_of("CPU") || is_of("Total (") || line.starts_with("Input file ")
}

pub(crate) fn is_line(line: &str) -> bool {
    parsed(line).is_some()
}

impl Parser for Blkparse {
    fn take(&mut self, line: &str, collector: &mut Collector) -> bool {
        let Some(parsed) = parsed(line) else {
            self.is_summary |= is_summary_head(line);
            return self.is_summary;
        };
        match parsed {
            Line::Other { at_ns } => collector.check_order(at_ns),
            Line::Start(start_event, request) => {
                collector.check_order(request.at_ns);
                if self.most_specific.is_none_or(|seen| seen < start_event) {
                    self.most_specific = Some(start_event);
                    self.requests.clear();
                }
                if self.most_specific == Some(start_event) {
                    self.requests.issue(&request, collector);
                }
            }
            Line::Complete(request) => {
                collector.check_order(request.at_ns);
                self.requests.complete(&request, collector);
            }
        }
        true
    }

    fn end(&mut self, collector: &mut Collector) {
        self.requests.end(collector);
    }
}
