//! Folders for what is measured, and files as floors: what the disk takes for the same bytes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::Outcome;

/// A folder that goes away with this value.
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// A new folder in `EVERMAP_BENCH_DIR`, or in the folder for temporary files.
    pub fn new(name: &str) -> Outcome<Folder> {
        Folder::at(parent().join(format!("evermap-bench-{}-{name}", std::process::id())))
    }

    /// A new folder somewhere else.
    pub fn at(path: PathBuf) -> Outcome<Folder> {
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
    /// Where bytes are copied to that go past the page cache: such memory has to be aligned.
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

    /// The same, written past the page cache. Lengths must be multiples of 512.
    pub fn new_direct(path: &Path, length: u64) -> Outcome<PreWritten> {
        let mut written = PreWritten::new(path, length)?;
        let flags = libc::O_DIRECT | libc::O_DSYNC;
        written.file = OpenOptions::new().write(true).custom_flags(flags).open(path)?;
        written.aligned = Some(Anonymous::new(length as usize, true)?);
        Ok(written)
    }

    /// Writes bytes behind the last ones, or at the start when the file is full, durably. With
    /// `O_DIRECT`, the copy to aligned memory is made here, too, and cheap beside the write.
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
            // SAFETY: the vector describes bytes that live and are only read during the call.
            let wrote = unsafe { libc::pwritev2(fd, &vector, 1, offset, libc::RWF_DSYNC) };
            done += checked(wrote)?;
        }
        self.at += bytes.len() as u64;
        Ok(())
    }
}

/// Drops a file's pages from the kernel's cache.
pub fn forget(path: &Path) -> Outcome {
    let file = File::open(path)?;
    file.sync_all()?;
    // SAFETY: the call takes no pointers.
    let result = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    match result {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error).into()),
    }
}

/// Bytes of the disk that a file or all files of a folder take.
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

/// Uses so much memory and gives it back, after everything is on the disk. Memory that was free for
/// a while costs a virtual machine a fault in its host: so all ways begin with memory that it has.
pub fn warm(bytes: usize) -> Outcome {
    // SAFETY: takes no arguments; what was left to be written is not to fall into what comes next.
    unsafe { libc::sync() };
    Anonymous::new(bytes, true)?;
    Ok(())
}

/// Memory straight from the kernel, every page of it touched.
pub struct Anonymous {
    start: *mut u64,
    bytes: usize,
}

impl Anonymous {
    /// With huge pages where the kernel has them, or certainly without.
    pub fn new(bytes: usize, huge: bool) -> Outcome<Anonymous> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error().into());
        }
        let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        // SAFETY: the range is this value's own; the advice changes no contents. A kernel without
        // huge pages refuses it, and is right.
        unsafe { libc::madvise(start, bytes, advice) };
        let mut memory = Anonymous { start: start.cast(), bytes };
        memory.words().fill(1);
        Ok(memory)
    }

    pub fn words(&mut self) -> &mut [u64] {
        // SAFETY: the range is mapped, writable and this value's own.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes / 8) }
    }

    fn copy(&mut self, bytes: &[u8]) -> &[u8] {
        assert!(bytes.len() <= self.bytes);
        // SAFETY: the range is mapped, writable, this value's own, and long enough.
        unsafe {
            let place = self.start.cast::<u8>();
            place.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            std::slice::from_raw_parts(place, bytes.len())
        }
    }
}

impl Drop for Anonymous {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by this value, and nothing refers to it any more.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}
