//! `close(2)`, with what it says.

use std::os::fd::{IntoRawFd, OwnedFd};

use rustix::io::Errno;

/// Closes a file that was written: network file systems say only now that there was no room.
pub(crate) fn close(descriptor: OwnedFd) -> Result<(), Errno> {
    let raw = descriptor.into_raw_fd();
    // SAFETY: the descriptor was owned until the line above, so nobody else closes or uses it.
    match unsafe { libc::close(raw) } {
        0 => Ok(()),
        // Linux has closed it all the same.
        _ => match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::EINTR) | None => Ok(()),
            Some(code) => Err(Errno::from_raw_os_error(code)),
        },
    }
}
