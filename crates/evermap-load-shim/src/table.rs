//! Table of addresses that are images: arithmetic only.

use std::path::PathBuf;
use std::sync::Arc;

/// File shown by an image.
#[derive(Debug, PartialEq)]
pub(crate) struct Origin {
    pub(crate) path: PathBuf,
    pub(crate) version: Version,
    /// True if the program requested `MAP_SHARED`.
    pub(crate) is_shared: bool,
}

/// Identity of a file and its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) bytes: u64,
    pub(crate) modified: (i64, i64),
}

/// Range of addresses that shows a file without mapping it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Part {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// File offset at `start`.
    pub(crate) offset: u64,
    pub(crate) origin: Arc<Origin>,
}

impl Part {
    /// Returns the part between two addresses.
    fn between(&self, start: usize, end: usize) -> Option<Part> {
        let (start, end) = (start.max(self.start), end.min(self.end));
        (start < end).then(|| Part {
            start,
            end,
            offset: self.offset + (start - self.start) as u64,
            origin: self.origin.clone(),
        })
    }
}

/// All parts, without overlaps.
#[derive(Debug, Default)]
pub(crate) struct Table {
    parts: Vec<Part>,
}

impl Table {
    pub(crate) const fn new() -> Table {
        Table { parts: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.parts.len()
    }

    pub(crate) fn add(&mut self, part: Part) {
        self.parts.push(part);
    }

    /// Removes and returns the parts between two addresses, ascending.
    pub(crate) fn cut(&mut self, start: usize, end: usize) -> Vec<Part> {
        let mut taken = Vec::new();
        for part in std::mem::take(&mut self.parts) {
            taken.extend(part.between(start, end));
            self.parts.extend(part.between(0, start));
            self.parts.extend(part.between(end, usize::MAX));
        }
        taken.sort_by_key(|part| part.start);
        taken
    }

    pub(crate) fn has_any(&self, start: usize, end: usize) -> bool {
        self.parts.iter().any(|part| part.start < end && start < part.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(start: usize, end: usize, offset: u64) -> Part {
        let version = Version { device: 1, inode: 2, bytes: 3, modified: (4, 5) };
        let origin = Arc::new(Origin { path: "/file".into(), version, is_shared: false });
        Part { start, end, offset, origin }
    }

    #[test]
    fn cutting_the_middle_keeps_both_sides_with_their_offsets() {
        let mut table = Table::new();
        table.add(part(100, 200, 1000));
        assert_eq!(table.cut(120, 150), [part(120, 150, 1020)]);
        assert_eq!(table.parts, [part(100, 120, 1000), part(150, 200, 1050)]);
        assert!(!table.has_any(120, 150) && table.has_any(119, 150) && table.has_any(120, 151));
    }

    #[test]
    fn cutting_across_parts_removes_exactly_the_range() {
        let mut table = Table::new();
        table.add(part(300, 400, 0));
        table.add(part(100, 200, 50));
        assert_eq!(table.cut(150, 350), [part(150, 200, 100), part(300, 350, 0)]);
        assert_eq!(table.cut(0, usize::MAX), [part(100, 150, 50), part(350, 400, 50)]);
        assert_eq!(table.len(), 0);
    }
}
