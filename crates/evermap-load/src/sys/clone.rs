//! Block sharing between files (reflinks).

use std::os::fd::BorrowedFd;

use rustix::io::Errno;

/// Makes the empty file `target` a copy of `source` that shares its blocks.
pub(crate) fn clone_file(source: BorrowedFd<'_>, target: BorrowedFd<'_>) -> Result<(), Errno> {
    rustix::fs::ioctl_ficlone(target, source)
}
