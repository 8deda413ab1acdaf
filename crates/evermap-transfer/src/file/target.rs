//! The target of a copy from its making to its name.
//!
//! While it is made it has no name at all (`O_TMPFILE`), or a temporary one where the file system has no such files. Its own
//! name it gets when it is complete, by a link or a rename, which the kernel does wholly or not at all. Dropped
//! before that, it leaves nothing.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::unfinished::{ATTEMPTS, hold, make_and_hold};
use crate::error::{Error, Result};

/// Nobody but its owner looks into an unfinished copy.
const MODE_WHILE_MADE: Mode = Mode::RUSR.union(Mode::WUSR);
/// The longest name of a file, everywhere that matters.
const NAME_BYTES_MAX: usize = 255;

/// Where a copy is put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placing {
    /// Under its own name at once, in a directory that nobody sees yet; nothing may have that name.
    Direct,
    /// Without a name until it is complete; then in place of what has it.
    Replacing,
}

/// A file in the making.
#[derive(Debug)]
pub(crate) struct Target<'a> {
    file: OwnedFd,
    directory: BorrowedFd<'a>,
    name: CString,
    path: PathBuf,
    /// The name it has now, to be removed if it is not published.
    named: Option<CString>,
    published: bool,
}

impl<'a> Target<'a> {
    /// Makes it. `path` is for messages.
    pub(crate) fn new(
        directory: BorrowedFd<'a>,
        name: &CStr,
        path: &Path,
        placing: Placing,
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
        if placing == Placing::Direct {
            let flags = flags | OFlags::CREATE | OFlags::EXCL;
            let file = fs::openat(directory, name, flags, MODE_WHILE_MADE)
                .map_err(Error::io("make", path))?;
            return Ok(target(file, Some(name.into())));
        }
        match fs::openat(directory, c".", flags | OFlags::TMPFILE, MODE_WHILE_MADE) {
            Ok(file) => Ok(target(file, None)),
            // A file system that cannot, or a kernel that takes the flag for `O_DIRECTORY`.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT | Errno::NOSYS) => {
                let flags = flags | OFlags::CREATE | OFlags::EXCL;
                let (file, named) = make_and_hold(directory, || {
                    with_temporary_name(name, |temporary| {
                        fs::openat(directory, temporary, flags, MODE_WHILE_MADE)
                    })
                })
                .map_err(Error::io("make", path))?;
                Ok(target(file, Some(named)))
            }
            Err(errno) => Err(Error::io("make", path)(errno)),
        }
    }

    /// One that is there already under a temporary name, which it keeps if it is not published.
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

    /// Its name in messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives it its name, in place of whatever had it. It is complete, and as durable as it is to be.
    pub(crate) fn publish(mut self, placing: Placing) -> Result<()> {
        self.published = true;
        if placing == Placing::Direct {
            return Ok(());
        }
        let failed = Error::io("give its name to", &self.path);
        let temporary = match self.named.take() {
            Some(temporary) => temporary,
            None => match self.link(&self.name) {
                Ok(()) => return Ok(()),
                Err(Errno::EXIST) => {
                    hold(self.file.as_fd());
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

    /// Links the file without a name to one.
    fn link(&self, name: &CStr) -> Result<(), Errno> {
        // Through `/proc`, as linking a descriptor itself asks for a privilege on older kernels.
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
            // Nothing better can be done than leave it, should that fail.
            let _ = fs::unlinkat(self.directory, name, AtFlags::empty());
        }
    }
}

/// Calls `make` with names for something that is to become `name`, until one is free.
pub(crate) fn with_temporary_name<T>(
    name: &CStr,
    mut make: impl FnMut(&CStr) -> Result<T, Errno>,
) -> Result<(T, CString), Errno> {
    let mut last = Errno::EXIST;
    for _ in 0..ATTEMPTS {
        let random = getrandom::u32().map_err(|_| Errno::IO)?;
        let temporary = beside(name, &format!(".evermap-{random:08x}"));
        match make(&temporary) {
            Ok(made) => return Ok((made, temporary)),
            Err(Errno::EXIST) => last = Errno::EXIST,
            Err(errno) => return Err(errno),
        }
    }
    Err(last)
}

/// `.NAME` with `ending`, cut so that it is a name.
pub(crate) fn beside(name: &CStr, ending: &str) -> CString {
    let room = NAME_BYTES_MAX - 1 - ending.len();
    let kept = &name.to_bytes()[..name.to_bytes().len().min(room)];
    let bytes = [b".", kept, ending.as_bytes()].concat();
    // No part of it has a NUL.
    CString::new(bytes).unwrap_or_default()
}

/// A path's bytes as the kernel takes them.
pub(crate) fn c_name(name: &std::ffi::OsStr) -> Result<CString> {
    CString::new(name.as_bytes()).map_err(|_| {
        Error::Usage(format!(
            "{} has a NUL byte, which no name of a file can have",
            Path::new(name).display()
        ))
    })
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
            Target::new(directory.as_fd(), name, Path::new("target"), Placing::Replacing).unwrap();
        File::from(target.file.try_clone().unwrap()).write_all(bytes).unwrap();
        target
    }

    #[test]
    fn a_target_that_is_dropped_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let opened = File::open(directory.path()).unwrap();
        drop(made(&opened, c"name", b"half"));
        assert!(names(directory.path()).is_empty());
    }

    #[test]
    fn what_had_the_name_has_it_until_the_whole_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("name");
        std::fs::write(&file, "before").unwrap();
        let opened = File::open(directory.path()).unwrap();
        let target = made(&opened, c"name", b"after");
        assert_eq!(std::fs::read(&file).unwrap(), b"before");
        target.publish(Placing::Replacing).unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"after");
        assert_eq!(names(directory.path()), ["name"]);
    }

    #[test]
    fn the_longest_name_has_a_temporary_one_too() {
        let directory = tempfile::tempdir().unwrap();
        let opened = File::open(directory.path()).unwrap();
        let name = CString::new(vec![b'n'; 255]).unwrap();
        for bytes in [b"first".as_slice(), b"second"] {
            made(&opened, &name, bytes).publish(Placing::Replacing).unwrap();
        }
        assert_eq!(names(directory.path()).len(), 1);
    }
}
