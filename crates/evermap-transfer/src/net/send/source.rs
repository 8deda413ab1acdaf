//! The file to send, which must not change during the transfer.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use evermap_observe::extents;
use rustix::fs::{Advice, CWD, Mode, OFlags, Statx, StatxTimestamp};

use crate::end::{End, Kind, statx_of};
use crate::error::{Error, Result};
use crate::file::{Identity, file_name};
use crate::net::wire::{EXTENTS_MAX, Manifest, NANOSECONDS, Timestamp};
use crate::span::Span;
use rustix::io::retry_on_intr;

/// An open source.
#[derive(Debug)]
pub(super) struct Source {
    file: OwnedFd,
    path: PathBuf,
    stat: Statx,
    kind: Kind,
}

impl Source {
    pub(super) fn open(path: &Path) -> Result<Source> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
        let file = retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))
            .map_err(Error::io("open", path))?;
        let stat = statx_of(file.as_fd()).map_err(Error::io("read the attributes of", path))?;
        let kind = End::with_stat(file.as_fd(), path, stat)?.kind();
        Ok(Source { file, path: path.into(), stat, kind })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.stat.stx_size
    }

    /// Returns true if the size is reliable. A size of 0 is confirmed by a read, because user-space
    /// file systems may report 0 for files with contents.
    pub(super) fn has_known_size(&self) -> Result<bool> {
        if self.kind != Kind::File || self.size_bytes() > 0 {
            return Ok(self.kind == Kind::File);
        }
        let read = retry_on_intr(|| rustix::io::pread(&self.file, &mut [0u8; 1][..], 0));
        Ok(read.map_err(Error::io("read", &self.path))? == 0)
    }

    /// Opens the file again, because read-ahead works per descriptor, and advises sequential
    /// reading. Duplicates the descriptor if reopening fails.
    pub(super) fn reopen(&self) -> Result<OwnedFd> {
        let by_number = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
        let file = match retry_on_intr(|| {
            rustix::fs::openat(CWD, by_number.as_str(), flags, Mode::empty())
        }) {
            Ok(file) => file,
            Err(_) => rustix::io::fcntl_dupfd_cloexec(&self.file, 0)
                .map_err(Error::io("open again", &self.path))?,
        };
        advise(&file);
        Ok(file)
    }

    /// Returns the extents with data, at most [`EXTENTS_MAX`]. In a file with more, the smallest
    /// holes are sent as zeros.
    pub(super) fn extents(&self) -> Result<Vec<Span>> {
        let allocated_bytes = self.stat.stx_blocks.saturating_mul(512);
        let mut extents =
            retry_on_intr(|| extents(self.file.as_fd(), self.size_bytes(), allocated_bytes))
                .map_err(Error::io("find the data of", &self.path))?;
        let mut hole_bytes_min = 1;
        while extents.len() > EXTENTS_MAX {
            hole_bytes_min *= 2;
            close_holes(&mut extents, hole_bytes_min);
        }
        Ok(extents)
    }

    /// Builds the manifest.
    pub(super) fn manifest(&self, digest_chunk_bytes: u64) -> Result<Manifest> {
        let name = file_name(&self.path)?;
        Ok(Manifest {
            name: name.as_bytes().to_vec(),
            size_bytes: self.size_bytes(),
            mode: u32::from(self.stat.stx_mode) & 0o7777,
            accessed: timestamp(self.stat.stx_atime),
            modified: timestamp(self.stat.stx_mtime),
            digest_chunk_bytes,
            extents: self.extents()?,
        })
    }

    /// Returns an error if the source changed since it was opened.
    pub(super) fn unchanged(&self) -> Result<()> {
        let now =
            statx_of(self.file.as_fd()).map_err(Error::io("read the attributes of", &self.path))?;
        match Identity::of(&self.stat).differs(&Identity::of(&now)) {
            None => Ok(()),
            Some(what) => Err(Error::SourceChanged { path: self.path.clone(), what }),
        }
    }
}

impl AsFd for Source {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Doubles read-ahead for an uncached file; no effect on a cached one. Fails on pipes.
pub(super) fn advise(file: &OwnedFd) {
    let _ = rustix::fs::fadvise(file, 0, None, Advice::Sequential);
}

/// Joins extents separated by a hole of less than `hole_bytes_min`.
fn close_holes(extents: &mut Vec<Span>, hole_bytes_min: u64) {
    extents.dedup_by(|next, last| {
        let is_near = next.begin - last.end < hole_bytes_min;
        if is_near {
            last.end = next.end;
        }
        is_near
    });
}

fn timestamp(time: StatxTimestamp) -> Timestamp {
    Timestamp { seconds: time.tv_sec, nanoseconds: time.tv_nsec.min(NANOSECONDS - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smallest_holes_are_closed_first() {
        let mut extents =
            vec![Span::new(0, 1), Span::new(2, 3), Span::new(8, 9), Span::new(10, 12)];
        close_holes(&mut extents, 2);
        assert_eq!(extents, [Span::new(0, 3), Span::new(8, 12)]);
    }
}
