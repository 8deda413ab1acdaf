//! Directory of a switched file, and the files at its names.
//!
//! All operations use the open directory, whatever happens to its path. If others can write to a
//! parent directory, they could replace the path by a link to another directory.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RenameFlags, StatxFlags, fstat, fsync, open, openat,
    readlinkat, renameat_with, stat, statat, statx, symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::journal::{KeptState, Record};
use crate::tier::error::{Error, Result};
use crate::tier::identity::Identity;
use crate::tier::layout::kept_name;
use crate::tier::slot::parent;

/// Open directory of a file. Operations reach this directory even if it is renamed.
#[derive(Debug)]
pub(super) struct Site {
    directory: OwnedFd,
    path: PathBuf,
    /// Inode of the directory.
    pub(super) inode: u64,
    /// Name of the file.
    pub(super) name: OsString,
    /// Name of the kept original. The link has this name before the exchange.
    pub(super) kept: OsString,
}

/// Directory entry at a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Nothing,
    /// The link to the copy.
    Link,
    /// The original, unchanged or modified.
    Original(Identity),
    /// The file that was copied back.
    Back(Identity),
    /// Any other entry; the text describes it, starting with a verb.
    Other(String),
}

/// State of the kept original.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeptFound {
    No,
    Same,
    Modified,
    /// Another file has its name.
    Another,
}

impl Entry {
    /// Describes the entry at a file's path, starting with a verb.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Nothing => "no longer exists".into(),
            Self::Link => "is a link to its copy".into(),
            Self::Original(_) => "is the original again".into(),
            Self::Back(_) => "is the file that was taken back".into(),
            Self::Other(what) => what.clone(),
        }
    }
}

impl Site {
    pub(super) fn open(original: &Path) -> Result<Self> {
        let path = parent(original).to_path_buf();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = open(&path, flags, Mode::empty()).map_err(Error::io("open", &path))?;
        let inode = fstat(&directory).map_err(Error::io("inspect", &path))?.st_ino;
        let name = original.file_name().unwrap_or_default();
        Ok(Self { directory, inode, kept: kept_name(name), name: name.into(), path })
    }

    /// Returns true if the path still leads to this directory.
    pub(super) fn is_where_it_was(&self) -> Result<bool> {
        let opened = fstat(&self.directory).map_err(Error::io("inspect", &self.path))?;
        Ok(stat(&self.path)
            .is_ok_and(|named| (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)))
    }

    /// Returns true if `name` in this directory is the open file. Opens nothing.
    pub(super) fn has(&self, name: &OsStr, file: &OwnedFd) -> Result<bool> {
        let failed = || Error::io("inspect", self.path_of(name));
        let opened = fstat(file).map_err(failed())?;
        match statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(named) => Ok((named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(failed()(errno)),
        }
    }

    /// Returns the entry at a name. Opens a regular file, which would break a lease of our own on
    /// it.
    pub(super) fn entry(&self, name: &OsStr, record: &Record) -> Result<Entry> {
        let looked =
            statx(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS);
        let found = match looked {
            Ok(found) => found,
            Err(Errno::NOENT) => return Ok(Entry::Nothing),
            Err(errno) => return Err(Error::io("inspect", self.path_of(name))(errno)),
        };
        match FileType::from_raw_mode(found.stx_mode.into()) {
            FileType::Symlink => self.link_at(name, record),
            FileType::RegularFile => {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
                // Without its generation, a file is still identified by its inode.
                let opened = openat(&self.directory, name, flags, Mode::empty());
                let identity = opened
                    .and_then(|file| Identity::of(file.as_fd()))
                    .unwrap_or_else(|_| Identity::of_stat(&found, None));
                Ok(identify(identity, record))
            }
            FileType::Directory => Ok(Entry::Other("is a directory now".into())),
            _ => Ok(Entry::Other("is a special file now".into())),
        }
    }

    fn link_at(&self, name: &OsStr, record: &Record) -> Result<Entry> {
        let target = readlinkat(&self.directory, name, Vec::new())
            .map_err(Error::io("read the link", self.path_of(name)))?;
        let target = OsStr::from_bytes(target.as_bytes());
        Ok(match target == record.copy.as_os_str() {
            true => Entry::Link,
            false => Entry::Other(format!("is a link to {} now", target.display())),
        })
    }

    /// Returns the path of a name in this directory.
    pub(super) fn path_of(&self, name: &OsStr) -> PathBuf {
        self.path.join(name)
    }

    /// Returns a path for callers that accept paths only. It leads into this directory, whatever
    /// happens to its own path.
    pub(super) fn path_of_open(&self, name: &OsStr) -> PathBuf {
        let open = self.open_path();
        if open.exists() { open.join(name) } else { self.path_of(name) }
    }

    /// Replaces a path from [`Site::path_of_open`] in an error by the ordinary path.
    pub(super) fn with_path(&self, error: Error) -> Error {
        match error {
            Error::Io { operation, path, source } => {
                let path = match path.strip_prefix(self.open_path()) {
                    Ok(name) => self.path.join(name),
                    Err(_) => path,
                };
                Error::Io { operation, path, source }
            }
            error => error,
        }
    }

    fn open_path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.directory.as_raw_fd()).into()
    }

    /// Creates a link at a free name, durably.
    pub(super) fn link(&self, name: &OsStr, to: &Path) -> Result<()> {
        symlinkat(to, &self.directory, name)
            .map_err(Error::io("create the link", self.path_of(name)))?;
        self.flush()
    }

    /// Exchanges two names atomically.
    pub(super) fn exchange(&self, name: &OsStr, other: &OsStr) -> Result<()> {
        self.rename(name, other, RenameFlags::EXCHANGE)
    }

    /// Renames to a free name.
    pub(super) fn rename_to_free(&self, name: &OsStr, other: &OsStr) -> Result<()> {
        self.rename(name, other, RenameFlags::NOREPLACE)
    }

    fn rename(&self, name: &OsStr, other: &OsStr, flags: RenameFlags) -> Result<()> {
        renameat_with(&self.directory, name, &self.directory, other, flags)
            .map_err(Error::io("rename", self.path_of(name)))
    }

    /// Removes a name. Succeeds if it does not exist.
    pub(super) fn unlink(&self, name: &OsStr) -> Result<()> {
        match unlinkat(&self.directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(Error::io("remove", self.path_of(name))(errno)),
        }
    }

    /// Flushes the names to disk.
    pub(super) fn flush(&self) -> Result<()> {
        fsync(&self.directory).map_err(Error::io("flush", &self.path))
    }
}

/// Identifies a regular file.
fn identify(identity: Identity, record: &Record) -> Entry {
    let back = record.returning.as_ref().and_then(|returning| returning.file);
    // Without generations, a new file may reuse the inode of a dropped original.
    let is_dropped = record.kept == KeptState::Dropped;
    match back {
        Some(back) if back.is_same_file(&identity) => Entry::Back(identity),
        _ if !is_dropped && record.identity.is_same_file(&identity) => Entry::Original(identity),
        _ => Entry::Other("is another file now".into()),
    }
}

/// Inspects the kept original.
pub(super) fn kept_of(site: &Site, record: &Record) -> Result<KeptFound> {
    Ok(match site.entry(&site.kept, record)? {
        Entry::Original(now) => match record.identity.contents_differ(&now) {
            None => KeptFound::Same,
            Some(_) => KeptFound::Modified,
        },
        Entry::Nothing | Entry::Link => KeptFound::No,
        Entry::Back(_) | Entry::Other(_) => KeptFound::Another,
    })
}
