//! Costs of a process besides time: page faults and bytes. These are counts, which noise of the
//! machine does not change.

use serde::{Deserialize, Serialize};

use harness::Outcome;

/// Counts of the kernel, for one process or several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Faults served without disk reads: mapping a cached page or allocating one.
    pub minor_faults: u64,
    /// Faults that read from the disk.
    pub major_faults: u64,
    /// Bytes passed to `write` and similar calls.
    pub written_bytes: u64,
    /// Bytes of pages that became dirty and must be written to the disk.
    pub dirtied_bytes: u64,
}

/// Processes whose faults are counted. Bytes always include this process and its ended children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    Own,
    Children,
}

impl Cost {
    /// Reads the counts of this process until now.
    pub fn until_now(whose: Whose) -> Outcome<Cost> {
        let stat = std::fs::read_to_string("/proc/self/stat")?;
        // Kernels without I/O accounting do not have this file.
        let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
        Cost::parse(&stat, &io, whose).ok_or_else(|| format!("/proc/self/stat: {stat}").into())
    }

    fn parse(stat: &str, io: &str, whose: Whose) -> Option<Cost> {
        // The name is in parentheses and may contain any character.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let fault =
            |index: usize| fields.get(index + usize::from(whose == Whose::Children))?.parse().ok();
        let bytes = |name: &str| {
            let line = io.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
        };
        Some(Cost {
            minor_faults: fault(7)?,
            major_faults: fault(9)?,
            written_bytes: bytes("wchar:"),
            dirtied_bytes: bytes("write_bytes:"),
        })
    }

    /// Returns the increase since `before`.
    pub fn since(self, before: Cost) -> Cost {
        Cost {
            minor_faults: self.minor_faults.saturating_sub(before.minor_faults),
            major_faults: self.major_faults.saturating_sub(before.major_faults),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
            dirtied_bytes: self.dirtied_bytes.saturating_sub(before.dirtied_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const STAT: &str = "7 (a) b (c) R 1 7 7 0 -1 4194304 100 200 3 4 5 6";
    const IO: &str = "rchar: 1\nwchar: 22\nsyscr: 3\nread_bytes: 0\nwrite_bytes: 4096\n";

    #[test]
    fn faults_are_counted_for_the_process_or_its_children() {
        let own = Cost::parse(STAT, IO, Whose::Own).unwrap();
        assert_eq!((own.minor_faults, own.major_faults), (100, 3));
        let children = Cost::parse(STAT, IO, Whose::Children).unwrap();
        assert_eq!((children.minor_faults, children.major_faults), (200, 4));
        assert_eq!((own.written_bytes, own.dirtied_bytes), (22, 4096));
        assert!(Cost::parse("7 (a", IO, Whose::Own).is_none());
    }

    #[test]
    fn touched_memory_and_written_bytes_are_counted() {
        let before = Cost::until_now(Whose::Own).unwrap();
        let pages = std::hint::black_box(vec![1_u8; 4 << 20]);
        std::io::Write::write_all(&mut tempfile::tempfile().unwrap(), &pages).unwrap();
        let cost = Cost::until_now(Whose::Own).unwrap().since(before);
        assert!(cost.minor_faults > 0, "{cost:?}");
        if std::fs::exists("/proc/self/io").unwrap() {
            assert!(cost.written_bytes >= 4 << 20, "{cost:?}");
        }
    }
}
