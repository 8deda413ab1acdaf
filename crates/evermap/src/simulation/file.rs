//! An open file of the simulated disk.
//!
//! Reads, locks and mappings use a memory file. Each change is recorded by the disk, and each call
//! may be made to fail.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{self, FallocateFlags};

use super::disk::{Failure, Shared, io_error, next_data};
use super::image::Operation;
use super::pages::PAGE;
use super::versions::Medium;
use crate::error::{Error, Result};
use crate::storage::{Boot, File, FileIdentity, LockKind};

/// A file handle with its own locks.
#[derive(Debug)]
pub(super) struct SimulatedFile {
    disk: Arc<Shared>,
    id: u64,
    path: PathBuf,
    descriptor: OwnedFd,
    writable: bool,
}

impl SimulatedFile {
    pub(super) fn new(
        disk: Arc<Shared>,
        id: u64,
        path: &Path,
        descriptor: OwnedFd,
        writable: bool,
    ) -> SimulatedFile {
        SimulatedFile { disk, id, path: path.to_path_buf(), descriptor, writable }
    }

    fn error(&self, code: i32, doing: &'static str) -> Error {
        io_error(code, doing, &self.path)
    }

    /// Writes bytes to the memory file and the image.
    fn put(&self, bytes: &[u8], offset: u64, durable: bool) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let operation =
            Operation::Write { file: self.id, offset, bytes: Arc::from(bytes), durable };
        let mut written = Ok(());
        self.disk.apply_with(operation, || {
            let mut done = 0;
            while done < bytes.len() && written.is_ok() {
                let at = offset + done as u64;
                match rustix::io::pwrite(&self.descriptor, &bytes[done..], at) {
                    Ok(n) => done += n,
                    Err(e) => written = Err(e),
                }
            }
        });
        written.map_err(|e| Error::from_io(e.into(), "write", &self.path))
    }

    fn write(&self, bytes: &[u8], offset: u64, durable: bool) -> Result<()> {
        if !self.writable {
            return Err(self.error(libc::EBADF, "write"));
        }
        if durable {
            self.disk.flush_begins(self.id, &self.path);
        }
        let doing = if durable { "write durably" } else { "write" };
        if !self.disk.is_reserved(self.id, offset, bytes.len() as u64) {
            self.disk.check_free_blocks(doing, &self.path)?;
        }
        let Some(failure) = self.disk.enter(true, doing, &self.path) else {
            return self.put(bytes, offset, durable);
        };
        match failure {
            // A failed flush has still written to the page cache.
            Failure::Device if durable => {
                self.put(bytes, offset, false)?;
                self.disk.flush_failed(self.id);
                Err(self.error(libc::EIO, "write"))
            }
            Failure::Device => Err(self.error(libc::EIO, "write")),
            Failure::Full => Err(self.error(libc::ENOSPC, "write")),
            Failure::Short => {
                // File systems allocate whole blocks.
                let middle = (offset + bytes.len() as u64 / 2) / PAGE * PAGE;
                let half = middle.saturating_sub(offset) as usize;
                self.put(&bytes[..half], offset, false)?;
                Err(self.error(libc::ENOSPC, "write"))
            }
        }
    }

    fn resize(&self, length: u64) -> Result<()> {
        let mut done = Ok(());
        let operation = Operation::SetLength { file: self.id, length };
        self.disk.apply_with(operation, || done = fs::ftruncate(&self.descriptor, length));
        done.map_err(|e| Error::from_io(e.into(), "set the length of", &self.path))
    }

    fn lock_call(
        &self,
        command: libc::c_int,
        kind: libc::c_int,
        offset: u64,
        length: u64,
    ) -> std::io::Result<libc::flock> {
        let mut lock = libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: offset as libc::off_t,
            l_len: length as libc::off_t,
            l_pid: 0,
        };
        // SAFETY: the descriptor is open for as long as `self` lives and `lock` is a valid `flock`
        // that the call reads and, for a query, writes.
        let result = unsafe { libc::fcntl(self.descriptor.as_raw_fd(), command, &mut lock) };
        if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(lock) }
    }
}

impl File for SimulatedFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.disk.enter_or_fail(false, "read", &self.path)?;
        let mut done = 0;
        while done < buffer.len() {
            let at = offset + done as u64;
            match rustix::io::pread(&self.descriptor, &mut buffer[done..], at) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) => return Err(Error::from_io(e.into(), "read", &self.path)),
            }
        }
        Ok(done)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.write(bytes, offset, false)
    }

    fn write_at_durable(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.write(bytes, offset, true)
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        self.disk.enter_or_fail(true, "extend", &self.path)?;
        if self.disk.is_reserved(self.id, offset, length) {
            return Ok(());
        }
        self.disk.check_free_blocks("extend", &self.path)?;
        let longer = offset + length > self.disk.length(self.id);
        let mut done = Ok(());
        self.disk.apply_with(Operation::Reserve { file: self.id, offset, length }, || {
            if longer {
                done = fs::ftruncate(&self.descriptor, offset + length);
            }
        });
        done.map_err(|e| Error::from_io(e.into(), "extend", &self.path))
    }

    fn punch_hole(&self, offset: u64, length: u64) -> Result<bool> {
        self.disk.enter_or_fail(false, "punch a hole in", &self.path)?;
        // On the disk, a hole is a write of zeros: until a flush, each sector may have them or not.
        self.put(&vec![0; length as usize], offset, false)?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let punched = fs::fallocate(&self.descriptor, flags, offset, length);
        punched.map_err(|e| Error::from_io(e.into(), "punch a hole in", &self.path))?;
        self.disk.apply(Operation::FreeSpace { file: self.id, offset, length });
        Ok(true)
    }

    fn set_length(&self, length: u64) -> Result<()> {
        self.disk.enter_or_fail(false, "set the length of", &self.path)?;
        self.resize(length)
    }

    fn disk_bytes(&self) -> Result<u64> {
        Ok(self.disk.disk_bytes(self.id))
    }

    fn length(&self) -> Result<u64> {
        Ok(self.disk.length(self.id))
    }

    fn sync_data(&self) -> Result<()> {
        self.disk.flush_begins(self.id, &self.path);
        if let Err(error) = self.disk.enter_or_fail(false, "sync", &self.path) {
            self.disk.flush_failed(self.id);
            return Err(error);
        }
        self.disk.apply(Operation::Sync { file: self.id });
        Ok(())
    }

    fn advise_random(&self) -> Result<()> {
        Ok(())
    }

    fn try_lock(&self, kind: LockKind, offset: u64, length: u64) -> Result<bool> {
        let kind = match kind {
            LockKind::Shared => libc::F_RDLCK,
            LockKind::Exclusive => libc::F_WRLCK,
        };
        match self.lock_call(libc::F_OFD_SETLK, kind, offset, length) {
            Ok(_) => Ok(true),
            Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
            Err(e) if e.raw_os_error() == Some(libc::EBADF) => Err(Error::NotPermitted {
                path: self.path.clone(),
                doing: "write to",
                why: "it could be opened for reading only".to_string(),
            }),
            Err(e) => Err(Error::from_io(e, "lock", &self.path)),
        }
    }

    fn lock_holder(&self, offset: u64, length: u64) -> Result<Option<(u64, u64)>> {
        let lock = self
            .lock_call(libc::F_OFD_GETLK, libc::F_WRLCK, offset, length)
            .map_err(|e| Error::from_io(e, "query the lock of", &self.path))?;
        let free = lock.l_type == libc::F_UNLCK as libc::c_short;
        Ok((!free).then_some((lock.l_start as u64, lock.l_len as u64)))
    }

    fn unlock(&self, offset: u64, length: u64) -> Result<()> {
        self.lock_call(libc::F_OFD_SETLK, libc::F_UNLCK, offset, length)
            .map(|_| ())
            .map_err(|e| Error::from_io(e, "unlock", &self.path))
    }

    fn with_path(&self, path: &Path) -> Result<Arc<dyn File>> {
        let descriptor = self.descriptor.try_clone();
        let descriptor = descriptor.map_err(|e| Error::from_io(e, "duplicate", &self.path))?;
        let disk = Arc::clone(&self.disk);
        Ok(Arc::new(SimulatedFile::new(disk, self.id, path, descriptor, self.writable)))
    }

    fn identity(&self) -> Result<FileIdentity> {
        Ok(self.disk.identity(self.id))
    }

    fn has_a_name(&self) -> Result<bool> {
        Ok(self.disk.has_a_name(self.id))
    }

    fn copy_from(&self, _source: &dyn File, _length: u64) -> Result<bool> {
        Ok(false)
    }

    fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>> {
        Ok(next_data(&self.descriptor, offset))
    }

    fn fills_holes_when_read(&self) -> bool {
        false
    }

    fn is_direct(&self) -> bool {
        false
    }

    fn keeps_sectors_whole(&self) -> bool {
        self.disk.medium() == Medium::DISK
    }

    fn boot(&self) -> Boot {
        self.disk.boot()
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        if self.writable {
            self.disk.mark_mapped(self.id);
        }
        self.descriptor.as_fd()
    }
}
