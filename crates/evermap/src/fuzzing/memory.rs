//! Files in memory, for parsing without a disk: they can be read, written and measured, up to a
//! maximum length.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::error::{Error, Result};
use crate::storage::{Boot, File, FileIdentity, LockKind};

/// Maximum length of a file. Longer files fail with a full disk.
const LENGTH_MAX: u64 = 1 << 24;

/// A file in memory.
#[derive(Debug)]
pub(crate) struct MemoryFile {
    path: PathBuf,
    bytes: Mutex<Vec<u8>>,
    /// Length of the file. It reads as zeros after the last byte in memory.
    length: u64,
    boot: Boot,
}

impl MemoryFile {
    /// Creates a file with these bytes, followed by a hole up to `length`.
    pub(super) fn new(name: &str, bytes: &[u8], length: u64) -> Arc<MemoryFile> {
        let bytes = Mutex::new(bytes.to_vec());
        Arc::new(MemoryFile { path: PathBuf::from(name), bytes, length, boot: Boot::default() })
    }

    /// Creates a file with these bytes that was written in the given boot.
    #[cfg(test)]
    pub(crate) fn of_run(name: &str, bytes: &[u8], boot: Boot) -> Arc<MemoryFile> {
        let bytes = Mutex::new(bytes.to_vec());
        Arc::new(MemoryFile { path: PathBuf::from(name), bytes, length: 0, boot })
    }

    /// Replaces bytes and returns the old ones.
    #[cfg(test)]
    pub(crate) fn replace(&self, offset: u64, bytes: &[u8]) -> Vec<u8> {
        let (start, end) = (offset as usize, offset as usize + bytes.len());
        let mut held = self.lock();
        let before = held[start..end].to_vec();
        held[start..end].copy_from_slice(bytes);
        before
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn full(&self, needed_bytes: u64) -> Error {
        Error::DiskFull { path: self.path.clone(), doing: "write", needed_bytes }
    }
}

impl File for MemoryFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let bytes = self.lock();
        let length = self.length.max(bytes.len() as u64);
        let got = length.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let buffer = &mut buffer[..got];
        buffer.fill(0);
        let held = bytes.get(offset.min(bytes.len() as u64) as usize..).unwrap_or_default();
        let held = &held[..held.len().min(got)];
        buffer[..held.len()].copy_from_slice(held);
        Ok(got)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= LENGTH_MAX);
        let Some(end) = end else { return Err(self.full(offset)) };
        let mut held = self.lock();
        let length = held.len().max(end as usize);
        held.resize(length, 0);
        held[offset as usize..end as usize].copy_from_slice(bytes);
        Ok(())
    }

    fn write_at_durable(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.write_at(bytes, offset)
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        match offset.checked_add(length) {
            Some(end) if end <= LENGTH_MAX => {
                let mut held = self.lock();
                let length = held.len().max(end as usize);
                held.resize(length, 0);
                Ok(())
            }
            _ => Err(self.full(length)),
        }
    }

    fn punch_hole(&self, _offset: u64, _length: u64) -> Result<bool> {
        Ok(false)
    }

    fn disk_bytes(&self) -> Result<u64> {
        self.length()
    }

    fn set_length(&self, length: u64) -> Result<()> {
        if length > LENGTH_MAX {
            return Err(self.full(length));
        }
        self.lock().resize(length as usize, 0);
        Ok(())
    }

    fn length(&self) -> Result<u64> {
        Ok(self.length.max(self.lock().len() as u64))
    }

    fn sync_data(&self) -> Result<()> {
        Ok(())
    }

    fn advise_random(&self) -> Result<()> {
        Ok(())
    }

    fn try_lock(&self, _kind: LockKind, _offset: u64, _length: u64) -> Result<bool> {
        Ok(true)
    }

    fn lock_holder(&self, _offset: u64, _length: u64) -> Result<Option<(u64, u64)>> {
        Ok(None)
    }

    fn unlock(&self, _offset: u64, _length: u64) -> Result<()> {
        Ok(())
    }

    fn identity(&self) -> Result<FileIdentity> {
        Ok(FileIdentity { device: 0, inode: 0 })
    }

    fn has_a_name(&self) -> Result<bool> {
        Ok(true)
    }

    fn copy_from(&self, _source: &dyn File, _length: u64) -> Result<bool> {
        Ok(false)
    }

    fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>> {
        let length = self.length()?;
        Ok((offset < length).then_some((offset, length)))
    }

    fn with_path(&self, path: &Path) -> Result<Arc<dyn File>> {
        let bytes = Mutex::new(self.lock().clone());
        Ok(Arc::new(MemoryFile {
            path: path.to_path_buf(),
            bytes,
            length: self.length,
            boot: self.boot,
        }))
    }

    fn boot(&self) -> Boot {
        self.boot
    }

    fn is_direct(&self) -> bool {
        false
    }

    /// Parsed files are never mapped; the descriptor leads to a file without pages.
    fn descriptor(&self) -> BorrowedFd<'_> {
        static EMPTY: OnceLock<std::io::Stdin> = OnceLock::new();
        EMPTY.get_or_init(std::io::stdin).as_fd()
    }
}
