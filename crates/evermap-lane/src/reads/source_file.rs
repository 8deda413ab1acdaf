//! Open file with its version at opening, which is compared after every read that the kernel
//! served.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use evermap_observe::DirectAlignment;
use rustix::fs::{AtFlags, FileType, OFlags, StatxFlags, fcntl_getfl, fcntl_setfl, statx};
use rustix::io::Errno;

use super::Note;
use crate::{Error, Result};

/// Open file.
#[derive(Debug)]
pub(super) struct SourceFile {
    pub(super) file: File,
    pub(super) path: PathBuf,
    pub(super) version: FileVersion,
}

/// Version of a file: changes when the file is written to or truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileVersion {
    pub(super) device: (u32, u32),
    pub(super) length_bytes: u64,
    /// Time of change in seconds and nanoseconds. Before Linux 6.13, two changes within one clock
    /// tick have the same time.
    changed: (i64, u32),
}

impl SourceFile {
    /// Opens a regular file.
    pub(super) fn open(path: &Path) -> Result<Self> {
        Self::open_with(path, OFlags::empty())
    }

    /// Opens a regular file for direct reads, with their alignment. Returns `None` if the file
    /// system has no direct reads.
    pub(super) fn open_direct(path: &Path) -> Result<Option<(Self, DirectAlignment)>> {
        let buffered = Self::open(path)?;
        let Some(alignment) = evermap_observe::direct_alignment(buffered.file.as_fd()) else {
            return Ok(None);
        };
        match Self::open_with(path, OFlags::DIRECT) {
            Ok(input) => {
                buffered.compare(input.version)?;
                Ok(Some((input, alignment)))
            }
            Err(Error::Io { source, .. }) if source.raw_os_error() == Some(libc::EINVAL) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn open_with(path: &Path, flags: OFlags) -> Result<Self> {
        let failed = |operation| move |source| Error::Io { operation, path: path.into(), source };
        let open = |flags: OFlags| {
            let flags = (flags | OFlags::CLOEXEC).bits() as i32;
            OpenOptions::new().read(true).custom_flags(flags).open(path)
        };
        // Without O_NONBLOCK, opening a pipe would wait for its other end.
        let file = match open(flags | OFlags::NONBLOCK) {
            // Another process moves the file under a lease, and this attempt asked it to release
            // that.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && path.is_file() => {
                open(flags)
            }
            opened => opened,
        };
        let file = file.map_err(failed("open"))?;
        let (version, kind) = stat(&file).map_err(failed("stat"))?;
        if kind != FileType::RegularFile {
            return Err(Error::NotAFile { path: path.into() });
        }
        wait_in_reads(&file).map_err(failed("set the flags of"))?;
        Ok(Self { file, path: path.into(), version })
    }

    /// Returns another descriptor of the same file, for another thread.
    pub(super) fn try_clone(&self) -> Result<Self> {
        let file = self
            .file
            .try_clone()
            .map_err(|source| self.failed("duplicate the descriptor of", source))?;
        Ok(Self { file, path: self.path.clone(), version: self.version })
    }

    /// Fails if the file has changed since it was opened. Cost: one system call, which never waits.
    pub(super) fn verify(&self) -> Result<()> {
        let (now, _) = stat(&self.file).map_err(|source| self.failed("stat", source))?;
        self.compare(now)
    }

    fn compare(&self, now: FileVersion) -> Result<()> {
        if now.length_bytes < self.version.length_bytes {
            return Err(Error::Truncated {
                path: self.path.clone(),
                was_bytes: self.version.length_bytes,
                is_bytes: now.length_bytes,
            });
        }
        let what = match now {
            _ if now.length_bytes > self.version.length_bytes => "it is longer now",
            _ if now != self.version => "its time of change differs",
            _ => return Ok(()),
        };
        Err(Error::Changed { path: self.path.clone(), what })
    }

    /// Limits the length of a read to the end of the file.
    pub(super) fn clamp(&self, offset: u64, length: usize) -> usize {
        let left = self.version.length_bytes.saturating_sub(offset);
        usize::try_from(left).map_or(length, |left| length.min(left))
    }

    /// Fills `memory` from `offset` up to the end of the file, and waits for the disk if necessary.
    /// Returns the number of bytes read.
    pub(super) fn fill(&self, memory: &mut [u8], offset: u64) -> Result<usize> {
        let mut filled = 0;
        // Stops at the end: a direct read beyond it would begin within a block.
        while filled < memory.len() && offset + (filled as u64) < self.version.length_bytes {
            match rustix::io::pread(&self.file, &mut memory[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(bytes) => filled += bytes,
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.failed("read", error.into())),
            }
        }
        Ok(filled)
    }

    /// Error for a read that ended before the end of the file.
    pub(super) fn unexpected_end(&self) -> Error {
        match self.verify() {
            Err(error) => error,
            Ok(()) => self.failed("read", io::ErrorKind::UnexpectedEof.into()),
        }
    }

    pub(super) fn failed(&self, operation: &'static str, source: io::Error) -> Error {
        Error::Io { operation, path: self.path.clone(), source }
    }
}

/// Clears O_NONBLOCK. A ring treats files opened with it as non-blocking: before Linux 5.13 such
/// reads fail with `EAGAIN` instead of waiting.
fn wait_in_reads(file: &File) -> io::Result<()> {
    let flags = fcntl_getfl(file)?;
    Ok(fcntl_setfl(file, flags - OFlags::NONBLOCK)?)
}

fn stat(file: &File) -> io::Result<(FileVersion, FileType)> {
    let wanted = StatxFlags::SIZE | StatxFlags::MTIME | StatxFlags::TYPE;
    // DONT_SYNC avoids a request to a file server, which could wait.
    let stat = statx(file, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, wanted)?;
    let version = FileVersion {
        device: (stat.stx_dev_major, stat.stx_dev_minor),
        length_bytes: stat.stx_size,
        changed: (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
    };
    Ok((version, FileType::from_raw_mode(u32::from(stat.stx_mode))))
}

/// Direct read, extended to whole blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Blocks {
    pub(super) offset: u64,
    pub(super) length: usize,
    /// Offset of the requested bytes within the blocks.
    pub(super) skip: usize,
}

impl Blocks {
    /// Returns the blocks around a read, or the read itself without an alignment.
    pub(super) fn around(offset: u64, length: usize, alignment: Option<DirectAlignment>) -> Self {
        let block = alignment.map_or(1, |alignment| u64::from(alignment.offset_bytes.max(1)));
        let begin = offset / block * block;
        let end = (offset + length as u64).next_multiple_of(block);
        Self { offset: begin, length: (end - begin) as usize, skip: (offset - begin) as usize }
    }
}

/// Note that a file is read through the page cache.
pub(super) fn no_direct_note(path: &Path) -> Note {
    let why = format!(
        "the file system of {} does not support them: reads use the page cache",
        path.display()
    );
    Note::new("direct reads (O_DIRECT)", why)
}
