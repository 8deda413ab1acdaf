//! Source file of a load: its version, how it can be read, and its data extents.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use evermap_observe::{FileSystem, Span};
use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use crate::error::{Change, Error, Result};

mod contents;
mod unchangeable;

use contents::{contents, has_length};
use unchangeable::is_unchangeable;

/// File version: changes if the contents may have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) bytes: u64,
    pub(crate) modified_ns: i128,
    changed_ns: i128,
    links: u32,
}

impl Identity {
    fn of(stat: &Statx) -> Identity {
        let ns = |time: rustix::fs::StatxTimestamp| {
            i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
        };
        Identity {
            device: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
            inode: stat.stx_ino,
            bytes: stat.stx_size,
            modified_ns: ns(stat.stx_mtime),
            changed_ns: ns(stat.stx_ctime),
            links: stat.stx_nlink,
        }
    }

    /// Returns the change from this version to `now`.
    fn change(&self, now: &Identity) -> Option<Change> {
        if now.bytes < self.bytes {
            return Some(Change::Truncated);
        }
        if now.bytes > self.bytes {
            return Some(Change::Grown);
        }
        if now.modified_ns != self.modified_ns {
            return Some(Change::Rewritten);
        }
        if now.changed_ns == self.changed_ns {
            return None;
        }
        // A program can reset a file's mtime but not its ctime. A new link changes the ctime too.
        match now.links {
            0 => Some(Change::Replaced),
            links if links < self.links => Some(Change::Replaced),
            links if links > self.links => None,
            _ => Some(Change::Rewritten),
        }
    }
}

/// An open file.
#[derive(Debug)]
pub(crate) struct Source {
    path: PathBuf,
    file: File,
    /// Contents of a file whose length is unknown before reading, such as files of `/proc` and
    /// `/sys`.
    contents: Option<Vec<u8>>,
    /// Descriptor for direct reads, opened on first use.
    direct: OnceLock<Option<Direct>>,
    identity: Identity,
    file_system: FileSystem,
    /// Bytes with allocated blocks, on disk or in memory.
    allocated_bytes: u64,
    /// The file is compressed, so fewer blocks than bytes do not imply holes.
    is_packed: bool,
    /// Nothing can change the file: its file system is read-only, or the file is sealed.
    pub(crate) is_unchangeable: bool,
}

/// Descriptor that reads past the page cache.
#[derive(Debug)]
struct Direct {
    file: OwnedFd,
    /// Required alignment of offsets, lengths and addresses.
    block_bytes: u64,
}

impl Source {
    /// Opens a file by name. Opens only regular files, because opening a device can have effects,
    /// and never waits for the other end of a FIFO.
    pub(crate) fn open(path: &Path) -> Result<Source> {
        let stat = rustix::fs::statx(rustix::fs::CWD, path, AtFlags::empty(), StatxFlags::TYPE)
            .map_err(|errno| failed("open", path, errno))?;
        is_file(&stat, path)?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|errno| failed("open", path, errno))?;
        Source::new(File::from(file), path)
    }

    /// Wraps an open file. The path is for messages.
    pub(crate) fn new(file: File, path: &Path) -> Result<Source> {
        let stat = stat_of(file.as_fd()).map_err(|errno| failed("stat", path, errno))?;
        is_file(&stat, path)?;
        let file_system = FileSystem::of(file.as_fd())
            .map_err(|errno| failed("query the file system of", path, errno))?;
        let is_unchangeable = is_unchangeable(file.as_fd(), file_system, &stat);
        let mut identity = Identity::of(&stat);
        let contents = match has_length(file_system, &stat) {
            true => None,
            false => contents(&file, path)?,
        };
        if let Some(contents) = &contents {
            identity.bytes = contents.len() as u64;
        }
        Ok(Source {
            path: path.into(),
            direct: match contents {
                None => OnceLock::new(),
                Some(_) => OnceLock::from(None),
            },
            contents,
            identity,
            file_system,
            allocated_bytes: stat.stx_blocks * 512,
            is_packed: file_system.is_compressed_read_only()
                && stat.stx_attributes.contains(StatxAttributes::COMPRESSED),
            is_unchangeable,
            file,
        })
    }

    /// Returns the whole contents if they were read to find the length. Such a file is not mapped
    /// or read again.
    pub(crate) fn contents(&self) -> Option<&[u8]> {
        self.contents.as_deref()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.identity.bytes
    }

    pub(crate) fn file_system(&self) -> FileSystem {
        self.file_system
    }

    /// Returns the descriptor for reads through the page cache.
    pub(crate) fn cached(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Returns the descriptor for direct reads, if the file supports them.
    pub(crate) fn direct(&self) -> Option<BorrowedFd<'_>> {
        self.opened_direct().map(|direct| direct.file.as_fd())
    }

    /// Returns the alignment of direct reads, at least a page.
    pub(crate) fn block_bytes(&self) -> u64 {
        self.opened_direct().map_or(crate::sys::page_bytes() as u64, |direct| direct.block_bytes)
    }

    fn opened_direct(&self) -> Option<&Direct> {
        let opened = || open_direct(&self.file, &self.path, &self.identity, self.file_system);
        self.direct.get_or_init(opened).as_ref()
    }

    /// Checks that the file is still the version that was opened. Costs one system call.
    pub(crate) fn check(&self) -> Result<()> {
        if self.contents.is_some() {
            // The kernel generates these contents for each reader, so what was read stays valid.
            return Ok(());
        }
        let changed = |change| Error::Changed { path: self.path.clone(), change };
        let stat = stat_of(self.file.as_fd()).map_err(|errno| failed("stat", &self.path, errno))?;
        self.identity.change(&Identity::of(&stat)).map_or(Ok(()), |change| Err(changed(change)))
    }

    /// Returns true if all bytes have blocks, so the file has no holes.
    pub(crate) fn is_dense(&self) -> bool {
        self.allocated_bytes >= self.identity.bytes
    }

    /// Returns the data extents of a range, ascending. Costs two system calls per extent for a file
    /// with holes, otherwise none. Compressed files are not searched: on erofs, which scans all its
    /// packed data, the search takes 5 ms for 64 MiB.
    pub(crate) fn data(&self, range: Span) -> Vec<Span> {
        if self.is_dense() || self.is_packed || self.contents.is_some() {
            return vec![range];
        }
        let Ok(extents) =
            evermap_observe::extents(self.file.as_fd(), self.identity.bytes, self.allocated_bytes)
        else {
            return vec![range];
        };
        extents
            .into_iter()
            .map(|extent| Span::new(extent.begin.max(range.begin), extent.end.min(range.end)))
            .filter(|part| part.begin < part.end)
            .collect()
    }

    pub(crate) fn failed(&self, operation: &'static str, errno: Errno) -> Error {
        failed(operation, &self.path, errno)
    }
}

fn failed(operation: &'static str, path: &Path, errno: Errno) -> Error {
    Error::Io { operation, path: path.into(), source: errno.into() }
}

fn is_file(stat: &Statx, path: &Path) -> Result<()> {
    let what = match rustix::fs::FileType::from_raw_mode(stat.stx_mode.into()) {
        rustix::fs::FileType::RegularFile => return Ok(()),
        rustix::fs::FileType::Directory => "a directory",
        rustix::fs::FileType::Fifo => "a FIFO",
        rustix::fs::FileType::Socket => "a socket",
        rustix::fs::FileType::BlockDevice => "a block device",
        rustix::fs::FileType::CharacterDevice => "a character device",
        _ => "not a regular file",
    };
    Err(Error::NotAFile { path: path.into(), what })
}

fn stat_of(file: BorrowedFd<'_>) -> Result<Statx, Errno> {
    rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)
}

/// Opens the same file for direct reads.
fn open_direct(
    file: &File,
    path: &Path,
    identity: &Identity,
    file_system: FileSystem,
) -> Option<Direct> {
    let block_bytes = match evermap_observe::direct_alignment(file.as_fd()) {
        Some(alignment) => u64::from(alignment.offset_bytes)
            .max(u64::from(alignment.memory_bytes))
            .max(crate::sys::page_bytes() as u64),
        // btrfs supports direct reads without reporting it (Linux 6.18). Its blocks are pages.
        None if file_system == FileSystem::BTRFS => crate::sys::page_bytes() as u64,
        None => return None,
    };
    if !block_bytes.is_power_of_two() || block_bytes > crate::sys::HUGE_PAGE_BYTES as u64 {
        return None;
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECT | OFlags::NONBLOCK;
    let by_number = format!("/proc/self/fd/{}", file.as_raw_fd());
    let opened = rustix::fs::open(by_number, flags, Mode::empty())
        .or_else(|_| rustix::fs::open(path, flags, Mode::empty()))
        .ok()?;
    let is_same = stat_of(opened.as_fd()).is_ok_and(|other| {
        let other = Identity::of(&other);
        (identity.device, identity.inode) == (other.device, other.inode)
    });
    is_same.then_some(Direct { file: opened, block_bytes })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::Write;

    fn change_of(source: &Source) -> Option<Change> {
        match source.check() {
            Ok(()) => None,
            Err(Error::Changed { change, .. }) => Some(change),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn every_kind_of_change_is_detected() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let opened = || {
            std::fs::write(&path, [1; 5000]).unwrap();
            Source::open(&path).unwrap()
        };
        let source = opened();
        assert_eq!(change_of(&source), None);
        std::fs::hard_link(&path, directory.path().join("link")).unwrap();
        assert_eq!(change_of(&source), None, "a new link does not change the contents");
        File::options().write(true).open(&path).unwrap().set_len(4999).unwrap();
        assert_eq!(change_of(&source), Some(Change::Truncated));
        let source = opened();
        File::options().append(true).open(&path).unwrap().write_all(b"x").unwrap();
        assert_eq!(change_of(&source), Some(Change::Grown));
        let source = opened();
        std::thread::sleep(std::time::Duration::from_millis(20));
        std::fs::File::options().write(true).open(&path).unwrap().write_all(b"x").unwrap();
        assert_eq!(change_of(&source), Some(Change::Rewritten));
        std::fs::remove_file(directory.path().join("link")).unwrap();
        let source = opened();
        std::thread::sleep(std::time::Duration::from_millis(20));
        std::fs::write(directory.path().join("new"), [2; 5000]).unwrap();
        std::fs::rename(directory.path().join("new"), &path).unwrap();
        assert_eq!(change_of(&source), Some(Change::Replaced));
    }

    #[test]
    fn a_change_is_detected_after_the_mtime_is_reset() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, [1; 5000]).unwrap();
        let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
        let source = Source::open(&path).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        let file = File::options().write(true).open(&path).unwrap();
        (&file).write_all(b"x").unwrap();
        file.set_modified(modified).unwrap();
        assert_eq!(change_of(&source), Some(Change::Rewritten));
    }

    #[test]
    fn errors_name_the_kind_of_a_non_regular_file() {
        let error = Source::open(Path::new("/")).unwrap_err();
        assert!(error.to_string().contains("is a directory"), "{error}");
        let error = Source::open(Path::new("/dev/null")).unwrap_err();
        assert!(error.to_string().contains("is a character device"), "{error}");
        let error = Source::open(Path::new("/nonexistent")).unwrap_err();
        assert!(error.to_string().contains("check the name"), "{error}");
    }
}
