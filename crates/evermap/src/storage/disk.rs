//! The real disk: [`Storage`] over Linux system calls. Each operation emits a `tracing` event at
//! trace level.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{self, AtFlags, IFlags, Mode, OFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use tracing::trace;

use super::anchor::Anchor;
use super::dax::DaxFile;
use super::file::{DiskFile, refuse_change};
use super::{File, FileIdentity, FileSystem, OpenMode, Storage};
use crate::error::{Error, Result};

/// Maximum number of attempts to empty a directory in which other processes create files.
const REMOVALS_MAX: usize = 10;

/// The kernel's file systems.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    /// The directory that was [entered](Storage::enter).
    anchor: Option<Anchor>,
}

impl Disk {
    /// Returns the directory and the name to look a path up.
    fn at<'a>(&'a self, path: &'a Path) -> (BorrowedFd<'a>, &'a Path) {
        self.anchor.as_ref().map_or((fs::CWD, path), |anchor| anchor.resolve(path))
    }

    fn open_directory(&self, path: &Path) -> Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let (at, name) = self.at(path);
        fs::openat(at, name, flags, Mode::empty())
            .map_err(|e| Error::from_io(e.into(), "open", path))
    }
}

impl Disk {
    fn open_descriptor(&self, path: &Path, mode: OpenMode) -> Result<OwnedFd> {
        refuse_change(path)?;
        trace!(path = %path.display(), ?mode, "open");
        let flags = match mode {
            OpenMode::Read => OFlags::RDONLY,
            OpenMode::ReadWrite => OFlags::RDWR,
            OpenMode::CreateNew => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
            OpenMode::OpenOrCreate => OFlags::RDWR | OFlags::CREATE,
        };
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let (at, name) = self.at(path);
        let opened = fs::openat(at, name, flags, Mode::RUSR | Mode::WUSR);
        opened.map_err(|e| match e {
            Errno::LOOP => foreign(path, "a symbolic link, which is not followed"),
            Errno::ISDIR => foreign(path, "a directory"),
            _ => Error::from_io(e.into(), doing(mode), path),
        })
    }
}

fn doing(mode: OpenMode) -> &'static str {
    if mode == OpenMode::CreateNew { "create" } else { "open" }
}

fn foreign(path: &Path, found: &str) -> Error {
    Error::Foreign { path: path.to_path_buf(), found: found.to_string() }
}

impl Storage for Disk {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        let descriptor = self.open_descriptor(path, mode)?;
        let found =
            Opened::of(&descriptor).map_err(|e| Error::from_io(e.into(), doing(mode), path))?;
        if !found.kind.is_file() {
            return Err(foreign(path, "not a regular file"));
        }
        if mode == OpenMode::CreateNew {
            write_in_place(&descriptor);
        }
        let file = DiskFile::new(descriptor, path, Some((found.identity, found.length)));
        Ok(if found.is_direct { Arc::new(DaxFile::new(file)) } else { Arc::new(file) })
    }

    fn open_any_type(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        let descriptor = self.open_descriptor(path, mode)?;
        Ok(Arc::new(DiskFile::new(descriptor, path, None)))
    }

    fn create_directory(&self, path: &Path) -> Result<()> {
        refuse_change(path)?;
        trace!(path = %path.display(), "create directory");
        let (at, name) = self.at(path);
        fs::mkdirat(at, name, Mode::RWXU).map_err(|e| Error::from_io(e.into(), "create", path))
    }

    fn create_directories(&self, path: &Path) -> Result<()> {
        refuse_change(path)?;
        std::fs::create_dir_all(path).map_err(|e| Error::from_io(e, "create", path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        refuse_change(from)?;
        trace!(from = %from.display(), to = %to.display(), "rename");
        let ((from_at, from_name), (to_at, to_name)) = (self.at(from), self.at(to));
        fs::renameat(from_at, from_name, to_at, to_name)
            .map_err(|e| Error::from_io(e.into(), "rename", from))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        refuse_change(path)?;
        trace!(path = %path.display(), "remove");
        let (at, name) = self.at(path);
        fs::unlinkat(at, name, AtFlags::empty())
            .map_err(|e| Error::from_io(e.into(), "remove", path))
    }

    fn list(&self, path: &Path) -> Result<Vec<String>> {
        trace!(path = %path.display(), "list");
        let failed = |e: Errno| Error::from_io(e.into(), "list", path);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let (at, name) = self.at(path);
        let directory = fs::openat(at, name, flags, Mode::empty()).map_err(failed)?;
        let mut names = Vec::new();
        for entry in fs::Dir::new(directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy();
            if name != "." && name != ".." {
                names.push(name.into_owned());
            }
        }
        Ok(names)
    }

    fn sync_directory(&self, path: &Path) -> Result<()> {
        trace!(path = %path.display(), "sync directory");
        let directory = self.open_directory(path)?;
        fs::fsync(&directory).map_err(|e| Error::from_io(e.into(), "sync directory", path))
    }

    fn exchange(&self, one: &Path, other: &Path) -> Result<bool> {
        refuse_change(one)?;
        trace!(one = %one.display(), other = %other.display(), "exchange");
        let ((one_at, one_name), (other_at, other_name)) = (self.at(one), self.at(other));
        let flags = fs::RenameFlags::EXCHANGE;
        match fs::renameat_with(one_at, one_name, other_at, other_name, flags) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => Ok(false),
            Err(e) => Err(Error::from_io(e.into(), "exchange", one)),
        }
    }

    fn remove_all(&self, path: &Path) -> Result<()> {
        refuse_change(path)?;
        trace!(path = %path.display(), "remove all");
        for _ in 1..REMOVALS_MAX {
            match std::fs::remove_dir_all(path) {
                // Another process has created a file in it since.
                Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => {}
                removed => return removed.map_err(|e| Error::from_io(e, "remove", path)),
            }
        }
        std::fs::remove_dir_all(path).map_err(|e| Error::from_io(e, "remove", path))
    }

    fn file_system(&self, path: &Path) -> Result<Box<dyn FileSystem>> {
        let directory = self.open_directory(path)?;
        Ok(Box::new(DiskFileSystem { directory, path: path.to_path_buf() }))
    }

    fn directory_identity(&self, path: &Path) -> Result<FileIdentity> {
        let (at, name) = self.at(path);
        let stat = fs::statat(at, name, AtFlags::empty())
            .map_err(|e| Error::from_io(e.into(), "look at", path))?;
        if !fs::FileType::from_raw_mode(stat.st_mode).is_dir() {
            return Err(Error::Io {
                path: path.to_path_buf(),
                doing: "look into",
                source: io::Error::from_raw_os_error(libc::ENOTDIR),
            });
        }
        Ok(FileIdentity { device: stat.st_dev, inode: stat.st_ino })
    }

    fn file_identity(&self, path: &Path) -> Result<FileIdentity> {
        let (at, name) = self.at(path);
        let stat = fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|e| Error::from_io(e.into(), "look at", path))?;
        Ok(FileIdentity { device: stat.st_dev, inode: stat.st_ino })
    }

    fn resolve(&self, path: &Path) -> Result<PathBuf> {
        std::fs::canonicalize(path).map_err(|e| Error::from_io(e, "look up", path))
    }

    fn is_mount_point(&self, path: &Path) -> bool {
        let (at, name) = self.at(path);
        let found = fs::statx(at, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty());
        found.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
    }

    fn enter(&self, path: &Path) -> Result<Option<Arc<dyn Storage>>> {
        trace!(path = %path.display(), "enter");
        let (at, name) = self.at(path);
        let anchor = Anchor::open(at, name, path)?;
        Ok(Some(Arc::new(Disk { anchor: Some(anchor) })))
    }

    fn state_directory(&self) -> Option<PathBuf> {
        super::user::state_directory()
    }
}

/// A file system, represented by a directory on it.
#[derive(Debug)]
struct DiskFileSystem {
    directory: OwnedFd,
    path: PathBuf,
}

impl FileSystem for DiskFileSystem {
    fn sync(&self) -> Result<()> {
        trace!(path = %self.path.display(), "sync file system");
        fs::syncfs(&self.directory)
            .map_err(|e| Error::from_io(e.into(), "sync the file system of", &self.path))
    }
}

/// The properties of an open file, read with one call.
struct Opened {
    kind: fs::FileType,
    /// The pages are storage themselves (DAX).
    is_direct: bool,
    identity: FileIdentity,
    length: u64,
}

impl Opened {
    fn of(descriptor: &OwnedFd) -> rustix::io::Result<Opened> {
        let wanted = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::SIZE;
        match fs::statx(descriptor, "", AtFlags::EMPTY_PATH, wanted) {
            Ok(found) => Ok(Opened {
                kind: fs::FileType::from_raw_mode(found.stx_mode.into()),
                is_direct: found.stx_attributes.contains(StatxAttributes::DAX),
                identity: FileIdentity {
                    device: fs::makedev(found.stx_dev_major, found.stx_dev_minor),
                    inode: found.stx_ino,
                },
                length: found.stx_size,
            }),
            // Some sandboxes forbid it as if the kernel had no such call.
            Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {
                let found = fs::fstat(descriptor)?;
                Ok(Opened {
                    kind: fs::FileType::from_raw_mode(found.st_mode),
                    is_direct: false,
                    identity: FileIdentity { device: found.st_dev, inode: found.st_ino },
                    length: found.st_size as u64,
                })
            }
            Err(e) => Err(e),
        }
    }
}

/// Turns off copy-on-write for a new, empty file on btrfs. With it, a commit of one page would
/// write 148 KiB, and a full disk could not be detected before the commit point. This only affects
/// cost, not safety, so a file system that refuses is not an error.
fn write_in_place(descriptor: &OwnedFd) {
    const BTRFS: u64 = 0x9123_683e;
    if fs::fstatfs(descriptor).is_ok_and(|found| found.f_type as u64 == BTRFS) {
        let set = fs::ioctl_getflags(descriptor)
            .and_then(|flags| fs::ioctl_setflags(descriptor, flags | IFlags::NOCOW));
        if let Err(error) = set {
            trace!(%error, "no writing in place");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_files_on_btrfs_are_not_copied_on_write() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let file = Disk::default().open(&path, OpenMode::CreateNew).unwrap();
        file.write_at(b"contents", 0).unwrap();
        let flags = fs::ioctl_getflags(file.descriptor());
        if fs::fstatfs(file.descriptor()).unwrap().f_type != 0x9123_683e {
            eprintln!("SKIPPED: the temporary directory is not on btrfs");
            assert!(flags.is_err() || !flags.unwrap().contains(IFlags::NOCOW));
            return;
        }
        assert!(flags.unwrap().contains(IFlags::NOCOW));
        // An existing file keeps its flags.
        let old = directory.path().join("old");
        std::fs::write(&old, b"contents").unwrap();
        let old = Disk::default().open(&old, OpenMode::ReadWrite).unwrap();
        assert!(!fs::ioctl_getflags(old.descriptor()).unwrap().contains(IFlags::NOCOW));
    }
}
