//! Which file it is, and in which state.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Statx, StatxFlags, statx};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::error::{Error, Result};
use crate::sys::generation::generation;

/// Which file, and in which state. A file that is written to has another one, as has one that took its place.
///
/// On kernels before 6.13 times tick every few milliseconds: what changes a file twice within a tick without changing its size
/// shows in its contents only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Its number on its device. (Devices have other numbers after a restart, and are not noted.)
    pub inode: u64,
    /// How often that number was used; none where the file system does not say, or the file was not opened.
    pub generation: Option<u32>,
    /// How long it is.
    pub size_bytes: u64,
    /// When its contents changed last: seconds since 1970, and nanoseconds.
    pub modified: (i64, u32),
    /// When anything of it changed last, its name included.
    pub changed: (i64, u32),
}

impl Identity {
    /// Of an open file. Cost: two calls.
    pub(super) fn of(file: impl AsFd) -> Result<Self, Errno> {
        let (_, identity) = Self::with_stat(file.as_fd())?;
        Ok(identity)
    }

    /// With all that was said of it.
    pub(super) fn with_stat(file: BorrowedFd<'_>) -> Result<(Statx, Self), Errno> {
        let stat = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
        Ok((stat, Self::of_stat(&stat, generation(file))))
    }

    /// Of a name, without opening what it belongs to, and without following a link.
    pub(super) fn of_name(path: &Path) -> Result<Self, Errno> {
        let stat = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS)?;
        Ok(Self::of_stat(&stat, None))
    }

    pub(super) fn of_stat(stat: &Statx, generation: Option<u32>) -> Self {
        Self {
            inode: stat.stx_ino,
            generation,
            size_bytes: stat.stx_size,
            modified: (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
            changed: (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
        }
    }

    /// Whether it is this file, in whichever state.
    pub(super) fn is_same_file(&self, now: &Self) -> bool {
        let generations = self.generation.zip(now.generation);
        self.inode == now.inode && generations.is_none_or(|(was, is)| was == is)
    }

    /// What of its contents differs now, in words. A rename leaves this alone.
    pub(super) fn contents_differ(&self, now: &Self) -> Option<String> {
        if !self.is_same_file(now) {
            return Some("another file has its name".into());
        }
        if self.size_bytes != now.size_bytes {
            return Some(format!("it had {} bytes and has {}", self.size_bytes, now.size_bytes));
        }
        (self.modified != now.modified).then(|| "it was written to".into())
    }

    /// The same of its attributes and names, too.
    pub(super) fn differs(&self, now: &Self) -> Option<String> {
        self.contents_differ(now).or_else(|| {
            let is_changed = self.changed != now.changed;
            is_changed.then(|| "it was written to, or its attributes or names were changed".into())
        })
    }
}

/// Whether a file is still what it was; cheap, by its name.
pub(super) fn check_unchanged(path: &Path, was: &Identity) -> Result<()> {
    let now = Identity::of_name(path).map_err(|errno| match errno {
        Errno::NOENT | Errno::NOTDIR => {
            Error::Changed { path: path.into(), what: "it is not there any more".into() }
        }
        errno => Error::io("look at", path)(errno),
    })?;
    match was.differs(&now) {
        Some(what) => Err(Error::Changed { path: path.into(), what }),
        None => Ok(()),
    }
}
