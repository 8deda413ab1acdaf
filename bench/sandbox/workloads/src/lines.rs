//! Where programs write lines to: a file, through a buffer, or a heap.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::mem::MaybeUninit;
use std::path::PathBuf;

use crate::error::{OfFile, Outcome};

/// Takes lines one after the other.
pub trait Lines {
    /// Takes a line, its end included.
    fn put(&mut self, line: &[u8]) -> Outcome<()>;
}

/// Lines of a file.
pub struct FileLines {
    /// The buffer.
    pub writer: BufWriter<File>,
    /// For messages.
    pub path: PathBuf,
}

impl Lines for FileLines {
    fn put(&mut self, line: &[u8]) -> Outcome<()> {
        self.writer.write_all(line).of(&self.path)
    }
}

/// Lines in memory, of which there has to be enough.
pub struct MemoryLines<'a> {
    /// What is not written yet.
    pub rest: &'a mut [MaybeUninit<u8>],
}

impl Lines for MemoryLines<'_> {
    fn put(&mut self, line: &[u8]) -> Outcome<()> {
        let (here, rest) = std::mem::take(&mut self.rest).split_at_mut(line.len());
        here.write_copy_of_slice(line);
        self.rest = rest;
        Ok(())
    }
}
