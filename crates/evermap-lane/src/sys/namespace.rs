//! Private mount and user namespaces.

use rustix::io::Result;
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Moves the calling thread and its children to a private mount namespace. Needs `CAP_SYS_ADMIN`.
pub(crate) fn own_mounts() -> Result<()> {
    // SAFETY: the call is unsafe because `UnshareFlags::FILES` could close descriptors that other
    // threads use; that flag is not set.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }
}

/// Moves the process to private user and mount namespaces. Needs no right, but only one thread.
pub(crate) fn own_users_and_mounts() -> Result<()> {
    // SAFETY: as in `own_mounts`, `UnshareFlags::FILES` is not set.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) }
}
