//! The directory that a switched file is in, and what is at each of its names.
//!
//! Everything is done in the directory that was opened, whatever becomes of its path: of a directory that others may write to, they could else
//! have a link to another one there.

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

/// A file's directory, open: what is done in it is done there, even if it gets another name meanwhile.
#[derive(Debug)]
pub(super) struct Site {
    directory: OwnedFd,
    path: PathBuf,
    /// The directory's number.
    pub(super) inode: u64,
    /// The file's name.
    pub(super) name: OsString,
    /// The kept original's; and the link's, before it takes the file's.
    pub(super) kept: OsString,
}

/// What is at a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum At {
    Nothing,
    /// The link to the copy.
    Link,
    /// The file as it was before it went, or written to since.
    Original(Identity),
    /// The file that was copied back.
    Back(Identity),
    /// Something else, in words.
    Other(String),
}

impl At {
    /// What the path of a file is, in words.
    pub(super) fn what(&self) -> String {
        match self {
            Self::Nothing => "is not there any more".into(),
            Self::Link => "is a link to its copy".into(),
            Self::Original(_) => "is the original again".into(),
            Self::Back(_) => "is the file that came back".into(),
            Self::Other(what) => what.clone(),
        }
    }
}

impl Site {
    pub(super) fn open(original: &Path) -> Result<Self> {
        let path = parent(original).to_path_buf();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = open(&path, flags, Mode::empty()).map_err(Error::io("open", &path))?;
        let inode = fstat(&directory).map_err(Error::io("look at", &path))?.st_ino;
        let name = original.file_name().unwrap_or_default();
        Ok(Self { directory, inode, kept: kept_name(name), name: name.into(), path })
    }

    /// Whether its path still leads to this directory.
    pub(super) fn is_where_it_was(&self) -> Result<bool> {
        let opened = fstat(&self.directory).map_err(Error::io("look at", &self.path))?;
        Ok(stat(&self.path)
            .is_ok_and(|named| (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)))
    }

    /// Whether it is this open file that has a name here. Opens nothing.
    pub(super) fn has(&self, name: &OsStr, file: &OwnedFd) -> Result<bool> {
        let failed = || Error::io("look at", self.path_of(name));
        let opened = fstat(file).map_err(failed())?;
        match statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(named) => Ok((named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(failed()(errno)),
        }
    }

    /// What is at a name. Opens a file that is there: not while there is a lease of ours on it.
    pub(super) fn at(&self, name: &OsStr, record: &Record) -> Result<At> {
        let looked =
            statx(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS);
        let found = match looked {
            Ok(found) => found,
            Err(Errno::NOENT) => return Ok(At::Nothing),
            Err(errno) => return Err(Error::io("look at", self.path_of(name))(errno)),
        };
        match FileType::from_raw_mode(found.stx_mode.into()) {
            FileType::Symlink => self.link_at(name, record),
            FileType::RegularFile => {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
                // Without its generation a file is still known by its number.
                let opened = openat(&self.directory, name, flags, Mode::empty());
                let identity = opened
                    .and_then(|file| Identity::of(file.as_fd()))
                    .unwrap_or_else(|_| Identity::of_stat(&found, None));
                Ok(which(identity, record))
            }
            FileType::Directory => Ok(At::Other("is a directory now".into())),
            _ => Ok(At::Other("is no file now".into())),
        }
    }

    fn link_at(&self, name: &OsStr, record: &Record) -> Result<At> {
        let target = readlinkat(&self.directory, name, Vec::new())
            .map_err(Error::io("read the link", self.path_of(name)))?;
        let target = OsStr::from_bytes(target.as_bytes());
        Ok(match target == record.copy.as_os_str() {
            true => At::Link,
            false => At::Other(format!("is a link to {} now", target.display())),
        })
    }

    /// Where a name of this directory is.
    pub(super) fn path_of(&self, name: &OsStr) -> PathBuf {
        self.path.join(name)
    }

    /// The same for those who take paths only: it leads to this directory, whatever has its path by then.
    pub(super) fn path_of_open(&self, name: &OsStr) -> PathBuf {
        let open = self.open_path();
        if open.exists() { open.join(name) } else { self.path_of(name) }
    }

    /// An error of those, with the path that people know.
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

    /// Makes a link that nothing may have the name of.
    pub(super) fn link(&self, name: &OsStr, to: &Path) -> Result<()> {
        symlinkat(to, &self.directory, name)
            .map_err(Error::io("make the link", self.path_of(name)))?;
        self.flush()
    }

    /// Has two names change places, at once.
    pub(super) fn exchange(&self, name: &OsStr, other: &OsStr) -> Result<()> {
        self.rename(name, other, RenameFlags::EXCHANGE)
    }

    /// Renames to a name that nothing may have.
    pub(super) fn rename_to_free(&self, name: &OsStr, other: &OsStr) -> Result<()> {
        self.rename(name, other, RenameFlags::NOREPLACE)
    }

    fn rename(&self, name: &OsStr, other: &OsStr, flags: RenameFlags) -> Result<()> {
        renameat_with(&self.directory, name, &self.directory, other, flags)
            .map_err(Error::io("give its new name to", self.path_of(name)))
    }

    /// It is no error if it is not there.
    pub(super) fn unlink(&self, name: &OsStr) -> Result<()> {
        match unlinkat(&self.directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(Error::io("remove", self.path_of(name))(errno)),
        }
    }

    /// Makes the names durable.
    pub(super) fn flush(&self) -> Result<()> {
        fsync(&self.directory).map_err(Error::io("flush", &self.path))
    }
}

/// Which file it is.
fn which(identity: Identity, record: &Record) -> At {
    let back = record.returning.as_ref().and_then(|returning| returning.file);
    // Where there are no generations, a file may have the number of an original that was dropped.
    let is_dropped = record.kept == KeptState::Dropped;
    match back {
        Some(back) if back.is_same_file(&identity) => At::Back(identity),
        _ if !is_dropped && record.identity.is_same_file(&identity) => At::Original(identity),
        _ => At::Other("is another file now".into()),
    }
}
