//! Target file of a copy, from creation to publication.
//!
//! The file is unnamed while it is written (`O_TMPFILE`), or has a temporary name if the file
//! system does not support that. When it is complete, it gets its own name by a link or a rename,
//! which are atomic. If dropped before, it leaves nothing behind, except for a part file that
//! `resume` can continue.

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

/// Temporary name of an unfinished file. Removed when dropped, unless taken.
#[derive(Debug)]
struct TemporaryName<'a> {
    directory: BorrowedFd<'a>,
    name: Option<CString>,
}

impl Drop for TemporaryName<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // If that fails, the file stays behind.
            let _ = fs::unlinkat(self.directory, name, AtFlags::empty());
        }
    }
}

/// An unfinished target file.
#[derive(Debug)]
pub(crate) struct Target<'a> {
    file: OwnedFd,
    directory: BorrowedFd<'a>,
    name: CString,
    path: PathBuf,
    temporary: TemporaryName<'a>,
}

impl<'a> Target<'a> {
    /// Creates a file that gets its name when it is published. `path` is for messages.
    pub(crate) fn new(directory: BorrowedFd<'a>, name: &CStr, path: &Path) -> Result<Target<'a>> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        match fs::openat(directory, c".", flags | OFlags::TMPFILE, MODE_WHILE_MADE) {
            Ok(file) => Ok(Target::of(directory, name, path, file, None)),
            // The file system lacks support, or the kernel takes the flag for `O_DIRECTORY`.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT | Errno::NOSYS) => {
                let flags = flags | OFlags::CREATE | OFlags::EXCL;
                let (file, temporary) = create_and_lock(directory, || {
                    with_temporary_name(name, |temporary| {
                        fs::openat(directory, temporary, flags, MODE_WHILE_MADE)
                    })
                })
                .map_err(Error::io("create", path))?;
                Ok(Target::of(directory, name, path, file, Some(temporary)))
            }
            Err(errno) => Err(Error::io("create", path)(errno)),
        }
    }

    /// Creates a file under its own name, which must be free, in a directory that is not visible
    /// yet.
    pub(crate) fn create(
        directory: BorrowedFd<'a>,
        name: &CStr,
        path: &Path,
    ) -> Result<Target<'a>> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL;
        let file = fs::openat(directory, name, flags, MODE_WHILE_MADE)
            .map_err(Error::io("create", path))?;
        Ok(Target::of(directory, name, path, file, Some(name.into())))
    }

    /// Wraps an existing part file, which keeps its name if it is not published.
    pub(crate) fn resumed(
        directory: BorrowedFd<'a>,
        name: &CStr,
        path: &Path,
        file: OwnedFd,
    ) -> Target<'a> {
        Target::of(directory, name, path, file, None)
    }

    fn of(
        directory: BorrowedFd<'a>,
        name: &CStr,
        path: &Path,
        file: OwnedFd,
        temporary: Option<CString>,
    ) -> Target<'a> {
        let temporary = TemporaryName { directory, name: temporary };
        Target { file, directory, name: name.into(), path: path.into(), temporary }
    }

    /// Returns the name for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the file, which keeps its own name.
    pub(crate) fn keep(mut self) -> OwnedFd {
        self.temporary.name = None;
        self.file
    }

    /// Gives the file its name, replacing an existing file. The file must be complete and flushed
    /// as required.
    pub(crate) fn publish(mut self) -> Result<()> {
        let failed = Error::io("publish", &self.path);
        let temporary = match self.temporary.name.take() {
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
        let target = Target::new(directory.as_fd(), name, Path::new("target")).unwrap();
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
        target.publish().unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"after");
        assert_eq!(names(directory.path()), ["name"]);
    }

    #[test]
    fn longest_name_has_a_temporary_name() {
        let directory = tempfile::tempdir().unwrap();
        let opened = File::open(directory.path()).unwrap();
        let name = CString::new(vec![b'n'; 255]).unwrap();
        for bytes in [b"first".as_slice(), b"second"] {
            made(&opened, &name, bytes).publish().unwrap();
        }
        assert_eq!(names(directory.path()).len(), 1);
    }
}
