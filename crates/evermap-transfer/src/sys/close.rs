//! `close(2)` with its error.

use std::os::fd::{IntoRawFd, OwnedFd};

use rustix::io::Errno;

/// Closes a written file. Network file systems report a full disk only now.
pub(crate) fn close(descriptor: OwnedFd) -> Result<(), Errno> {
    let raw = descriptor.into_raw_fd();
    // SAFETY: the descriptor was owned until the line above, so no other code closes or uses it.
    match unsafe { libc::close(raw) } {
        0 => Ok(()),
        // Linux closes the descriptor even on error.
        _ => match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::EINTR) | None => Ok(()),
            Some(code) => Err(Errno::from_raw_os_error(code)),
        },
    }
}
