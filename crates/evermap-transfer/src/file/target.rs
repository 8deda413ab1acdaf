//! Target file of a copy, from creation to publication.
//!
//! The file is unnamed while it is written (`O_TMPFILE`), or has a temporary name if the file
//! system does not support that. When it is complete, it gets its own name by a link or a rename,
//! which are atomic. If dropped before, it leaves nothing behind.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::names::with_temporary_name;
use super::unfinished::{create_and_lock, lock_unfinished};
use crate::error::{Error, Result};

/// Mode of an unfinished copy: only its owner can read it.
const MODE_WHILE_MADE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Time at which a copy gets its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PublishMode {
    /// At creation, in a directory that is not visible yet. The name must be free.
    AtCreation,
    /// On completion, replacing an existing file.
    Replace,
}

/// An unfinished target file.
#[derive(Debug)]
pub(crate) struct Target<'a> {
    file: OwnedFd,
    directory: BorrowedFd<'a>,
    name: CString,
    path: PathBuf,
    /// Current temporary name, removed unless the file is published.
    named: Option<CString>,
    published: bool,
}

impl<'a> Target<'a> {
    /// Creates the file. `path` is for messages.
    pub(crate) fn new(
        directory: BorrowedFd<'a>,
        name: &CStr,
        path: &Path,
        publish_mode: PublishMode,
    ) -> Result<Target<'a>> {
        let target = |file, named| Target {
            file,
            directory,
            name: name.into(),
            path: path.into(),
            named,
            published: false,
        };
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        if publish_mode == PublishMode::AtCreation {
            let flags = flags | OFlags::CREATE | OFlags::EXCL;
            let file = fs::openat(directory, name, flags, MODE_WHILE_MADE)
                .map_err(Error::io("create", path))?;
            return Ok(target(file, Some(name.into())));
        }
        match fs::openat(directory, c".", flags | OFlags::TMPFILE, MODE_WHILE_MADE) {
            Ok(file) => Ok(target(file, None)),
            // The file system lacks support, or the kernel takes the flag for `O_DIRECTORY`.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT | Errno::NOSYS) => {
                let flags = flags | OFlags::CREATE | OFlags::EXCL;
                let (file, named) = create_and_lock(directory, || {
                    with_temporary_name(name, |temporary| {
                        fs::openat(directory, temporary, flags, MODE_WHILE_MADE)
                    })
                })
                .map_err(Error::io("create", path))?;
                Ok(target(file, Some(named)))
            }
            Err(errno) => Err(Error::io("create", path)(errno)),
        }
    }

    /// Wraps an existing part file, which keeps its name if it is not published.
    pub(crate) fn resumed(
        directory: BorrowedFd<'a>,
        name: &CStr,
        path: &Path,
        file: OwnedFd,
    ) -> Target<'a> {
        Target {
            file,
            directory,
            name: name.into(),
            path: path.into(),
            named: None,
            published: false,
        }
    }

    /// Returns the name for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the file its name, replacing an existing file. The file must be complete and flushed
    /// as required.
    pub(crate) fn publish(mut self, publish_mode: PublishMode) -> Result<()> {
        self.published = true;
        if publish_mode == PublishMode::AtCreation {
            return Ok(());
        }
        let failed = Error::io("publish", &self.path);
        let temporary = match self.named.take() {
            Some(temporary) => temporary,
            None => match self.link(&self.name) {
                Ok(()) => return Ok(()),
                Err(Errno::EXIST) => {
                    lock_unfinished(self.file.as_fd());
                    match with_temporary_name(&self.name, |name| self.link(name)) {
                        Ok(((), temporary)) => temporary,
                        Err(errno) => return Err(failed(errno)),
                    }
                }
                Err(errno) => return Err(failed(errno)),
            },
        };
        fs::renameat(self.directory, &temporary, self.directory, &self.name).map_err(|errno| {
            let _ = fs::unlinkat(self.directory, &temporary, AtFlags::empty());
            failed(errno)
        })
    }

    /// Links the unnamed file to `name`.
    fn link(&self, name: &CStr) -> Result<(), Errno> {
        // Through `/proc`, because linking a descriptor needs a privilege on older kernels.
        let own = format!("/proc/self/fd/{}", rustix::fd::AsRawFd::as_raw_fd(&self.file));
        match fs::linkat(fs::CWD, own.as_str(), self.directory, name, AtFlags::SYMLINK_FOLLOW) {
            Err(Errno::NOENT | Errno::XDEV) => {
                fs::linkat(&self.file, c"", self.directory, name, AtFlags::EMPTY_PATH)
            }
            other => other,
        }
    }
}

impl AsFd for Target<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Target<'_> {
    fn drop(&mut self) {
        if let (false, Some(name)) = (self.published, &self.named) {
            // If that fails, the file stays behind.
            let _ = fs::unlinkat(self.directory, name, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs::File;
    use std::io::Write;

    fn names(directory: &Path) -> Vec<std::ffi::OsString> {
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }

    fn made<'a>(directory: &'a File, name: &CStr, bytes: &[u8]) -> Target<'a> {
        let target =
            Target::new(directory.as_fd(), name, Path::new("target"), PublishMode::Replace)
                .unwrap();
        File::from(target.file.try_clone().unwrap()).write_all(bytes).unwrap();
        target
    }

    #[test]
    fn dropped_target_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let opened = File::open(directory.path()).unwrap();
        drop(made(&opened, c"name", b"half"));
        assert!(names(directory.path()).is_empty());
    }

    #[test]
    fn previous_file_stays_until_the_copy_is_published() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("name");
        std::fs::write(&file, "before").unwrap();
        let opened = File::open(directory.path()).unwrap();
        let target = made(&opened, c"name", b"after");
        assert_eq!(std::fs::read(&file).unwrap(), b"before");
        target.publish(PublishMode::Replace).unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"after");
        assert_eq!(names(directory.path()), ["name"]);
    }

    #[test]
    fn longest_name_has_a_temporary_name() {
        let directory = tempfile::tempdir().unwrap();
        let opened = File::open(directory.path()).unwrap();
        let name = CString::new(vec![b'n'; 255]).unwrap();
        for bytes in [b"first".as_slice(), b"second"] {
            made(&opened, &name, bytes).publish(PublishMode::Replace).unwrap();
        }
        assert_eq!(names(directory.path()).len(), 1);
    }
}
