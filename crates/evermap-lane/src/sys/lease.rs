//! File leases: the kernel reports whether others have a file open, and blocks those that open it
//! until the lease is released.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use rustix::io::{Errno, Result};

/// Sets the signal that announces a lease break. The number is the same on all machines but parisc.
const F_SETSIG: c_int = 10;

/// Kind of lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseKind {
    /// Read lease: no one has the file open for writing, and new writers wait.
    Read,
    /// Write lease: no one else has the file open, and all new openers wait.
    Write,
}

/// Takes a lease, or converts the existing one. The file must be open for reading only, by one
/// description. Fails with `EAGAIN` if another opener conflicts, with `EACCES` for a caller that is
/// neither the owner nor has `CAP_LEASE`, and with `EINVAL` where the file system has no leases.
pub(crate) fn take(file: BorrowedFd<'_>, kind: LeaseKind) -> Result<()> {
    let lock = match kind {
        LeaseKind::Read => libc::F_RDLCK,
        LeaseKind::Write => libc::F_WRLCK,
    };
    // The default signal `SIGIO` would end the process. `SIGURG` is ignored by default, and the
    // owner set below is none, so no process gets it.
    call(file.as_raw_fd(), F_SETSIG, libc::SIGURG)?;
    call(file.as_raw_fd(), libc::F_SETLEASE, lock as c_int)?;
    call(file.as_raw_fd(), libc::F_SETOWN, 0)?;
    Ok(())
}

/// Releases the lease. Blocked openers continue.
pub(crate) fn release(file: BorrowedFd<'_>) {
    // Fails only without a lease.
    let _ = call(file.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK as c_int);
}

/// Returns true while the lease is held and no one waits to open the file. The kernel takes a lease
/// away that is not released in time (45 s by default).
pub(crate) fn is_held(file: BorrowedFd<'_>, kind: LeaseKind) -> bool {
    let lock = match kind {
        LeaseKind::Read => libc::F_RDLCK,
        LeaseKind::Write => libc::F_WRLCK,
    };
    call(file.as_raw_fd(), libc::F_GETLEASE, 0) == Ok(lock as c_int)
}

fn call(file: RawFd, command: c_int, argument: c_int) -> Result<c_int> {
    // SAFETY: these commands take an integer and touch no memory; the borrowed descriptor is open.
    match unsafe { libc::fcntl(file, command, argument) } {
        -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
        value => Ok(value),
    }
}
