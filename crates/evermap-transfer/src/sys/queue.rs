//! What waits in a socket.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::ioctl::{Getter, Opcode, ioctl};

/// `TIOCOUTQ`, which sockets answer as `SIOCOUTQ`.
const SIOCOUTQ: Opcode = libc::TIOCOUTQ as Opcode;

/// Bytes that were sent and that the peer has not taken (UNIX) or acknowledged (TCP); 0 where that is not known.
pub(crate) fn unsent_bytes(socket: BorrowedFd<'_>) -> u64 {
    // SAFETY: the number is SIOCOUTQ, which writes one int and keeps nothing.
    let bytes = unsafe { ioctl(socket, Getter::<SIOCOUTQ, libc::c_int>::new()) };
    bytes.map_or(0, |bytes| u64::try_from(bytes).unwrap_or(0))
}

/// Bytes that have come and were not read; 0 where that is not known.
pub(crate) fn unread_bytes(socket: BorrowedFd<'_>) -> u64 {
    rustix::io::ioctl_fionread(socket).unwrap_or(0)
}

/// Lets a receiver that waits sleep until so much has come, or the end, or nothing more fits; says whether that is done.
pub(crate) fn wake_after(socket: BorrowedFd<'_>, bytes: libc::c_int) -> bool {
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option is one int, which is read before the call returns.
    let result = unsafe {
        let value = (&raw const bytes).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, value, length)
    };
    result == 0
}
