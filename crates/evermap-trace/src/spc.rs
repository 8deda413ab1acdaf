//! Parser for UMass SPC traces: `ASU,LBA,Size,Opcode,Timestamp`. Further fields are ignored.
//!
//! The LBA counts blocks of 512 bytes (consecutive writes of 3,584 bytes in these traces are 7
//! apart). The size is in bytes, the timestamp in seconds since the begin of the trace. Completions
//! are not recorded.

use crate::collect::Collector;
use crate::event::{Event, Operation};
use crate::numbers::{seconds_in_ns, sector_in_bytes, unsigned};
use crate::parser::Parser;

/// Parser for UMass SPC traces.
#[derive(Debug)]
pub(crate) struct Spc;

struct Fields<'a> {
    unit: &'a str,
    block: u64,
    size_bytes: u64,
    operation: Operation,
    at_ns: u64,
}

fn fields(line: &str) -> Option<Fields<'_>> {
    let mut fields = line.split(',').map(str::trim);
    let unit = fields.next()?;
    unsigned(unit)?;
    Some(Fields {
        unit,
        block: unsigned(fields.next()?)?,
        size_bytes: unsigned(fields.next()?)?,
        operation: match fields.next()? {
            "r" | "R" => Operation::Read,
            "w" | "W" => Operation::Write,
            _ => return None,
        },
        at_ns: seconds_in_ns(fields.next()?)?,
    })
}

pub(crate) fn is_line(line: &str) -> bool {
    fields(line).is_some()
}

impl Parser for Spc {
    fn take(&mut self, line: &str, collector: &mut Collector) -> bool {
        let Some(fields) = fields(line) else { return false };
        let file = collector.name(&format!("asu{}", fields.unit));
        collector.add_in_order(Event {
            at_ns: fields.at_ns,
            frame: None,
            operation: fields.operation,
            file,
            offset_bytes: Some(sector_in_bytes(fields.block)),
            length_bytes: fields.size_bytes,
            latency_ns: None,
            process: None,
        });
        true
    }
}
