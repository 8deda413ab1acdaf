//! Reading and setting attributes of open files and of names.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::fs::{self, AtFlags, Gid, Mode, OFlags, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

/// Object whose attributes are accessed: an open file, or a name whose link is never followed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Subject<'a> {
    Open(BorrowedFd<'a>),
    /// A symbolic link, FIFO, socket or device.
    Named(BorrowedFd<'a>, &'a CStr),
}

impl Subject<'_> {
    /// Returns a path through the directory's descriptor. Before Linux 6.13 no call accesses
    /// extended attributes by directory and name.
    fn path(directory: BorrowedFd<'_>, name: &CStr) -> Vec<u8> {
        let mut path = format!("/proc/self/fd/{}/", directory.as_raw_fd()).into_bytes();
        path.extend_from_slice(name.to_bytes());
        path
    }

    pub(super) fn list_xattrs(&self, list: &mut [u8]) -> Result<usize, Errno> {
        match *self {
            Subject::Open(fd) => fs::flistxattr(fd, list),
            Subject::Named(directory, name) => fs::llistxattr(Subject::path(directory, name), list),
        }
    }

    pub(super) fn xattr(&self, key: &CStr, value: &mut [u8]) -> Result<usize, Errno> {
        match *self {
            Subject::Open(fd) => fs::fgetxattr(fd, key, value),
            Subject::Named(directory, name) => {
                fs::lgetxattr(Subject::path(directory, name), key, value)
            }
        }
    }

    pub(super) fn set_xattr(&self, key: &CStr, value: &[u8]) -> Result<(), Errno> {
        match *self {
            Subject::Open(fd) => fs::fsetxattr(fd, key, value, XattrFlags::empty()),
            Subject::Named(directory, name) => {
                fs::lsetxattr(Subject::path(directory, name), key, value, XattrFlags::empty())
            }
        }
    }

    pub(super) fn remove_xattr(&self, key: &CStr) -> Result<(), Errno> {
        match *self {
            Subject::Open(fd) => fs::fremovexattr(fd, key),
            Subject::Named(directory, name) => {
                fs::lremovexattr(Subject::path(directory, name), key)
            }
        }
    }

    pub(super) fn set_owner(&self, user: Option<Uid>, group: Option<Gid>) -> Result<(), Errno> {
        match *self {
            Subject::Open(fd) => fs::fchown(fd, user, group),
            Subject::Named(directory, name) => {
                fs::chownat(directory, name, user, group, AtFlags::SYMLINK_NOFOLLOW)
            }
        }
    }

    pub(super) fn set_mode(&self, mode: Mode) -> Result<(), Errno> {
        match *self {
            Subject::Open(fd) => fs::fchmod(fd, mode),
            // `fchmodat2`, which follows no links and opens nothing, is too new for the supported
            // kernels. This sequence has the same effect: a link is not followed, whatever the name
            // refers to by now.
            Subject::Named(directory, name) => {
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let node = fs::openat(directory, name, flags, Mode::empty())?;
                fs::chmod(format!("/proc/self/fd/{}", node.as_raw_fd()), mode)
            }
        }
    }

    pub(super) fn set_times(&self, times: &Timestamps) -> Result<(), Errno> {
        match *self {
            Subject::Open(fd) => fs::futimens(fd, times),
            Subject::Named(directory, name) => {
                fs::utimensat(directory, name, times, AtFlags::SYMLINK_NOFOLLOW)
            }
        }
    }

    pub(super) fn mode(&self) -> Result<u32, Errno> {
        let stat = match *self {
            Subject::Open(fd) => fs::fstat(fd)?,
            Subject::Named(directory, name) => {
                fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?
            }
        };
        Ok(stat.st_mode & 0o7777)
    }
}
