//! Requests of block devices. One line reports the issue of a request, another its completion; they
//! are matched by device and sector.

use std::collections::HashMap;

use crate::collect::Collector;
use crate::event::{Event, Operation};
use crate::numbers::{SECTOR_BYTES, sector_in_bytes};
use crate::warning::Problem;

/// Fields of a line about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request<'a> {
    /// Device numbers, such as `254,0`.
    pub device: &'a str,
    pub operation: Operation,
    pub sector: u64,
    pub sectors: u64,
    pub at_ns: u64,
    pub process: Option<u32>,
}

/// Parses the kernel's letters for a request: an optional `F` (flush before it), the operation,
/// then flags.
pub(crate) fn operation(letters: &str) -> Option<Operation> {
    if letters.is_empty() || !letters.bytes().all(|letter| letter.is_ascii_uppercase()) {
        return None;
    }
    let main = match letters.strip_prefix('F') {
        // `FF` is a flush, written `FN` by blkparse. `FWS` is a write with a flush before it.
        Some(rest) if rest.starts_with(['R', 'W', 'D']) => rest,
        _ => letters,
    };
    Some(match main.as_bytes().first()? {
        b'R' => Operation::Read,
        b'W' => Operation::Write,
        b'F' => Operation::Flush,
        b'D' => Operation::Discard,
        _ => Operation::Other,
    })
}

#[derive(Debug)]
struct Issued {
    event: Event,
    line: u64,
}

/// Requests that were issued and not yet completed.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    open: HashMap<(Box<str>, u64, Operation), Issued>,
    /// True after the first completion. Without completions in the trace, missing ones are
    /// expected.
    has_completions: bool,
}

impl Requests {
    /// Adds a request issued to its device.
    pub fn issue(&mut self, request: &Request<'_>, collector: &mut Collector) {
        let key = key(request);
        // Open requests become events, so they count: a trace without completions must not fill the
        // memory.
        if self.open.len() >= collector.room() && !self.open.contains_key(&key) {
            return collector.mark_full();
        }
        let length_bytes = request.sectors.saturating_mul(SECTOR_BYTES);
        let is_flush = request.operation == Operation::Flush;
        let event = Event {
            at_ns: request.at_ns,
            frame: None,
            operation: request.operation,
            file: collector.name(request.device),
            offset_bytes: (!is_flush).then(|| sector_in_bytes(request.sector)),
            length_bytes,
            latency_ns: None,
            process: request.process,
        };
        let issued = Issued { event, line: collector.line() };
        if let Some(before) = self.open.insert(key, issued) {
            self.unfinished(before, collector);
        }
    }

    /// Adds the completion of a request.
    pub fn complete(&mut self, request: &Request<'_>, collector: &mut Collector) {
        self.has_completions = true;
        match self.open.remove(&key(request)) {
            Some(Issued { mut event, .. }) => {
                event.latency_ns = request.at_ns.checked_sub(event.at_ns);
                collector.add(event);
            }
            // A write of 0 sectors with a flush after it completes without having been issued.
            None if request.sectors == 0 => {}
            None => {
                let text = format!("{} sector {}", request.device, request.sector);
                collector.warn(Problem::Unstarted, &text);
            }
        }
    }

    /// Drops all open requests.
    pub fn clear(&mut self) {
        self.open.clear();
    }

    /// Adds the requests that were never completed, without latencies.
    pub fn end(&mut self, collector: &mut Collector) {
        let mut left: Vec<Issued> = self.open.drain().map(|(_, issued)| issued).collect();
        left.sort_by_key(|issued| issued.line);
        for issued in left {
            self.unfinished(issued, collector);
        }
    }

    fn unfinished(&self, issued: Issued, collector: &mut Collector) {
        // If reading stopped early, the completion may follow in the rest of the trace.
        if self.has_completions && !collector.is_full() {
            let file = issued.event.file.as_deref().unwrap_or_default();
            let offset_bytes = issued.event.offset_bytes.unwrap_or(0);
            let text = format!("{file} at {offset_bytes}");
            collector.warn_at(issued.line, Problem::Unfinished, &text);
        }
        collector.add(issued.event);
    }
}

fn key(request: &Request<'_>) -> (Box<str>, u64, Operation) {
    // A flush has no sector: it is reported as 0 when issued, and as 2^64 - 1 when completed.
    let sector = if request.operation == Operation::Flush { 0 } else { request.sector };
    (request.device.into(), sector, request.operation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_of_the_block_layer_are_parsed() {
        let expected = [
            ("R", Operation::Read),
            ("RA", Operation::Read),
            ("RSM", Operation::Read),
            ("WS", Operation::Write),
            ("WFS", Operation::Write),
            ("FWFS", Operation::Write),
            ("FF", Operation::Flush),
            ("FN", Operation::Flush),
            ("F", Operation::Flush),
            ("DS", Operation::Discard),
            ("DE", Operation::Discard),
            ("N", Operation::Other),
        ];
        for (letters, expected) in expected {
            assert_eq!(operation(letters), Some(expected), "{letters}");
        }
        assert_eq!((operation(""), operation("r"), operation("4096")), (None, None, None));
    }
}
