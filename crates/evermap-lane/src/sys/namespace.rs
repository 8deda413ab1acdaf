//! Mounts of one's own.

use rustix::io::Result;
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Gives this thread mounts of its own, and what it starts with it; needs `CAP_SYS_ADMIN`.
pub(crate) fn own_mounts() -> Result<()> {
    // SAFETY: without `UnshareFlags::FILES` no thread loses descriptors that it knows of, which is all that the call asks for.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }
}

/// The same with users of its own, for which nobody needs a right; a process with one thread only.
pub(crate) fn own_users_and_mounts() -> Result<()> {
    // SAFETY: as in `own_mounts`.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) }
}
