//! Reads the process's memory map, to name the mappings that block a reservation.

use std::fs;

/// Describes the mappings in `base..end` of this process for an error message.
///
/// Reads `/proc/self/maps`, which takes milliseconds in a large process: for error paths only.
pub(super) fn what_lies_in(base: u64, end: u64) -> String {
    let Ok(maps) = fs::read_to_string("/proc/self/maps") else {
        return "an unknown mapping (/proc is not readable)".to_string();
    };
    match maps.lines().filter_map(parse).find(|m| m.start < end && m.end > base) {
        Some(m) => format!("{} at {:#x}..{:#x}", m.name, m.start, m.end),
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
    let ranges = text.lines().filter_map(parse);
    ranges.map(|m| NamedRange { start: m.start, end: m.end, name: m.name.to_string() }).collect()
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
pub(super) fn parse_mapped(text: &str) -> Vec<MappedRange<'_>> {
    let range = |line| {
        let Line { start, end, readable, name } = parse(line)?;
        Some(MappedRange { start, end, readable, name: if name == ANONYMOUS { "" } else { name } })
    };
    text.lines().filter_map(range).collect()
}

struct Line<'a> {
    start: u64,
    end: u64,
    readable: bool,
    name: &'a str,
}

/// Name of mappings without one.
const ANONYMOUS: &str = "anonymous memory";

/// Parses one line: `start-end perms offset dev inode   name`.
fn parse(line: &str) -> Option<Line<'_>> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let readable = rest.starts_with('r');
    let mut rest = rest;
    for _ in 0..4 {
        rest = rest.trim_start().split_once(' ').map_or("", |(_, rest)| rest);
    }
    let name = rest.trim();
    Some(Line {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        readable,
        name: if name.is_empty() { ANONYMOUS } else { name },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_gives_range_and_name() {
        let m = parse("7f00-7f10 r--p 00000000 fe:00 1053 /usr/lib/with space.so").unwrap();
        assert_eq!((m.start, m.end, m.name), (0x7f00, 0x7f10, "/usr/lib/with space.so"));
        let m = parse("10-20 rw-p 00000000 00:00 0 ").unwrap();
        assert_eq!(m.name, "anonymous memory");
    }

    #[test]
    fn the_running_program_is_found() {
        let here = the_running_program_is_found as fn() as usize as u64;
        assert!(what_lies_in(here, here + 1).contains(" at 0x"));
    }
}
