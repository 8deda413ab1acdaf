//! File that frames read in the lane's I/O mode.

use std::path::{Path, PathBuf};

use crate::Result;
use crate::reads::{Note, Reader, Served};

/// Hints on how a file will be read.
///
/// ```
/// use evermap_lane::Access;
/// let access = Access::default().looping(true).bytes_per_frame(128 << 10);
/// # let _ = access;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    pub(super) is_looping: bool,
    pub(super) is_direct: bool,
    pub(super) bytes_per_frame: Option<usize>,
}

impl Access {
    /// At the end of the file, [`Frame::read`](crate::Frame::read) and read-ahead continue at the
    /// beginning.
    pub fn looping(mut self, is_looping: bool) -> Self {
        self.is_looping = is_looping;
        self
    }

    /// Bytes that each frame reads. Sets the size of the read-ahead ring, which is 16 MiB without
    /// it.
    pub fn bytes_per_frame(mut self, bytes: usize) -> Self {
        self.bytes_per_frame = (bytes > 0).then_some(bytes);
        self
    }

    /// Mode `blocking`: bypasses the page cache if the file system supports it. For experiments.
    pub fn direct(mut self, is_direct: bool) -> Self {
        self.is_direct = is_direct;
        self
    }
}

/// File that frames read, with the contents that it had when it was opened. After a truncation or a
/// write, reads are errors; in mode `map`, which reads a copy, they continue with the old contents.
pub struct File {
    reader: Box<dyn Reader>,
    path: PathBuf,
    position: u64,
    is_looping: bool,
}

impl File {
    pub(super) fn new(reader: Box<dyn Reader>, path: &Path, is_looping: bool) -> Self {
        Self { reader, path: path.into(), position: 0, is_looping }
    }

    /// Path with which the file was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Length of the file in bytes.
    pub fn length_bytes(&self) -> u64 {
        self.reader.length_bytes()
    }

    /// Offset at which the next [`Frame::read`](crate::Frame::read) begins.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Sets the offset of the next read. Costs nothing now; read-ahead restarts at the next read.
    pub fn seek(&mut self, offset_bytes: u64) {
        self.position = offset_bytes;
    }

    pub(super) fn read(&mut self, length_bytes: usize) -> Result<(&[u8], Served)> {
        if self.is_looping && self.position >= self.reader.length_bytes() {
            self.position = 0;
        }
        let (bytes, served) = self.reader.read(self.position, length_bytes)?;
        self.position += bytes.len() as u64;
        Ok((bytes, served))
    }

    pub(super) fn read_at(
        &mut self,
        offset_bytes: u64,
        length_bytes: usize,
    ) -> Result<(&[u8], Served)> {
        self.reader.read(offset_bytes, length_bytes)
    }

    pub(super) fn notes(&mut self) -> Vec<Note> {
        self.reader.notes()
    }
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("File");
        debug.field("path", &self.path).field("position", &self.position).finish_non_exhaustive()
    }
}
