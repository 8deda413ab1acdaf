//! A file that is written without a name, and gets one when it is complete.
//!
//! Whatever ends the program before, nothing is left: a file without a name goes with its last descriptor. Where the file
//! system has no such files, one has a temporary name, which only a kill leaves behind.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Error, Result};

/// `.NAME.evermap-XXXXXXXX`
const SUFFIX_BYTES: usize = ".evermap-".len() + 8;
const NAME_BYTES_MAX: usize = 255;

/// Tries to find a temporary name that nobody has, among four thousand million.
const TRIES: usize = 16;

/// A new file in a directory. Dropped, it is gone.
#[derive(Debug)]
pub(super) struct Unnamed {
    directory: OwnedFd,
    file: OwnedFd,
    /// As it is to be called, for messages.
    path: PathBuf,
    name: OsString,
    temporary: Option<OsString>,
}

impl Unnamed {
    /// Makes one that is to be called `name`. Nothing that has the name is touched yet; a directory that has it is refused.
    /// `mode` is what the process's mask leaves of it.
    pub(super) fn create(directory: &Path, name: &OsStr, mode: u32) -> Result<Unnamed> {
        let path = directory.join(name);
        let open = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = again(|| rustix::fs::open(directory, open, Mode::empty()))
            .map_err(Error::io("open the directory", directory))?;
        if rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Directory)
        {
            return Err(Error::io("replace", path)(Errno::ISDIR));
        }
        let mode = Mode::from_raw_mode(mode);
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let (file, temporary) = match again(|| rustix::fs::openat(&directory, c".", flags, mode)) {
            Ok(file) => (file, None),
            // What file systems and kernels say that have no files without names.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {
                let (file, temporary) = Self::create_named(&directory, &path, name, mode)?;
                (file, Some(temporary))
            }
            Err(errno) => return Err(Error::io("make a file for", path)(errno)),
        };
        Ok(Unnamed { directory, file, path, name: name.into(), temporary })
    }

    fn create_named(
        directory: &OwnedFd,
        path: &Path,
        name: &OsStr,
        mode: Mode,
    ) -> Result<(OwnedFd, OsString)> {
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        with_temporary_name(path, name, |temporary| {
            again(|| rustix::fs::openat(directory, temporary, flags, mode))
        })
    }

    /// Its name when it will have been published.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives it its name, whatever had that before: at any time the name has the old file or the whole new one.
    pub(super) fn publish(mut self) -> Result<PathBuf> {
        let cannot = Error::io("publish", self.path.clone());
        let Some(temporary) = self.temporary.take() else {
            return self.link();
        };
        match again(|| {
            rustix::fs::renameat(&self.directory, &temporary, &self.directory, &self.name)
        }) {
            Ok(()) => Ok(self.path.clone()),
            Err(errno) => {
                self.temporary = Some(temporary);
                Err(cannot(errno))
            }
        }
    }

    fn link(&mut self) -> Result<PathBuf> {
        match self.link_as(&self.name) {
            Ok(()) => return Ok(self.path.clone()),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(Error::io("publish", self.path.clone())(errno)),
        }
        // A link replaces nothing, and a rename needs a name.
        let ((), temporary) =
            with_temporary_name(&self.path, &self.name, |temporary| self.link_as(temporary))?;
        let renamed = again(|| {
            rustix::fs::renameat(&self.directory, &temporary, &self.directory, &self.name)
        });
        renamed.map_err(|errno| {
            self.temporary = Some(temporary);
            Error::io("publish", self.path.clone())(errno)
        })?;
        Ok(self.path.clone())
    }

    fn link_as(&self, name: &OsStr) -> Result<(), Errno> {
        let by_number = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let linked = again(|| {
            rustix::fs::linkat(
                CWD,
                by_number.as_str(),
                &self.directory,
                name,
                AtFlags::SYMLINK_FOLLOW,
            )
        });
        match linked {
            // Without /proc there is a way for who may search everywhere.
            Err(Errno::NOENT) => again(|| {
                rustix::fs::linkat(&self.file, c"", &self.directory, name, AtFlags::EMPTY_PATH)
            }),
            linked => linked,
        }
    }
}

impl Drop for Unnamed {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _ = again(|| rustix::fs::unlinkat(&self.directory, temporary, AtFlags::empty()));
        }
    }
}

impl AsFd for Unnamed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Tries names until one is free.
fn with_temporary_name<T>(
    path: &Path,
    name: &OsStr,
    mut make: impl FnMut(&OsStr) -> Result<T, Errno>,
) -> Result<(T, OsString)> {
    let mut last = Errno::EXIST;
    for _ in 0..TRIES {
        let temporary = temporary_name(name)?;
        match make(&temporary) {
            Ok(made) => return Ok((made, temporary)),
            Err(Errno::EXIST) => {}
            Err(errno) => {
                last = errno;
                break;
            }
        }
    }
    Err(Error::io("make a temporary name for", path)(last))
}

fn temporary_name(name: &OsStr) -> Result<OsString> {
    let mut random = [0; 4];
    getrandom::fill(&mut random)
        .map_err(|error| Error::io("get random bytes for", name)(std::io::Error::other(error)))?;
    let kept = name.len().min(NAME_BYTES_MAX - SUFFIX_BYTES - 1);
    let mut temporary = vec![b'.'];
    temporary.extend(&name.as_bytes()[..kept]);
    temporary.extend(format!(".evermap-{:08x}", u32::from_le_bytes(random)).bytes());
    Ok(OsString::from_vec(temporary))
}

/// Makes a call until no signal interrupts it.
pub(super) fn again<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn names(directory: &Path) -> Vec<OsString> {
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn a_file_has_its_name_when_it_is_published_and_leaves_nothing_before() {
        let directory = tempfile::tempdir().unwrap();
        let name = OsStr::from_bytes(&[0xff; 255]);
        let file = Unnamed::create(directory.path(), name, 0o600).unwrap();
        rustix::io::write(&file, b"new").unwrap();
        drop(file);
        assert!(names(directory.path()).is_empty());
        for text in [b"one", b"two"] {
            let file = Unnamed::create(directory.path(), name, 0o600).unwrap();
            rustix::io::write(&file, text).unwrap();
            let path = file.publish().unwrap();
            assert_eq!(std::fs::read(path).unwrap(), text);
            assert_eq!(names(directory.path()), [name]);
        }
    }

    #[test]
    fn a_file_with_a_temporary_name_leaves_nothing_either() {
        let directory = tempfile::tempdir().unwrap();
        let open = OFlags::PATH | OFlags::DIRECTORY;
        let make = || {
            let folder = rustix::fs::open(directory.path(), open, Mode::empty()).unwrap();
            let (name, path) = (OsString::from("n"), directory.path().join("n"));
            let (file, temporary) =
                Unnamed::create_named(&folder, &path, &name, Mode::RUSR).unwrap();
            Unnamed { directory: folder, file, path, name, temporary: Some(temporary) }
        };
        let file = make();
        assert!(names(directory.path())[0].to_string_lossy().starts_with(".n.evermap-"));
        drop(file);
        assert!(names(directory.path()).is_empty());
        make().publish().unwrap();
        assert_eq!(names(directory.path()), ["n"]);
    }

    #[test]
    fn a_directory_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("d")).unwrap();
        let error = Unnamed::create(directory.path(), OsStr::new("d"), 0o600).unwrap_err();
        assert!(error.to_string().contains("cannot replace"), "{error}");
    }
}
