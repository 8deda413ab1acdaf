//! Targets of a receiver: a directory, a file, an open stream, or nothing.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, AtFlags, FileType, Mode, OFlags, Timespec, Timestamps};
use rustix::io::{Errno, retry_on_intr};

use super::names;
use super::space::SpaceLimit;
use crate::error::{Error, Result};
use crate::file::attributes::umask;
use crate::file::{self, c_name, parent_of};
use crate::net::wire::{Manifest, Timestamp, name_of};
use crate::policy::Durability;
use crate::report::NotKept;
use crate::sys::write_signals::WriteSignalsBlocked;

/// The target as given.
#[derive(Debug)]
pub(super) enum Target {
    /// A directory, in which the sender's file name is used.
    Directory(Directory),
    /// A file, regardless of the sender's file name.
    File(Directory, OsString),
    /// An existing object that is not a regular file, such as a terminal, a FIFO, `/dev/null`. It
    /// is written into.
    Stream(PathBuf),
    /// Data is discarded.
    Nothing,
}

/// An open directory. If it is renamed, files are still placed in it.
#[derive(Debug)]
pub(super) struct Directory {
    opened: OwnedFd,
    path: PathBuf,
}

impl Directory {
    fn open(path: &Path) -> Result<Directory> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))
            .map_err(Error::io("receive into", path))?;
        Ok(Directory { opened, path: path.into() })
    }

    /// Flushes its names. If the directory is not readable, flushes the whole file system through
    /// `file` in it.
    fn flush(&self, file: BorrowedFd<'_>) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let flushed =
            match retry_on_intr(|| rustix::fs::openat(&self.opened, ".", flags, Mode::empty())) {
                Ok(readable) => retry_on_intr(|| rustix::fs::fsync(&readable)),
                Err(_) => retry_on_intr(|| rustix::fs::syncfs(file)),
            };
        flushed.map_err(Error::io("flush the directory", &self.path))
    }

    /// Creates an unpublished file to be called `name`. Fails if a directory has that name.
    fn file(&self, name: &OsStr) -> Result<file::Target<'_>> {
        let path = self.path.join(name);
        let in_the_way = rustix::fs::statat(&self.opened, name, AtFlags::SYMLINK_NOFOLLOW);
        if in_the_way
            .is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Directory)
        {
            return Err(Error::io("replace", path)(Errno::ISDIR));
        }
        file::Target::new(self.opened.as_fd(), &c_name(name)?, &path)
    }
}

impl Target {
    /// Resolves `path`. Links are followed; a dangling link is replaced.
    pub(super) fn of(path: &Path) -> Result<Target> {
        let failed = Error::io("read the attributes of", path);
        let whole = match fs::metadata(path) {
            Ok(found) if found.is_dir() => return Directory::open(path).map(Target::Directory),
            Ok(found) if !found.is_file() => return Ok(Target::Stream(path.into())),
            Ok(_) => fs::canonicalize(path).map_err(failed)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => path.into(),
            Err(error) => return Err(failed(error)),
        };
        let is_directory = path.as_os_str().as_bytes().ends_with(b"/");
        let (Some(name), false) = (whole.file_name(), is_directory) else {
            return Err(Error::io("receive into", path)(io::Error::from(io::ErrorKind::NotFound)));
        };
        Ok(Target::File(Directory::open(parent_of(&whole))?, name.into()))
    }

    /// Returns why the sender's file name is refused, or `None` if it is allowed or not used.
    pub(super) fn refusal_reason(&self, name: &[u8], dot_files: bool) -> Option<String> {
        match self {
            Target::Directory(_) => names::refusal_reason(name, dot_files),
            Target::File(..) | Target::Stream(_) | Target::Nothing => None,
        }
    }

    /// Creates the file of a manifest and sets its length. Takes no space yet.
    ///
    /// # Errors
    /// [`Error::NoSpace`] or [`Error::TooLarge`] if more is announced than is free or than
    /// `transfer_bytes_max` allows.
    pub(super) fn prepare(
        &self,
        manifest: &Manifest,
        transfer_bytes_max: Option<u64>,
    ) -> Result<Option<file::Target<'_>>> {
        let file = match self {
            Target::Nothing => return Ok(None),
            Target::Directory(directory) => directory.file(name_of(&manifest.name))?,
            Target::File(directory, name) => directory.file(name)?,
            Target::Stream(path) => {
                return Err(Error::Usage(format!(
                    "{} is not a regular file: choose a file or a directory, or receive raw bytes",
                    path.display()
                )));
            }
        };
        let space = SpaceLimit::of(&file, file.path(), transfer_bytes_max)?;
        space.check(file.path(), manifest.data_bytes())?;
        let _no_signal = WriteSignalsBlocked::new();
        retry_on_intr(|| rustix::fs::ftruncate(&file, manifest.size_bytes))
            .map_err(space_error(&file, manifest))?;
        Ok(Some(file))
    }

    /// Publishes a file of this target and flushes it as required. Returns its path.
    pub(super) fn publish(
        &self,
        file: file::Target<'_>,
        durability: Durability,
    ) -> Result<PathBuf> {
        let path = file.path().to_path_buf();
        let flushed = match durability {
            Durability::None => Ok(()),
            Durability::Data => retry_on_intr(|| rustix::fs::fdatasync(&file)),
            Durability::Full => retry_on_intr(|| rustix::fs::fsync(&file)),
        };
        flushed.map_err(Error::io("flush", &path))?;
        let kept = match (durability, self) {
            (Durability::Full, Target::Directory(directory) | Target::File(directory, _)) => {
                let file = rustix::io::fcntl_dupfd_cloexec(&file, 0);
                Some((directory, file.map_err(Error::io("flush", &path))?))
            }
            _ => None,
        };
        file.publish()?;
        if let Some((directory, file)) = kept {
            directory.flush(file.as_fd())?;
        }
        Ok(path)
    }

    /// Creates the file of a raw transfer.
    pub(super) fn prepare_raw(&self) -> Result<Option<file::Target<'_>>> {
        match self {
            Target::Nothing | Target::Stream(_) => Ok(None),
            Target::File(directory, name) => directory.file(name).map(Some),
            Target::Directory(directory) => Err(Error::Usage(format!(
                "{} is a directory, but raw bytes have no name: choose a file in it",
                directory.path.display()
            ))),
        }
    }
}

fn space_error(file: &file::Target<'_>, manifest: &Manifest) -> impl FnOnce(Errno) -> Error {
    let (path, needed_bytes) = (file.path().to_path_buf(), manifest.data_bytes());
    move |errno| match errno {
        Errno::NOSPC | Errno::DQUOT => Error::NoSpace { path, needed_bytes },
        errno => Error::io("set the length of", path)(errno),
    }
}

/// Sets permissions and times from a manifest. Returns the attributes that could not be set. Only
/// the nine lowest mode bits count: an untrusted sender must not set setuid, setgid or sticky bits.
pub(super) fn set_attributes(file: &file::Target<'_>, manifest: &Manifest) -> Result<Vec<NotKept>> {
    let mut not_kept = Vec::new();
    let mode = Mode::from_raw_mode(manifest.mode & 0o777);
    let times = Timestamps {
        last_access: timespec(manifest.accessed),
        last_modification: timespec(manifest.modified),
    };
    let outcomes = [
        ("mode", retry_on_intr(|| rustix::fs::fchmod(file, mode))),
        ("times", retry_on_intr(|| rustix::fs::futimens(file, &times))),
    ];
    for (what, outcome) in outcomes {
        match outcome {
            Ok(()) => {}
            Err(errno @ (Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL)) => {
                let path = file.path().to_path_buf();
                not_kept.push(NotKept { path, what: what.into(), why: errno.to_string() });
            }
            Err(errno) => return Err(Error::io("set the attributes of", file.path())(errno)),
        }
    }
    Ok(not_kept)
}

/// Sets the default permissions of a new file.
pub(super) fn set_default_mode(file: &file::Target<'_>) -> Result<()> {
    let mode = Mode::from_raw_mode(0o666 & !umask().unwrap_or(0o077));
    match retry_on_intr(|| rustix::fs::fchmod(file, mode)) {
        Ok(()) | Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        Err(errno) => Err(Error::io("set the mode of", file.path())(errno)),
    }
}

fn timespec(stamp: Timestamp) -> Timespec {
    Timespec { tv_sec: stamp.seconds, tv_nsec: stamp.nanoseconds.into() }
}

/// Flushes a file and drops it from the cache, so that the next read comes from the disk. File
/// systems in memory have no other copy.
pub(super) fn flush(file: &file::Target<'_>) -> Result<()> {
    retry_on_intr(|| rustix::fs::fdatasync(file)).map_err(Error::io("flush", file.path()))?;
    let _ = rustix::fs::fadvise(file, 0, None, Advice::DontNeed);
    Ok(())
}

/// Opens an existing stream for writing.
pub(super) fn open_stream(path: &Path) -> Result<OwnedFd> {
    let file = fs::OpenOptions::new().write(true).open(path).map_err(Error::io("open", path))?;
    Ok(file.into())
}

/// Opens `/dev/null`, for discarding where no faster way exists.
pub(super) fn open_dev_null() -> Result<OwnedFd> {
    open_stream(Path::new("/dev/null"))
}
