//! Output of lines: to a file through a buffer, or to a heap.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::mem::MaybeUninit;
use std::path::PathBuf;

use crate::error::{OfFile, Outcome};

/// Letters of a line, without the line end.
pub const LINE_LETTERS: usize = 60;
/// Bytes of a line with the line end.
const LINE_BYTES: usize = LINE_LETTERS + 1;

/// Output for consecutive lines.
pub trait Lines {
    /// Place of one byte.
    type Place: Place;

    /// Writes a line, with its line end.
    fn put(&mut self, line: &[u8]) -> Outcome<()>;

    /// Passes the places of a line and its line end to `write`, or fewer at the end of the output.
    /// `write` returns the number of bytes written, and so does `fill`.
    fn fill(&mut self, write: impl FnOnce(&mut [Self::Place]) -> usize) -> Outcome<usize>;
}

/// Place that takes a byte.
pub trait Place {
    /// Stores the byte.
    fn put(&mut self, byte: u8);
}

impl Place for u8 {
    fn put(&mut self, byte: u8) {
        *self = byte;
    }
}

impl Place for MaybeUninit<u8> {
    fn put(&mut self, byte: u8) {
        self.write(byte);
    }
}

/// Lines of a file.
pub struct FileLines {
    /// Buffered writer.
    pub writer: BufWriter<File>,
    /// Path, for messages.
    pub path: PathBuf,
}

impl Lines for FileLines {
    type Place = u8;

    fn put(&mut self, line: &[u8]) -> Outcome<()> {
        self.writer.write_all(line).of(&self.path)
    }

    fn fill(&mut self, write: impl FnOnce(&mut [u8]) -> usize) -> Outcome<usize> {
        let mut line = [0; LINE_BYTES];
        let bytes = write(&mut line);
        self.put(&line[..bytes])?;
        Ok(bytes)
    }
}

/// Lines in memory of sufficient size, written in place.
pub struct MemoryLines<'a> {
    /// Unwritten rest of the memory.
    pub rest: &'a mut [MaybeUninit<u8>],
}

impl Lines for MemoryLines<'_> {
    type Place = MaybeUninit<u8>;

    fn put(&mut self, line: &[u8]) -> Outcome<()> {
        let (here, rest) = std::mem::take(&mut self.rest).split_at_mut(line.len());
        here.write_copy_of_slice(line);
        self.rest = rest;
        Ok(())
    }

    fn fill(&mut self, write: impl FnOnce(&mut [MaybeUninit<u8>]) -> usize) -> Outcome<usize> {
        let left = LINE_BYTES.min(self.rest.len());
        let bytes = write(&mut self.rest[..left]);
        self.rest = &mut std::mem::take(&mut self.rest)[bytes..];
        Ok(bytes)
    }
}
