//! Working folders, and files that measure the disk's floor for the same bytes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::Outcome;

/// Folder that is removed on drop.
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Creates a folder at this path.
    pub fn at(path: PathBuf) -> Outcome<Folder> {
        std::fs::create_dir_all(&path)?;
        Ok(Folder { path })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            eprintln!("cannot remove {}: {error}", self.path.display());
        }
    }
}

/// Returns the working folder of this run, which is on the measured disk.
pub fn working() -> PathBuf {
    tempfile::env::temp_dir()
}

/// Returns a path as text, for an argument.
pub fn text(path: &Path) -> Outcome<&str> {
    path.to_str().ok_or_else(|| format!("{} is not UTF-8", path.display()).into())
}

/// Converts a system call's result to `io::Result`.
pub fn checked(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// File whose blocks were durably written before, the best case of a log.
pub struct PreWritten {
    file: File,
    length: u64,
    at: u64,
    /// Aligned buffer for direct I/O.
    aligned: Option<Anonymous>,
}

impl PreWritten {
    pub fn new(path: &Path, length: u64) -> Outcome<PreWritten> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
        let zeros = vec![0; 1 << 20];
        for offset in (0..length).step_by(zeros.len()) {
            std::os::unix::fs::FileExt::write_all_at(&file, &zeros, offset)?;
        }
        file.sync_all()?;
        Ok(PreWritten { file, length, at: 0, aligned: None })
    }

    /// Like [`new`](Self::new), but writes with direct I/O. Lengths must be multiples of 512.
    pub fn new_direct(path: &Path, length: u64) -> Outcome<PreWritten> {
        let mut written = PreWritten::new(path, length)?;
        let flags = libc::O_DIRECT | libc::O_DSYNC;
        written.file = OpenOptions::new().write(true).custom_flags(flags).open(path)?;
        written.aligned = Some(Anonymous::new(length as usize, true)?);
        Ok(written)
    }

    /// Writes the bytes durably after the last ones, or at the start if the file is full. With
    /// `O_DIRECT` this includes the copy to aligned memory, which is cheap compared with the write.
    pub fn append_durable(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.at + bytes.len() as u64 > self.length {
            self.at = 0;
        }
        let bytes = match &mut self.aligned {
            Some(memory) => memory.copy(bytes),
            None => bytes,
        };
        let mut done = 0;
        while done < bytes.len() {
            let vector = libc::iovec {
                iov_base: bytes[done..].as_ptr().cast_mut().cast(),
                iov_len: bytes.len() - done,
            };
            let (fd, offset) = (self.file.as_raw_fd(), (self.at as usize + done) as i64);
            // SAFETY: the vector describes bytes that live during the call, which only reads them.
            let wrote = unsafe { libc::pwritev2(fd, &vector, 1, offset, libc::RWF_DSYNC) };
            done += checked(wrote)?;
        }
        self.at += bytes.len() as u64;
        Ok(())
    }
}

/// Returns the allocated bytes of a file, or of all files of a folder.
pub fn disk_bytes(path: &Path) -> io::Result<u64> {
    let about = path.symlink_metadata()?;
    let mut bytes = about.blocks() * 512;
    if about.is_dir() {
        for entry in std::fs::read_dir(path)? {
            bytes += disk_bytes(&entry?.path())?;
        }
    }
    Ok(bytes)
}

/// Syncs all files, then uses this much memory and frees it. On a virtual machine, memory that was
/// free for a while costs a fault in the host; this lets all ways begin with memory that the host
/// provides.
pub fn warm(bytes: usize) -> Outcome {
    // SAFETY: `sync` takes no arguments. It keeps pending writes out of the next measurement.
    unsafe { libc::sync() };
    Anonymous::new(bytes, true)?;
    Ok(())
}

/// Anonymous memory with every page touched.
pub struct Anonymous {
    start: *mut u64,
    bytes: usize,
}

impl Anonymous {
    /// Maps the memory, with huge pages if the kernel has them, or without.
    pub fn new(bytes: usize, huge: bool) -> Outcome<Anonymous> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: creates a new mapping at an address that the kernel chooses.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error().into());
        }
        let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        // SAFETY: the range belongs to this value, and the advice changes no contents. A kernel
        // without huge pages returns an error, which is harmless.
        unsafe { libc::madvise(start, bytes, advice) };
        let mut memory = Anonymous { start: start.cast(), bytes };
        memory.words().fill(1);
        Ok(memory)
    }

    pub fn words(&mut self) -> &mut [u64] {
        // SAFETY: the range is mapped and writable, and belongs to this value.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes / 8) }
    }

    fn copy(&mut self, bytes: &[u8]) -> &[u8] {
        assert!(bytes.len() <= self.bytes);
        // SAFETY: the range is mapped, writable and long enough, and belongs to this value.
        unsafe {
            let place = self.start.cast::<u8>();
            place.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            std::slice::from_raw_parts(place, bytes.len())
        }
    }
}

impl Drop for Anonymous {
    fn drop(&mut self) {
        // SAFETY: this value mapped the range, and no reference to it remains.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}
