//! Parser for block events of `perf script`: `comm pid [cpu] seconds: block:block_rq_issue:
//! major,minor letters bytes (command) sector + sectors ...`.
//!
//! Times are seconds of the machine's clock. Sectors are 512 bytes on every device. Lines of ftrace
//! (`comm-pid [cpu] flags seconds: block_rq_issue:`) differ only in the beginning, and are also
//! accepted.

use crate::block::{self, Request, Requests};
use crate::collect::Collector;
use crate::numbers::{seconds_in_ns, unsigned};
use crate::parser::Parser;
use crate::warning::Problem;

/// Parser for perf.
#[derive(Debug, Default)]
pub(crate) struct Perf {
    requests: Requests,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Issue,
    Complete,
}

/// Parses the process and the time before the event's name.
fn process_and_time(text: &str) -> Option<(Option<u32>, u64)> {
    let mut words = text.split_ascii_whitespace().rev();
    let at_ns = seconds_in_ns(words.next()?.strip_suffix(':')?)?;
    // The processor is in brackets. Between it and the time, ftrace prints flags.
    let process = words
        .by_ref()
        .take(2)
        .any(|word| word.starts_with('[') && word.ends_with(']'))
        .then(|| words.next())
        .flatten()
        .and_then(|word| word.rsplit(['/', '-']).next()?.parse().ok());
    Some((process, at_ns))
}

fn request(line: &str) -> Option<(Kind, Request<'_>)> {
    let (before, rest) = line.split_once("block_rq_")?;
    let (name, rest) = rest.split_once(": ")?;
    let kind = match name {
        "issue" => Kind::Issue,
        "complete" => Kind::Complete,
        _ => return None,
    };
    let (process, at_ns) = process_and_time(before.strip_suffix("block:").unwrap_or(before))?;
    let (head, tail) = rest.split_once('(')?;
    let mut head = head.split_ascii_whitespace();
    let device = head.next().filter(|device| is_device(device))?;
    let operation = block::operation(head.next()?)?;
    let mut tail = tail.split_once(") ")?.1.split_ascii_whitespace();
    let sector = unsigned(tail.next()?)?;
    tail.next().filter(|&plus| plus == "+")?;
    let sectors = unsigned(tail.next()?)?;
    Some((kind, Request { device, operation, sector, sectors, at_ns, process }))
}

/// Returns true for device numbers, such as `254,0`.
pub(crate) fn is_device(text: &str) -> bool {
    let is_number = |text: &str| text.parse::<u32>().is_ok() && !text.starts_with('+');
    text.split_once(',').is_some_and(|(major, minor)| is_number(major) && is_number(minor))
}

pub(crate) fn is_line(line: &str) -> bool {
    request(line).is_some()
}

/// Returns true for lines of other events and for comments.
fn is_other(line: &str) -> bool {
    let is_event = || {
        let mut words = line.split_ascii_whitespace();
        words.any(|word| word.strip_suffix(':').is_some_and(|time| seconds_in_ns(time).is_some()))
    };
    line.starts_with('#') || !line.contains("block_rq_") && is_event()
}

impl Parser for Perf {
    fn take(&mut self, line: &str, collector: &mut Collector) -> bool {
        if line.contains("PERF_RECORD_LOST") {
            collector.warn(Problem::Unseen, "events were lost during the recording");
            return true;
        }
        let Some((kind, request)) = request(line) else { return is_other(line) };
        collector.check_order(request.at_ns);
        match kind {
            Kind::Issue => self.requests.issue(&request, collector),
            Kind::Complete => self.requests.complete(&request, collector),
        }
        true
    }

    fn end(&mut self, collector: &mut Collector) {
        self.requests.end(collector);
    }
}
