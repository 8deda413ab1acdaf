//! Where the bytes of a file are in an image's memory: arithmetic, and nothing else.

use std::ops::Range;

use crate::sys::HUGE_PAGE_BYTES;

/// The part of a file that an image shows, see `docs/load.md`, "Images byte by byte".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// The file's byte at the region's first address: a whole block.
    pub(crate) begin: u64,
    /// The first byte that was asked for.
    pub(crate) from: u64,
    /// The byte after the last.
    pub(crate) end: u64,
    /// Direct reads are multiples of this.
    pub(crate) block_bytes: u64,
}

impl Part {
    /// Of a range of a file that is read in such blocks, a power of two.
    pub(crate) fn new(range: Range<u64>, block_bytes: u64) -> Part {
        let begin = range.start - range.start % block_bytes;
        Part { begin, from: range.start, end: range.end, block_bytes }
    }

    /// Bytes that were asked for.
    pub(crate) fn bytes(&self) -> u64 {
        self.end - self.from
    }

    /// Bytes of memory that are to be filled.
    pub(crate) fn memory_bytes(&self) -> usize {
        (self.end - self.begin) as usize
    }

    /// The same in whole blocks.
    pub(crate) fn blocks_bytes(&self) -> usize {
        self.memory_bytes().next_multiple_of(self.block_bytes as usize)
    }

    /// Where in memory the bytes are that were asked for.
    pub(crate) fn slice(&self) -> Range<usize> {
        let from = (self.from - self.begin) as usize;
        from..from + self.bytes() as usize
    }

    /// How many windows it has.
    pub(crate) fn windows(&self) -> usize {
        self.memory_bytes().div_ceil(HUGE_PAGE_BYTES)
    }

    /// The windows that some of the bytes asked for are in.
    pub(crate) fn windows_of(&self, range: &Range<usize>) -> Range<usize> {
        let ahead = (self.from - self.begin) as usize;
        if range.is_empty() {
            return 0..0;
        }
        (ahead + range.start) / HUGE_PAGE_BYTES
            ..(ahead + range.end).div_ceil(HUGE_PAGE_BYTES).min(self.windows())
    }

    /// What of the file is in a window.
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

/// A window of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    /// Where in memory.
    pub(crate) at: usize,
    /// Where in the file.
    pub(crate) offset: u64,
    /// How many bytes of the file it has.
    pub(crate) bytes: usize,
    /// The same in whole blocks: what a direct read asks for.
    pub(crate) blocks_bytes: usize,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn ranges_begin_in_blocks_and_end_where_they_end() {
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
