//! Locks of open files (`F_OFD_SETLK`). A holder can be queried without taking the lock.
//!
//! Such a lock belongs to the open file description, not to the process. All descriptors of the
//! description share it, so a process that inherits one keeps the lock when the process that took
//! it ends. The lock ends when the last descriptor is closed.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Takes the lock for this open file alone. Returns `false` if another open file has it.
pub(crate) fn try_lock(file: &File) -> io::Result<bool> {
    match control(file, libc::F_OFD_SETLK, libc::F_WRLCK) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Releases the lock for all descriptors of the open file.
pub(crate) fn unlock(file: &File) -> io::Result<()> {
    control(file, libc::F_OFD_SETLK, libc::F_UNLCK).map(|_| ())
}

/// Returns true if another open file has the lock.
pub(crate) fn is_locked(file: &File) -> io::Result<bool> {
    let found = control(file, libc::F_OFD_GETLK, libc::F_WRLCK)?;
    Ok(found != libc::F_UNLCK)
}

/// Runs one lock operation on the whole file. Returns the lock type that the kernel left.
fn control(file: &File, operation: libc::c_int, kind: libc::c_int) -> io::Result<libc::c_int> {
    // SAFETY: the structure consists of integers, for which zero is valid; `l_pid` must be 0.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: `file` keeps the descriptor open, and the structure is a local of this function.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), operation, &mut lock) };
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(lock.l_type.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_shared_by_all_descriptors_of_an_open_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let open =
            || File::options().create(true).truncate(false).read(true).write(true).open(&path);
        let (one, other) = (open().unwrap(), open().unwrap());
        assert!(!is_locked(&other).unwrap());
        assert!(try_lock(&one).unwrap());
        assert!(is_locked(&other).unwrap() && !try_lock(&other).unwrap());
        assert!(!is_locked(&one).unwrap(), "the holder does not see its own lock");
        let copy = one.try_clone().unwrap();
        drop(one);
        assert!(is_locked(&other).unwrap(), "the copy still holds the lock");
        unlock(&copy).unwrap();
        assert!(try_lock(&other).unwrap());
    }
}
