//! What waits in a socket.

use std::os::fd::BorrowedFd;

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
