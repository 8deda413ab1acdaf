//! Where programs write lines to: a file, through a buffer, or memory, straight to its place.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use crate::error::{OfFile, Outcome};

/// The longest line, its end included.
pub const LINE_BYTES_MAX: usize = 128;

/// Takes lines one after the other.
pub trait Lines {
    /// Has the next `bytes` bytes, at most [`LINE_BYTES_MAX`], filled: all of them, since they hold anything before.
    fn line(&mut self, bytes: usize, fill: impl FnOnce(&mut [u8])) -> Outcome<()>;
}

/// Lines of a file. A line is made beside the buffer and copied, as `fwrite` does.
pub struct FileLines {
    /// The buffer.
    pub writer: BufWriter<File>,
    /// For messages.
    pub path: PathBuf,
}

impl Lines for FileLines {
    fn line(&mut self, bytes: usize, fill: impl FnOnce(&mut [u8])) -> Outcome<()> {
        let mut line = [0; LINE_BYTES_MAX];
        fill(&mut line[..bytes]);
        self.writer.write_all(&line[..bytes]).of(&self.path)
    }
}

/// Lines in memory. There has to be room for all of them.
pub struct MemoryLines<'a> {
    /// What is not filled yet.
    pub rest: &'a mut [u8],
}

impl Lines for MemoryLines<'_> {
    fn line(&mut self, bytes: usize, fill: impl FnOnce(&mut [u8])) -> Outcome<()> {
        let (line, rest) = std::mem::take(&mut self.rest).split_at_mut(bytes);
        fill(line);
        self.rest = rest;
        Ok(())
    }
}
