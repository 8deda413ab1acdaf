//! Read leases: whoever wants to write to a file, or to cut it, waits until the lease is given back (or the kernel's patience is over,
//! `/proc/sys/fs/lease-break-time`, 45 s).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `include/uapi/asm-generic/fcntl.h`, the same on all machines but old SPARC.
const F_SETSIG: i32 = 10;

/// A file nobody can write to without our knowing. Given back when it is dropped.
#[derive(Debug)]
pub(crate) struct ReadLease {
    file: File,
}

impl ReadLease {
    /// Of a file that is open for reading. `EAGAIN`: somebody has it open for writing. `EACCES`: it is somebody else's.
    pub(crate) fn take(file: File) -> io::Result<Self> {
        // The word that somebody waits is a signal, and the usual one ends a process that does not handle it. This one is ignored unless asked for; we look.
        control(&file, F_SETSIG, libc::SIGURG)?;
        control(&file, libc::F_SETLEASE, libc::F_RDLCK)?;
        Ok(Self { file })
    }

    /// Whether nobody wants to write. Cost: one system call.
    pub(crate) fn is_kept(&self) -> bool {
        control(&self.file, libc::F_GETLEASE, 0).is_ok_and(|kind| kind == libc::F_RDLCK)
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for ReadLease {
    fn drop(&mut self) {
        let _ = control(&self.file, libc::F_SETLEASE, libc::F_UNLCK);
    }
}

fn control(file: &File, command: i32, argument: i32) -> io::Result<i32> {
    // SAFETY: these commands take a number and touch no memory.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, argument) } {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::OpenOptionsExt;

    #[test]
    fn a_lease_is_refused_while_somebody_writes_and_noticed_when_somebody_wants_to() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("leased");
        let writer = File::create(&path).unwrap();
        let refused = ReadLease::take(File::open(&path).unwrap()).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EAGAIN));
        drop(writer);
        let lease = ReadLease::take(File::open(&path).unwrap()).unwrap();
        assert!(lease.is_kept());
        let impatient = File::options().write(true).custom_flags(libc::O_NONBLOCK).open(&path);
        assert_eq!(impatient.unwrap_err().raw_os_error(), Some(libc::EWOULDBLOCK));
        assert!(!lease.is_kept(), "somebody wants to write");
        drop(lease);
        File::options().write(true).open(&path).unwrap();
    }
}
