//! Lock that a running copy holds on its unfinished files and directories.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::fs::{self, AtFlags, FlockOperation};
use rustix::io::Errno;

use super::names::ATTEMPTS;

/// Timeout for the lock while `clean` examines the file.
const LOCK_WAIT: Duration = Duration::from_secs(2);
/// Takes a shared lock on an unfinished file or directory, held while the descriptor is open. Waits
/// up to [`LOCK_WAIT`] for a running `clean`. File systems without locks are ignored.
pub(crate) fn lock_unfinished(unfinished: BorrowedFd<'_>) {
    let begin = Instant::now();
    while fs::flock(unfinished, FlockOperation::NonBlockingLockShared) == Err(Errno::AGAIN)
        && begin.elapsed() < LOCK_WAIT
    {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Creates something with a temporary name and locks it. Calls `create` again if `clean` removes
/// the name before the lock is held.
///
/// # Errors
/// Those of `create`.
pub(crate) fn create_and_lock<T: AsFd, E>(
    directory: BorrowedFd<'_>,
    mut create: impl FnMut() -> Result<(T, std::ffi::CString), E>,
) -> Result<(T, std::ffi::CString), E> {
    let mut attempts = ATTEMPTS;
    loop {
        let (created, name) = create()?;
        lock_unfinished(created.as_fd());
        attempts -= 1;
        if attempts == 0 || leads_to(directory, &name, created.as_fd()) {
            return Ok((created, name));
        }
    }
}

/// Returns false if `name` no longer leads to `file`, which was opened by that name.
pub(crate) fn leads_to(directory: BorrowedFd<'_>, name: &CStr, file: BorrowedFd<'_>) -> bool {
    match (fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW), fs::fstat(file)) {
        (Ok(named), Ok(open)) => (named.st_dev, named.st_ino) == (open.st_dev, open.st_ino),
        (Err(Errno::NOENT), _) => false,
        // On other errors assume that it is unchanged: using the name reports them.
        _ => true,
    }
}
