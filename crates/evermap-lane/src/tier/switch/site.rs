//! The directory that a switched file is in, and what is at each of its names.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RenameFlags, StatxFlags, fstat, fsync, open, openat,
    readlinkat, renameat_with, stat, statx, symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::journal::Record;
use crate::tier::error::{Error, Result};
use crate::tier::identity::Identity;
use crate::tier::layout::{back_name, kept_name};
use crate::tier::slot::parent;

/// A file's directory, open: what is done in it is done there, even if it gets another name meanwhile.
#[derive(Debug)]
pub(super) struct Site {
    directory: OwnedFd,
    path: PathBuf,
    /// The file's name.
    pub(super) name: OsString,
    /// The kept original's; and the link's, before it takes the file's.
    pub(super) kept: OsString,
    /// The file's on its way back; and the link's after that.
    pub(super) back: OsString,
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
    Back,
    /// Something else, in words.
    Other(String),
}

impl Site {
    pub(super) fn open(original: &Path) -> Result<Self> {
        let path = parent(original).to_path_buf();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = open(&path, flags, Mode::empty()).map_err(Error::io("open", &path))?;
        let name = original.file_name().unwrap_or_default();
        Ok(Self {
            directory,
            kept: kept_name(name),
            back: back_name(name),
            name: name.into(),
            path,
        })
    }

    /// Whether its path still leads to this directory.
    pub(super) fn is_where_it_was(&self) -> Result<bool> {
        let opened = fstat(&self.directory).map_err(Error::io("look at", &self.path))?;
        Ok(stat(&self.path)
            .is_ok_and(|named| (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)))
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
                let back = record.returning.as_ref().and_then(|returning| returning.file);
                Ok(match back {
                    _ if record.identity.is_same_file(&identity) => At::Original(identity),
                    Some(back) if back.is_same_file(&identity) => At::Back,
                    _ => At::Other("is another file now".into()),
                })
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
