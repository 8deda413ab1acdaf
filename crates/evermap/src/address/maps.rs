//! Reads the process's memory map, to name the mappings that block a reservation.

use std::fs;

use evermap_observe::proc::{Mapping, mappings};

/// Describes the mappings in `base..end` of this process for an error message.
///
/// Reads `/proc/self/maps`, which takes milliseconds in a large process: for error paths only.
pub(super) fn what_lies_in(base: u64, end: u64) -> String {
    let Ok(maps) = fs::read_to_string("/proc/self/maps") else {
        return "an unknown mapping (/proc is not readable)".to_string();
    };
    match mappings(&maps).find(|m| m.start < end && m.end > base) {
        Some(m) => format!("{} at {:#x}..{:#x}", name_of(&m), m.start, m.end),
        None => "nothing visible: the addresses are beyond what this system can map".to_string(),
    }
}

/// A named mapping of a process.
#[derive(Clone, Debug)]
pub(crate) struct NamedRange {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// A file's name, a name such as `[heap]` or `[stack]`, or `anonymous memory`.
    pub(crate) name: String,
}

/// Parses the text of `/proc/<id>/maps`, in order.
pub(crate) fn parse_maps(text: &str) -> Vec<NamedRange> {
    let named =
        |m: Mapping<'_>| NamedRange { start: m.start, end: m.end, name: name_of(&m).to_string() };
    mappings(text).map(named).collect()
}

/// One mapping of this process.
#[derive(Debug)]
pub(super) struct MappedRange<'a> {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) readable: bool,
    /// Empty for anonymous memory.
    pub(super) name: &'a str,
}

/// Parses the text of `/proc/self/maps`, in order.
pub(super) fn parse_mapped<'t>(text: &'t str) -> Vec<MappedRange<'t>> {
    let range = |m: Mapping<'t>| MappedRange {
        start: m.start,
        end: m.end,
        readable: m.has('r'),
        name: m.name,
    };
    mappings(text).map(range).collect()
}

/// Name of mappings without one.
const ANONYMOUS: &str = "anonymous memory";

/// Returns the name of a mapping for messages.
fn name_of<'t>(mapping: &Mapping<'t>) -> &'t str {
    if mapping.name.is_empty() { ANONYMOUS } else { mapping.name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_without_a_name_is_anonymous_memory() {
        let text = "7f00-7f10 r--p 00000000 fe:00 1053 /usr/lib/with space.so\n10-20 rw-p 00000000 00:00 0 \n";
        let ranges = parse_maps(text);
        let ranges: Vec<_> = ranges.iter().map(|m| (m.start, m.end, &*m.name)).collect();
        assert_eq!(
            ranges,
            [(0x7f00, 0x7f10, "/usr/lib/with space.so"), (0x10, 0x20, "anonymous memory")]
        );
    }

    #[test]
    fn the_running_program_is_found() {
        let here = the_running_program_is_found as fn() as usize as u64;
        assert!(what_lies_in(here, here + 1).contains(" at 0x"));
    }
}
