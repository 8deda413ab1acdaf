//! `perf script` of block events: `comm pid [cpu] seconds: block:block_rq_issue: major,minor letters bytes (command) sector + sectors ...`.
//!
//! Times are seconds of the machine's clock, sectors are 512 bytes whatever the device has. The lines of ftrace (`comm-pid [cpu] flags seconds: block_rq_issue:`)
//! are the same but for their beginning, and are read too.

use super::block::{self, Request, Requests};
use super::collect::Collector;
use super::format::Parser;
use super::numbers::{seconds_in_ns, unsigned};
use super::warning::Problem;

/// Reads the lines.
#[derive(Debug, Default)]
pub(super) struct Perf {
    requests: Requests,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Issue,
    Complete,
}

/// What stands before the event's name: who and when.
fn beginning(text: &str) -> Option<(Option<u32>, u64)> {
    let mut words = text.split_ascii_whitespace().rev();
    let at_ns = seconds_in_ns(words.next()?.strip_suffix(':')?)?;
    // The processor, in brackets; between it and the time ftrace has its flags.
    let process = words
        .by_ref()
        .take(2)
        .any(|word| word.starts_with('[') && word.ends_with(']'))
        .then(|| words.next())
        .flatten()
        .and_then(|word| word.rsplit(['/', '-']).next()?.parse().ok());
    Some((process, at_ns))
}

fn request(line: &str) -> Option<(What, Request<'_>)> {
    let (before, rest) = line.split_once("block_rq_")?;
    let (name, rest) = rest.split_once(": ")?;
    let what = match name {
        "issue" => What::Issue,
        "complete" => What::Complete,
        _ => return None,
    };
    let (process, at_ns) = beginning(before.strip_suffix("block:").unwrap_or(before))?;
    let (head, tail) = rest.split_once('(')?;
    let mut head = head.split_ascii_whitespace();
    let device = head.next().filter(|device| is_device(device))?;
    let operation = block::operation(head.next()?)?;
    let mut tail = tail.split_once(") ")?.1.split_ascii_whitespace();
    let sector = unsigned(tail.next()?)?;
    tail.next().filter(|&plus| plus == "+")?;
    let sectors = unsigned(tail.next()?)?;
    Some((what, Request { device, operation, sector, sectors, at_ns, process }))
}

/// `254,0`.
pub(super) fn is_device(text: &str) -> bool {
    let is_number = |text: &str| text.parse::<u32>().is_ok() && !text.starts_with('+');
    text.split_once(',').is_some_and(|(major, minor)| is_number(major) && is_number(minor))
}

pub(super) fn is_line(line: &str) -> bool {
    request(line).is_some()
}

/// A line of another event, or none: what a recording may have besides.
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
            collector.warn(Problem::Unseen, "events were lost while it was recorded");
            return true;
        }
        let Some((what, request)) = request(line) else { return is_other(line) };
        collector.check_order(request.at_ns);
        match what {
            What::Issue => self.requests.issue(&request, collector),
            What::Complete => self.requests.complete(&request, collector),
        }
        true
    }

    fn end(&mut self, collector: &mut Collector) {
        self.requests.end(collector);
    }
}
