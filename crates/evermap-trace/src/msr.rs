//! Parser for MSR Cambridge traces: `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`.
//!
//! The timestamp (of the issue of a request) and the response time are in units of Windows file
//! time, 100 ns. Offset and size are in bytes. The source is the description that accompanies the
//! traces.

use crate::collect::Collector;
use crate::event::{Event, Operation};
use crate::numbers::unsigned;
use crate::parser::Parser;

const TICK_NS: u64 = 100;

/// Parser for MSR Cambridge traces.
#[derive(Debug)]
pub(crate) struct Msr;

struct Fields<'a> {
    at_ns: u64,
    host: &'a str,
    disk: &'a str,
    operation: Operation,
    offset_bytes: u64,
    size_bytes: u64,
    latency_ns: u64,
}

fn fields(line: &str) -> Option<Fields<'_>> {
    let mut fields = line.split(',').map(str::trim);
    let fields_found = Fields {
        at_ns: unsigned(fields.next()?)?.checked_mul(TICK_NS)?,
        host: fields.next()?,
        disk: fields.next().filter(|disk| unsigned(disk).is_some())?,
        operation: match fields.next()? {
            kind if kind.eq_ignore_ascii_case("read") => Operation::Read,
            kind if kind.eq_ignore_ascii_case("write") => Operation::Write,
            _ => return None,
        },
        offset_bytes: unsigned(fields.next()?)?,
        size_bytes: unsigned(fields.next()?)?,
        latency_ns: unsigned(fields.next()?)?.checked_mul(TICK_NS)?,
    };
    fields.next().is_none().then_some(fields_found)
}

fn is_head(line: &str) -> bool {
    line.starts_with("Timestamp,Hostname,")
}

pub(crate) fn is_line(line: &str) -> bool {
    is_head(line) || fields(line).is_some()
}

impl Parser for Msr {
    fn take(&mut self, line: &str, collector: &mut Collector) -> bool {
        let Some(fields) = fields(line) else { return is_head(line) };
        let file = collector.name(&format!("{}_{}", fields.host, fields.disk));
        collector.add_in_order(Event {
            at_ns: fields.at_ns,
            frame: None,
            operation: fields.operation,
            file,
            offset_bytes: Some(fields.offset_bytes),
            length_bytes: fields.size_bytes,
            latency_ns: Some(fields.latency_ns),
            process: None,
        });
        true
    }
}
