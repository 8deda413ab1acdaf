//! Leases: the kernel says whether somebody else has a file open, and makes whoever opens it next wait until we let go.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use rustix::io::{Errno, Result};

/// Which signal tells of a lease that is wanted back; the same number on all machines but parisc.
const F_SETSIG: c_int = 10;

/// What a lease keeps others from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Nobody has it open for writing; whoever wants to waits.
    Writers,
    /// Nobody else has it open; whoever wants to waits.
    All,
}

/// Takes a lease, or changes the one that there is. The file is open for reading only, once, and by nobody else in the
/// way: `EAGAIN` otherwise. `EACCES` without being its owner or `CAP_LEASE`; `EINVAL` where there are no leases.
pub(crate) fn take(file: BorrowedFd<'_>, kept: Kept) -> Result<()> {
    let kind = match kept {
        Kept::Writers => libc::F_RDLCK,
        Kept::All => libc::F_WRLCK,
    };
    // The default would be `SIGIO`, which ends the process. `SIGURG` is ignored, and nobody gets it in the end.
    call(file.as_raw_fd(), F_SETSIG, libc::SIGURG)?;
    call(file.as_raw_fd(), libc::F_SETLEASE, kind as c_int)?;
    call(file.as_raw_fd(), libc::F_SETOWN, 0)?;
    Ok(())
}

/// Lets go. What has waited goes on.
pub(crate) fn release(file: BorrowedFd<'_>) {
    // It can only fail when there is none.
    let _ = call(file.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK as c_int);
}

/// Whether this lease is still ours, and nobody wants to open the file. One that is not given back in time (45 s by
/// default) is taken away.
pub(crate) fn is_whole(file: BorrowedFd<'_>, kept: Kept) -> bool {
    let whole = match kept {
        Kept::Writers => libc::F_RDLCK,
        Kept::All => libc::F_WRLCK,
    };
    call(file.as_raw_fd(), libc::F_GETLEASE, 0) == Ok(whole as c_int)
}

fn call(file: RawFd, command: c_int, argument: c_int) -> Result<c_int> {
    // SAFETY: these commands take an integer and touch no memory; the descriptor is borrowed, so it is open.
    match unsafe { libc::fcntl(file, command, argument) } {
        -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
        value => Ok(value),
    }
}
