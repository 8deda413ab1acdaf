//! Read lease: writers and truncations wait until the lease is released, at most for the kernel's
//! limit (`/proc/sys/fs/lease-break-time`, 45 s by default).

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use crate::sys::lease::{self, LeaseKind};

/// Read lease, released when dropped.
#[derive(Debug)]
pub(super) struct ReadLease {
    file: File,
}

impl ReadLease {
    /// Takes a read lease on a file that is open for reading. Fails with `EAGAIN` if a process has
    /// it open for writing, and with `EACCES` if another user owns it.
    pub(super) fn take(file: File) -> io::Result<Self> {
        lease::take(file.as_fd(), LeaseKind::Read)?;
        Ok(Self { file })
    }

    /// Returns true while no process wants to write. Cost: one system call.
    pub(super) fn is_held(&self) -> bool {
        lease::is_held(self.file.as_fd(), LeaseKind::Read)
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
