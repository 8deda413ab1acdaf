//! Locks of open files: who has one is asked without taking it, and all that share the open file share the lock.
//!
//! Such a lock (`F_OFD_SETLK`) belongs to the open file, not to the process: whoever was handed the descriptor keeps it when the
//! one who took it is gone, and it ends with the last of them.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Takes the file's lock, for this open file alone. `false`: another one has it.
pub(crate) fn try_lock(file: &File) -> io::Result<bool> {
    match control(file, libc::F_OFD_SETLK, libc::F_WRLCK) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Takes the file's lock, and waits for it.
pub(crate) fn lock(file: &File) -> io::Result<()> {
    loop {
        match control(file, libc::F_OFD_SETLKW, libc::F_WRLCK) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Gives the lock back, for all that share the open file.
pub(crate) fn unlock(file: &File) -> io::Result<()> {
    control(file, libc::F_OFD_SETLK, libc::F_UNLCK).map(|_| ())
}

/// Whether another open file has the lock.
pub(crate) fn is_locked(file: &File) -> io::Result<bool> {
    let found = control(file, libc::F_OFD_GETLK, libc::F_WRLCK)?;
    Ok(found != libc::F_UNLCK)
}

/// One call on the whole file. Gives the type that the kernel left.
fn control(file: &File, operation: libc::c_int, kind: libc::c_int) -> io::Result<libc::c_int> {
    // SAFETY: the structure is integers, for all of which zero is a value; `l_pid` must be 0.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: the descriptor is open while `file` lives, and the structure is ours for the call.
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
    fn a_lock_is_the_open_files_and_its_copies() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let open =
            || File::options().create(true).truncate(false).read(true).write(true).open(&path);
        let (one, other) = (open().unwrap(), open().unwrap());
        assert!(!is_locked(&other).unwrap());
        assert!(try_lock(&one).unwrap());
        assert!(is_locked(&other).unwrap() && !try_lock(&other).unwrap());
        assert!(!is_locked(&one).unwrap(), "it is one's own");
        let copy = one.try_clone().unwrap();
        drop(one);
        assert!(is_locked(&other).unwrap(), "the copy has it still");
        unlock(&copy).unwrap();
        assert!(try_lock(&other).unwrap());
    }
}
