//! `blkparse` in its default form: `major,minor cpu sequence seconds pid action letters sector + sectors [program]`.
//!
//! A request is what goes to the device (`D`), its latency lasts until the device has answered (`C`). Traces that were filtered have no `D`: then an
//! insertion (`I`), else a queueing (`Q`) stands for it. Sectors are 512 bytes. The summary at the end is passed over.

use super::block::{self, Request, Requests};
use super::collect::Collector;
use super::format::Parser;
use super::numbers::{seconds_in_ns, unsigned};
use super::perf::is_device;

/// Reads the lines.
#[derive(Debug, Default)]
pub(super) struct Blkparse {
    requests: Requests,
    /// The best kind of beginning that there has been: those of lesser kinds are the same requests, earlier.
    best: Option<Beginning>,
    is_summary: bool,
}

/// From the least telling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Beginning {
    Queued,
    Inserted,
    Issued,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line<'a> {
    Begin(Beginning, Request<'a>),
    Complete(Request<'a>),
    /// An action that is no request: plugging, merging, remapping, messages.
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
    let beginning = match action {
        "Q" => Some(Beginning::Queued),
        "I" => Some(Beginning::Inserted),
        "D" => Some(Beginning::Issued),
        "C" => None,
        _ => return Some(Line::Other { at_ns }),
    };
    let operation = block::operation(words.next()?)?;
    let rest: Vec<&str> = words.collect();
    let (sector, sectors) = match rest.as_slice() {
        [sector, "+", sectors, ..] => (unsigned(sector)?, unsigned(sectors)?),
        // One without data, as a flush, has no range; completed ones a number all the same.
        [] => (0, 0),
        [word, ..] if word.starts_with('[') || unsigned(word).is_some() => (0, 0),
        _ => return None,
    };
    let request = Request { device, operation, sector, sectors, at_ns, process: Some(process) };
    Some(match beginning {
        Some(beginning) => Line::Begin(beginning, request),
        None => Line::Complete(request),
    })
}

/// What the summary begins with, and the lines of the program about its files.
fn is_summary_head(line: &str) -> bool {
    let is_of = |start: &str| line.starts_with(start) && line.ends_with(':');
    is_of("CPU") || is_of("Total (") || line.starts_with("Input file ")
}

pub(super) fn is_line(line: &str) -> bool {
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
            Line::Begin(beginning, request) => {
                collector.check_order(request.at_ns);
                if self.best.is_none_or(|best| best < beginning) {
                    self.best = Some(beginning);
                    self.requests.forget();
                }
                if self.best == Some(beginning) {
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
