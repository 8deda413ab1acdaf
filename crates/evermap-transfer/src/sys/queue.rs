//! Bytes queued in a socket, and the number that wakes its reader.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::ioctl::{Getter, Opcode, ioctl};

/// `TIOCOUTQ` has the value of `SIOCOUTQ`, which sockets implement.
const SIOCOUTQ: Opcode = libc::TIOCOUTQ as Opcode;

/// Returns the sent bytes that the peer has not read (UNIX) or acknowledged (TCP), or 0 if unknown.
pub(crate) fn unsent_bytes(socket: BorrowedFd<'_>) -> u64 {
    // SAFETY: the opcode is SIOCOUTQ, which writes one int and retains nothing.
    let bytes = unsafe { ioctl(socket, Getter::<SIOCOUTQ, libc::c_int>::new()) };
    bytes.map_or(0, |bytes| u64::try_from(bytes).unwrap_or(0))
}

/// Returns the received bytes that were not read, or 0 if unknown.
pub(crate) fn unread_bytes(socket: BorrowedFd<'_>) -> u64 {
    rustix::io::ioctl_fionread(socket).unwrap_or(0)
}

/// Sets the bytes that must arrive before a waiting receiver wakes (`SO_RCVLOWAT`). It also wakes
/// at the end or if the buffer is full. Returns true on success.
pub(crate) fn set_wake_threshold(socket: BorrowedFd<'_>, bytes: libc::c_int) -> bool {
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option is one int, which is read before the call returns.
    let result = unsafe {
        let value = (&raw const bytes).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, value, length)
    };
    result == 0
}
