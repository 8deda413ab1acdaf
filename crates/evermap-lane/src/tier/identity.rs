//! Identity of a file version.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Statx, StatxFlags, statx};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::error::{Error, Result};
use crate::sys::generation::generation;

/// Identifies a file and its version: it changes when the file is written to or replaced.
///
/// On kernels before 6.13, file times advance only every few milliseconds. Two changes within one
/// tick that keep the size are visible in the contents only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Inode number. The device number is not stored because it changes after a restart.
    pub inode: u64,
    /// Inode generation, or `None` if the file system has none or the file was not opened.
    pub generation: Option<u32>,
    /// Length of the file.
    pub size_bytes: u64,
    /// Time of the last content change: seconds since 1970, and nanoseconds.
    pub modified: (i64, u32),
    /// Time of the last change of contents, attributes or names.
    pub changed: (i64, u32),
}

impl Identity {
    /// Returns the identity of an open file. Makes two system calls.
    pub(super) fn of(file: impl AsFd) -> Result<Self, Errno> {
        let (_, identity) = Self::with_stat(file.as_fd())?;
        Ok(identity)
    }

    /// Like [`Identity::of`], and also returns the `statx` result.
    pub(super) fn with_stat(file: BorrowedFd<'_>) -> Result<(Statx, Self), Errno> {
        let stat = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
        Ok((stat, Self::of_stat(&stat, generation(file))))
    }

    /// Returns the identity of the file at `path`. Does not open it or follow a symbolic link.
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

    /// Returns true if both are the same inode, modified or not.
    pub(super) fn is_same_file(&self, now: &Self) -> bool {
        let generations = self.generation.zip(now.generation);
        self.inode == now.inode && generations.is_none_or(|(was, is)| was == is)
    }

    /// Describes the difference in contents, or returns `None`. A rename does not count.
    pub(super) fn contents_differ(&self, now: &Self) -> Option<String> {
        if !self.is_same_file(now) {
            return Some("another file has its name".into());
        }
        if self.size_bytes != now.size_bytes {
            return Some(format!("it had {} bytes and has {}", self.size_bytes, now.size_bytes));
        }
        (self.modified != now.modified).then(|| "it was written to".into())
    }

    /// Like [`Identity::contents_differ`], and also compares attributes and names.
    pub(super) fn differs(&self, now: &Self) -> Option<String> {
        self.contents_differ(now).or_else(|| {
            let is_changed = self.changed != now.changed;
            is_changed.then(|| "it was written to, or its attributes or names changed".into())
        })
    }
}

/// Checks by name that a file is unchanged. Makes one system call.
pub(super) fn check_unchanged(path: &Path, was: &Identity) -> Result<()> {
    let now = Identity::of_name(path).map_err(|errno| match errno {
        Errno::NOENT | Errno::NOTDIR => {
            Error::Changed { path: path.into(), what: "it no longer exists".into() }
        }
        errno => Error::io("inspect", path)(errno),
    })?;
    match was.differs(&now) {
        Some(what) => Err(Error::Changed { path: path.into(), what }),
        None => Ok(()),
    }
}
