//! A file that nobody writes to while it is read: whoever wants to waits until the lease is given back (or the kernel's patience is over,
//! `/proc/sys/fs/lease-break-time`, 45 s).

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use crate::sys::lease::{self, Kept};

/// Given back when it is dropped.
#[derive(Debug)]
pub(super) struct ReadLease {
    file: File,
}

impl ReadLease {
    /// Of a file that is open for reading. `EAGAIN`: somebody has it open for writing. `EACCES`: it is somebody else's.
    pub(super) fn take(file: File) -> io::Result<Self> {
        lease::take(file.as_fd(), Kept::Writers)?;
        Ok(Self { file })
    }

    /// Whether nobody wants to write. Cost: one system call.
    pub(super) fn is_whole(&self) -> bool {
        lease::is_whole(self.file.as_fd(), Kept::Writers)
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for ReadLease {
    fn drop(&mut self) {
        lease::release(self.file.as_fd());
    }
}
