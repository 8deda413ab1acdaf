//! A file on the disk: [`File`] over Linux system calls.
//!
//! Locks are open-file-description locks. They belong to the open file and not to the process, so
//! two handles in one process exclude each other like two processes, and the kernel releases them
//! when their holder dies. A forked child, and every mapping made through an open file, keeps the
//! file open and its locks held: `locks` defines which open file holds which lock and which
//! processes inherit it. Each operation emits a `tracing` event at trace level.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{self, FallocateFlags, Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};
use tracing::trace;

use super::locks::{Locks, lock_call};
use super::moving;
use super::{File, FileIdentity, FileState, LockKind};
use crate::at_fork;
use crate::error::{Error, Result};
use crate::format::PAGE_BYTES;

/// A file on the disk.
#[derive(Debug)]
pub(super) struct DiskFile {
    descriptor: OwnedFd,
    path: PathBuf,
    /// `None` if nothing needed it yet.
    identity: Option<FileIdentity>,
    /// [`UNKNOWN`] once it was used, because the length may change.
    length_at_open: AtomicU64,
    locks: Locks,
}

const UNKNOWN: u64 = u64::MAX;

impl Drop for DiskFile {
    fn drop(&mut self) {
        self.locks.end(&self.descriptor);
    }
}

/// Maximum file length that this process may write. `u64::MAX` without a limit, or if a filter
/// of the host forbids the query (`rustix::process::getrlimit` panics in that case).
fn file_size_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call fills the structure, which lives through the call.
    match unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) } {
        // RLIM_INFINITY is the largest number.
        0 => limit.rlim_cur,
        _ => u64::MAX,
    }
}

/// Refuses to change files in a forked child, which may drop values that would remove files that
/// the parent is creating.
pub(super) fn refuse_change(path: &Path) -> Result<()> {
    at_fork::refuse_in_child(|| path.display().to_string())
}

impl DiskFile {
    /// `found` is what opening it found out: its identity and length.
    pub(super) fn new(
        descriptor: OwnedFd,
        path: &Path,
        found: Option<(FileIdentity, u64)>,
    ) -> DiskFile {
        at_fork::watch();
        DiskFile {
            descriptor,
            path: path.to_path_buf(),
            identity: found.map(|(identity, _)| identity),
            length_at_open: AtomicU64::new(found.map_or(UNKNOWN, |(_, length)| length)),
            locks: Locks::default(),
        }
    }

    /// Returns the same open file under another path. This value releases no locks from now on.
    pub(super) fn moved_to(&self, path: &Path) -> Result<DiskFile> {
        let descriptor = rustix::io::fcntl_dupfd_cloexec(&self.descriptor, 0)
            .map_err(|e| self.error(e, "duplicate the descriptor of"))?;
        let locks = self.locks.moved_to(&self.descriptor, &descriptor);
        let mut moved = DiskFile::new(descriptor, path, None);
        (moved.identity, moved.locks) = (self.identity, locks);
        Ok(moved)
    }

    /// Opens the same file again, as an independent open file.
    fn reopened(&self, flags: OFlags) -> Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let own = format!("/proc/self/fd/{}", self.descriptor.as_raw_fd());
        if let Ok(descriptor) = fs::open(own, flags, Mode::empty()) {
            return Ok(descriptor);
        }
        // Without /proc, open the path, which may lead to another file by now.
        let descriptor = fs::open(&self.path, flags | OFlags::NOFOLLOW, Mode::empty())
            .map_err(|e| self.error(e, "open"))?;
        let identity = |descriptor: &OwnedFd| {
            let found = fs::fstat(descriptor).map_err(|e| self.error(e, "look at"))?;
            Ok::<_, Error>((found.st_dev, found.st_ino))
        };
        match identity(&descriptor)? == identity(&self.descriptor)? {
            true => Ok(descriptor),
            false => Err(self.error(Errno::STALE, "open")),
        }
    }

    fn lock_error(&self, error: io::Error) -> Error {
        // An exclusive lock needs a writable descriptor.
        if error.raw_os_error() == Some(libc::EBADF) {
            return Error::NotPermitted {
                path: self.path.clone(),
                doing: "write to",
                why: "it could be opened for reading only".to_string(),
            };
        }
        Error::from_io(error, "lock", &self.path)
    }

    fn error(&self, error: rustix::io::Errno, doing: &'static str) -> Error {
        Error::from_io(error.into(), doing, &self.path)
    }

    /// Returns an error if this process may not write a file up to `end`. The kernel would not only
    /// refuse such a write, but send SIGXFSZ, which ends the process, even for a write inside the
    /// file's length. Signals belong to the host program, so the limit is queried each time, which
    /// takes about 0.1 us.
    fn check_limit(&self, end: u64, doing: &'static str) -> Result<()> {
        let limit_bytes = file_size_limit();
        if end <= limit_bytes {
            return Ok(());
        }
        let path = self.path.clone();
        Err(Error::FileSizeLimit { path, doing, needed_bytes: end, limit_bytes })
    }

    fn write_all(&self, bytes: &[u8], offset: u64, flags: ReadWriteFlags) -> Result<()> {
        refuse_change(&self.path)?;
        self.check_limit(offset + bytes.len() as u64, "write")?;
        let mut done = 0;
        while done < bytes.len() {
            let slice = [io::IoSlice::new(&bytes[done..])];
            match rustix::io::pwritev2(&self.descriptor, &slice, offset + done as u64, flags) {
                Ok(0) => return Err(self.error(rustix::io::Errno::IO, "write")),
                Ok(n) => done += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => {
                    let needed = (bytes.len() - done) as u64;
                    return Err(Error::from_io_sized(e.into(), "write", &self.path, needed));
                }
            }
        }
        Ok(())
    }
}

impl File for DiskFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            let rest = &mut buffer[done..];
            match rustix::io::pread(&self.descriptor, rest, offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(self.error(e, "read")),
            }
        }
        trace!(path = %self.path.display(), offset, bytes = done, "read");
        Ok(done)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        trace!(path = %self.path.display(), offset, bytes = bytes.len(), "write");
        self.write_all(bytes, offset, ReadWriteFlags::empty())
    }

    fn write_at_durable(&self, bytes: &[u8], offset: u64) -> Result<()> {
        trace!(path = %self.path.display(), offset, bytes = bytes.len(), "write and flush");
        match self.write_all(bytes, offset, ReadWriteFlags::DSYNC) {
            // File systems without the flag get the equivalent two calls.
            Err(Error::Io { source, .. }) if source.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                self.write_all(bytes, offset, ReadWriteFlags::empty())?;
                self.sync_data()
            }
            other => other,
        }
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        refuse_change(&self.path)?;
        trace!(path = %self.path.display(), offset, length, "allocate");
        self.check_limit(offset + length, "extend")?;
        loop {
            match fs::fallocate(&self.descriptor, FallocateFlags::empty(), offset, length) {
                Ok(()) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::OPNOTSUPP) => break,
                Err(e) => {
                    return Err(Error::from_io_sized(e.into(), "extend", &self.path, length));
                }
            }
        }
        // The file system cannot reserve blocks: writing zeros past the old end reserves them too.
        static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];
        let mut at = self.length()?.max(offset);
        while at < offset + length {
            let step = (offset + length - at).min(ZEROS.len() as u64);
            self.write_all(&ZEROS[..step as usize], at, ReadWriteFlags::empty())?;
            at += step;
        }
        Ok(())
    }

    fn punch_hole(&self, offset: u64, length: u64) -> Result<bool> {
        refuse_change(&self.path)?;
        trace!(path = %self.path.display(), offset, length, "punch hole");
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        loop {
            match fs::fallocate(&self.descriptor, flags, offset, length) {
                Ok(()) => return Ok(true),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::OPNOTSUPP) => return Ok(false),
                Err(e) => return Err(self.error(e, "punch a hole in")),
            }
        }
    }

    fn set_length(&self, length: u64) -> Result<()> {
        refuse_change(&self.path)?;
        trace!(path = %self.path.display(), length, "set length");
        if let Err(error) = self.check_limit(length, "extend")
            && length > self.length()?
        {
            return Err(error);
        }
        fs::ftruncate(&self.descriptor, length).map_err(|e| self.error(e, "set the length of"))
    }

    fn disk_bytes(&self) -> Result<u64> {
        let stat = fs::fstat(&self.descriptor).map_err(|e| self.error(e, "look at"))?;
        // `st_blocks` counts units of 512 bytes on every file system.
        Ok(stat.st_blocks as u64 * 512)
    }

    fn length(&self) -> Result<u64> {
        let stat = fs::fstat(&self.descriptor).map_err(|e| self.error(e, "look at"))?;
        Ok(stat.st_size as u64)
    }

    fn length_after_open(&self) -> Result<u64> {
        match self.length_at_open.swap(UNKNOWN, Ordering::Relaxed) {
            UNKNOWN => self.length(),
            length => Ok(length),
        }
    }

    fn sync_data(&self) -> Result<()> {
        trace!(path = %self.path.display(), "sync");
        fs::fdatasync(&self.descriptor).map_err(|e| self.error(e, "sync"))
    }

    fn start_write_back(&self, offset: u64, length: u64) {
        trace!(path = %self.path.display(), offset, length, "start writing back");
        // SAFETY: the descriptor is open as long as `self` lives, and the call takes no pointers.
        // The next flush reports an error again.
        let _ = unsafe {
            libc::sync_file_range(
                self.descriptor.as_raw_fd(),
                offset as libc::off64_t,
                length as libc::off64_t,
                libc::SYNC_FILE_RANGE_WRITE,
            )
        };
    }

    fn advise_random(&self) -> Result<()> {
        fs::fadvise(&self.descriptor, 0, None, fs::Advice::Random)
            .map_err(|e| self.error(e, "advise on"))
    }

    fn try_lock(&self, kind: LockKind, offset: u64, length: u64) -> Result<bool> {
        let ordinary = || self.reopened(OFlags::RDWR);
        let locked = self.locks.try_lock(&self.descriptor, ordinary, kind, offset, length);
        locked.map_err(|e| self.lock_error(e))
    }

    fn try_lock_for_good(&self, offset: u64) -> Result<bool> {
        match self.reopened(OFlags::RDWR) {
            Ok(own) => self.locks.try_lock_for_good(own, offset).map_err(|e| self.lock_error(e)),
            // A child created without fork handlers then keeps the lock as long as it lives.
            Err(_) => self.try_lock(LockKind::Exclusive, offset, 1),
        }
    }

    fn leave_locks_to_children(&self) {
        self.locks.leave_to_children(&self.descriptor);
    }

    fn again(&self) -> Result<Arc<dyn File>> {
        let descriptor = self.reopened(OFlags::RDONLY)?;
        Ok(Arc::new(DiskFile::new(descriptor, &self.path, None)))
    }

    fn lock_holder(&self, offset: u64, length: u64) -> Result<Option<(u64, u64)>> {
        let lock = lock_call(&self.descriptor, libc::F_OFD_GETLK, libc::F_WRLCK, offset, length)
            .map_err(|e| Error::from_io(e, "query the lock of", &self.path))?;
        if lock.l_type == libc::F_UNLCK as libc::c_short {
            Ok(None)
        } else {
            Ok(Some((lock.l_start as u64, lock.l_len as u64)))
        }
    }

    fn unlock(&self, offset: u64, length: u64) -> Result<()> {
        self.locks
            .unlock(&self.descriptor, offset, length)
            .map_err(|e| Error::from_io(e, "unlock", &self.path))
    }

    fn with_path(&self, path: &Path) -> Result<Arc<dyn File>> {
        Ok(Arc::new(self.moved_to(path)?))
    }

    fn has_a_name(&self) -> Result<bool> {
        let stat = fs::fstat(&self.descriptor).map_err(|e| self.error(e, "look at"))?;
        Ok(stat.st_nlink > 0)
    }

    fn identity(&self) -> Result<FileIdentity> {
        if let Some(identity) = self.identity {
            return Ok(identity);
        }
        let stat = fs::fstat(&self.descriptor).map_err(|e| self.error(e, "look at"))?;
        Ok(FileIdentity { device: stat.st_dev, inode: stat.st_ino })
    }

    fn state(&self) -> Result<FileState> {
        let stat = fs::fstat(&self.descriptor).map_err(|e| self.error(e, "look at"))?;
        Ok(FileState {
            length: stat.st_size as u64,
            named: stat.st_nlink > 0,
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        })
    }

    fn copy_from(&self, source: &dyn File, length: u64) -> Result<bool> {
        refuse_change(&self.path)?;
        trace!(path = %self.path.display(), source = %source.path().display(), length, "copy");
        self.check_limit(length, "copy into")?;
        moving::copy(source, self, length)
    }

    fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>> {
        let start = match fs::seek(&self.descriptor, fs::SeekFrom::Data(offset)) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => return Ok(None),
            // The file system cannot tell: treat everything as data.
            Err(rustix::io::Errno::INVAL) => {
                let end = self.length()?;
                return Ok((offset < end).then_some((offset, end)));
            }
            Err(e) => return Err(self.error(e, "look for data in")),
        };
        let end = fs::seek(&self.descriptor, fs::SeekFrom::Hole(start))
            .map_err(|e| self.error(e, "look for data in"))?;
        Ok(Some((start & !(PAGE_BYTES - 1), end.next_multiple_of(PAGE_BYTES))))
    }

    fn is_direct(&self) -> bool {
        false
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
