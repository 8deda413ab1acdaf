//! Folders for what is measured, and files as floors: what the disk takes for the same bytes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use crate::Outcome;

/// A folder that goes away with this value.
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// A new folder in `EVERMAP_BENCH_DIR`, or in the folder for temporary files.
    pub fn new(name: &str) -> Outcome<Folder> {
        let path = parent().join(format!("evermap-bench-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Folder { path })
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            eprintln!("{} is left behind: {error}", self.path.display());
        }
    }
}

/// Where the folders are made.
pub fn parent() -> PathBuf {
    std::env::var_os("EVERMAP_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from)
}

/// A path as an argument.
pub fn text(path: &Path) -> Outcome<&str> {
    path.to_str().ok_or_else(|| format!("{} is not UTF-8", path.display()).into())
}

/// Gives a system call's result as Rust does.
pub fn checked(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// A file whose blocks were written before, durably: what a log can be at its best.
pub struct PreWritten {
    file: File,
    length: u64,
    at: u64,
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
        Ok(PreWritten { file, length, at: 0 })
    }

    /// Writes bytes behind the last ones, or at the start when the file is full, durably.
    pub fn append_durable(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.at + bytes.len() as u64 > self.length {
            self.at = 0;
        }
        let mut done = 0;
        while done < bytes.len() {
            let vector = libc::iovec {
                iov_base: bytes[done..].as_ptr().cast_mut().cast(),
                iov_len: bytes.len() - done,
            };
            let (fd, offset) = (self.file.as_raw_fd(), (self.at as usize + done) as i64);
            // SAFETY: the vector describes bytes that live and are only read during the call.
            let wrote = unsafe { libc::pwritev2(fd, &vector, 1, offset, libc::RWF_DSYNC) };
            done += checked(wrote)?;
        }
        self.at += bytes.len() as u64;
        Ok(())
    }
}
