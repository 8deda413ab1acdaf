//! Positions of a file's bytes in an image's memory: arithmetic only.

use std::ops::Range;

use crate::sys::HUGE_PAGE_BYTES;

/// Part of a file in an image. See `docs/load.md`, "Images byte by byte".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// File offset of the region's first byte, a multiple of the block size.
    pub(crate) begin: u64,
    /// File offset of the first requested byte.
    pub(crate) from: u64,
    /// File offset after the last requested byte.
    pub(crate) end: u64,
    /// Alignment of direct reads.
    pub(crate) block_bytes: u64,
}

impl Part {
    /// Creates the part for a byte range. `block_bytes` is a power of two.
    pub(crate) fn new(range: Range<u64>, block_bytes: u64) -> Part {
        let begin = range.start - range.start % block_bytes;
        Part { begin, from: range.start, end: range.end, block_bytes }
    }

    /// Returns the number of requested bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.end - self.from
    }

    /// Returns the number of bytes of memory to fill.
    pub(crate) fn memory_bytes(&self) -> usize {
        (self.end - self.begin) as usize
    }

    /// Returns the number of bytes of memory to fill, in whole blocks.
    pub(crate) fn blocks_bytes(&self) -> usize {
        self.memory_bytes().next_multiple_of(self.block_bytes as usize)
    }

    /// Returns the position of the requested bytes in memory.
    pub(crate) fn slice(&self) -> Range<usize> {
        let from = (self.from - self.begin) as usize;
        from..from + self.bytes() as usize
    }

    /// Returns the number of windows.
    pub(crate) fn windows(&self) -> usize {
        self.memory_bytes().div_ceil(HUGE_PAGE_BYTES)
    }

    /// Returns the windows that contain a range of the requested bytes.
    pub(crate) fn windows_of(&self, range: &Range<usize>) -> Range<usize> {
        let ahead = (self.from - self.begin) as usize;
        if range.is_empty() {
            return 0..0;
        }
        (ahead + range.start) / HUGE_PAGE_BYTES
            ..(ahead + range.end).div_ceil(HUGE_PAGE_BYTES).min(self.windows())
    }

    /// Returns a window's position in memory and in the file.
    pub(crate) fn window(&self, window: usize) -> Window {
        let at = window * HUGE_PAGE_BYTES;
        let offset = self.begin + at as u64;
        let bytes = ((self.end - offset) as usize).min(HUGE_PAGE_BYTES);
        Window {
            at,
            offset,
            bytes,
            blocks_bytes: bytes.next_multiple_of(self.block_bytes as usize),
        }
    }
}

/// Window of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    /// Offset in memory.
    pub(crate) at: usize,
    /// Offset in the file.
    pub(crate) offset: u64,
    /// Number of file bytes.
    pub(crate) bytes: usize,
    /// Number of bytes in whole blocks, as requested by a direct read.
    pub(crate) blocks_bytes: usize,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_part_begins_at_a_block_and_ends_at_its_last_byte() {
        let part = Part::new(5000..(2 << 20) + 4096 + 1, 4096);
        assert_eq!((part.begin, part.memory_bytes(), part.windows()), (4096, (2 << 20) + 1, 2));
        assert_eq!(part.slice(), 904..(2 << 20) + 1);
        let last = part.window(1);
        assert_eq!((last.at, last.offset), (2 << 20, (2 << 20) + 4096));
        assert_eq!((last.bytes, last.blocks_bytes), (1, 4096));
        assert_eq!(part.windows_of(&(0..1)), 0..1);
        assert_eq!(part.windows_of(&(0..part.bytes() as usize)), 0..2);
        assert_eq!(part.windows_of(&(7..7)), 0..0);
    }

    #[test]
    fn an_empty_range_has_no_windows() {
        assert_eq!(Part::new(0..0, 4096).windows(), 0);
    }
}
