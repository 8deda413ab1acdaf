//! Sharing a file's extents with another file.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;

/// Makes `target`, which is empty, a copy of `source` that shares its blocks.
pub(crate) fn clone_file(source: BorrowedFd<'_>, target: BorrowedFd<'_>) -> Result<(), Errno> {
    rustix::fs::ioctl_ficlone(target, source)
}
