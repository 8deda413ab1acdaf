//! Which file it is, and whether it is still what it was.

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, Statx, StatxFlags, statx};
use rustix::io::Errno;

/// What changes when a file does. On kernels before 6.13 times tick every few milliseconds: a change within one tick shows in the size or
/// not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) size_bytes: u64,
    /// Seconds and nanoseconds.
    pub(crate) modified: (i64, u32),
    pub(crate) changed: (i64, u32),
}

impl Identity {
    /// Of what `statx` said.
    pub(crate) fn of(stat: &Statx) -> Identity {
        Identity {
            device: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
            inode: stat.stx_ino,
            size_bytes: stat.stx_size,
            modified: (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
            changed: (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
        }
    }

    /// What differs now, in words.
    pub(crate) fn differs(&self, now: &Identity) -> Option<String> {
        if self.size_bytes != now.size_bytes {
            return Some(format!("it had {} bytes and has {}", self.size_bytes, now.size_bytes));
        }
        if self.modified != now.modified || self.changed != now.changed {
            return Some("it was written to, or its attributes were".to_string());
        }
        None
    }
}

/// What `statx` says of a descriptor.
pub(crate) fn look(file: BorrowedFd<'_>) -> Result<Statx, Errno> {
    statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)
}
