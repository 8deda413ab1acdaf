//! Where programs write lines to: a file, through a buffer, or a heap.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::mem::MaybeUninit;
use std::path::PathBuf;

use crate::error::{OfFile, Outcome};

/// Letters of a line, without its end.
pub const LINE_LETTERS: usize = 60;
/// With its end.
const LINE_BYTES: usize = LINE_LETTERS + 1;

/// Takes lines one after the other.
pub trait Lines {
    /// A byte's place.
    type Place: Place;

    /// Takes a line, its end included.
    fn put(&mut self, line: &[u8]) -> Outcome<()>;

    /// Takes what is written to places for a line and its end, or to fewer, if that is all there is
    /// to come; `write` says to how many. Gives that number.
    fn fill(&mut self, write: impl FnOnce(&mut [Self::Place]) -> usize) -> Outcome<usize>;
}

/// Where a byte can be put.
pub trait Place {
    /// Puts it there.
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
    /// The buffer.
    pub writer: BufWriter<File>,
    /// For messages.
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

/// Lines in memory, of which there has to be enough. They are written where they stay.
pub struct MemoryLines<'a> {
    /// What is not written yet.
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
