//! What is sent: a file whose contents must not change meanwhile.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use evermap_observe::extents;
use rustix::fs::{Advice, CWD, Mode, OFlags, Statx, StatxTimestamp};

use crate::end::{End, Kind};
use crate::error::{Error, Result};
use crate::file::{Identity, look};
use crate::net::again;
use crate::net::wire::{EXTENTS_MAX, Manifest, NANOSECONDS, Stamp};
use crate::span::Span;

/// A source that is open.
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
        let file = again(|| rustix::fs::open(path, flags, Mode::empty()))
            .map_err(Error::io("open", path))?;
        let stat = look(file.as_fd()).map_err(Error::io("look at", path))?;
        let kind = End::new(file.as_fd(), path)?.kind();
        Ok(Source { file, path: path.into(), stat, kind })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.stat.stx_size
    }

    /// Whether its size says how much there is. A file system in user space may say 0 of a file that has contents, so that
    /// is confirmed.
    pub(super) fn has_a_size(&self) -> Result<bool> {
        if self.kind != Kind::File || self.size_bytes() > 0 {
            return Ok(self.kind == Kind::File);
        }
        let read = again(|| rustix::io::pread(&self.file, &mut [0u8; 1][..], 0));
        Ok(read.map_err(Error::io("read", &self.path))? == 0)
    }

    /// The same file through a descriptor of its own, as read-ahead is planned for each descriptor; the same one where that cannot be
    /// had. The kernel is told that it will be read from front to back.
    pub(super) fn another(&self) -> Result<OwnedFd> {
        let by_number = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
        let file = match again(|| rustix::fs::openat(CWD, by_number.as_str(), flags, Mode::empty()))
        {
            Ok(file) => file,
            Err(_) => rustix::io::fcntl_dupfd_cloexec(&self.file, 0)
                .map_err(Error::io("open again", &self.path))?,
        };
        advise(&file);
        Ok(file)
    }

    /// Where there is data, in up to [`EXTENTS_MAX`] extents: of a file with more, the smallest holes are sent as zeros.
    pub(super) fn extents(&self) -> Result<Vec<Span>> {
        let allocated_bytes = self.stat.stx_blocks.saturating_mul(512);
        let mut extents = again(|| extents(self.file.as_fd(), self.size_bytes(), allocated_bytes))
            .map_err(Error::io("find the data of", &self.path))?;
        let mut hole_bytes_min = 1;
        while extents.len() > EXTENTS_MAX {
            hole_bytes_min *= 2;
            close_holes(&mut extents, hole_bytes_min);
        }
        Ok(extents)
    }

    /// What the receiver is told of it.
    pub(super) fn manifest(&self, digest_chunk_bytes: u64) -> Result<Manifest> {
        let name = self.path.file_name().ok_or_else(|| {
            Error::Usage(format!(
                "{} has no name that a file could be sent under",
                self.path.display()
            ))
        })?;
        Ok(Manifest {
            name: name.as_bytes().to_vec(),
            size_bytes: self.size_bytes(),
            mode: u32::from(self.stat.stx_mode) & 0o7777,
            accessed: stamp(self.stat.stx_atime),
            modified: stamp(self.stat.stx_mtime),
            digest_chunk_bytes,
            extents: self.extents()?,
        })
    }

    /// An error if it is not what it was when it was opened.
    pub(super) fn unchanged(&self) -> Result<()> {
        let now = look(self.file.as_fd()).map_err(Error::io("look at", &self.path))?;
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

/// Reads ahead twice as far in a cold file; costs nothing in a warm one. Pipes know no such advice.
pub(super) fn advise(file: &OwnedFd) {
    let _ = rustix::fs::fadvise(file, 0, None, Advice::Sequential);
}

/// Makes one of extents with a hole of less than `hole_bytes_min` between them.
fn close_holes(extents: &mut Vec<Span>, hole_bytes_min: u64) {
    extents.dedup_by(|next, last| {
        let is_near = next.begin - last.end < hole_bytes_min;
        if is_near {
            last.end = next.end;
        }
        is_near
    });
}

fn stamp(time: StatxTimestamp) -> Stamp {
    Stamp { seconds: time.tv_sec, nanoseconds: time.tv_nsec.min(NANOSECONDS - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_holes_are_closed_first() {
        let mut extents =
            vec![Span::new(0, 1), Span::new(2, 3), Span::new(8, 9), Span::new(10, 12)];
        close_holes(&mut extents, 2);
        assert_eq!(extents, [Span::new(0, 3), Span::new(8, 12)]);
    }
}
