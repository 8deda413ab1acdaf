//! Directory handle for looking up names.
//!
//! Names are looked up in the open directory, not through its path. They lead to the same files
//! after the directory was moved, or another one took its path. The open descriptor also prevents
//! the file system from reusing the directory's inode number.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{self, CWD, Mode, OFlags};

use crate::error::{Error, Result};

#[derive(Debug)]
pub(super) struct Anchor {
    descriptor: OwnedFd,
    path: PathBuf,
}

impl Anchor {
    /// Opens the directory `name`, which `path` leads to as well.
    pub(super) fn open(at: BorrowedFd<'_>, name: &Path, path: &Path) -> Result<Anchor> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = fs::openat(at, name, flags, Mode::empty())
            .map_err(|e| Error::from_io(e.into(), "look at", path))?;
        Ok(Anchor { descriptor, path: path.to_path_buf() })
    }

    /// Returns the directory and the name to look `path` up: this directory if `path` begins with
    /// the directory's own path.
    pub(super) fn resolve<'a>(&'a self, path: &'a Path) -> (BorrowedFd<'a>, &'a Path) {
        let own = self.path.as_os_str().as_bytes();
        let Some(rest) = path.as_os_str().as_bytes().strip_prefix(own) else {
            return (CWD, path);
        };
        let slashes = rest.iter().take_while(|byte| **byte == b'/').count();
        let name = &rest[slashes..];
        if name.is_empty() {
            return (self.descriptor.as_fd(), Path::new("."));
        }
        // `store2` begins with `store`, but does not lie in it.
        if slashes == 0 && !own.ends_with(b"/") {
            return (CWD, path);
        }
        (self.descriptor.as_fd(), Path::new(OsStr::from_bytes(name)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn only_paths_below_the_directory_are_resolved_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let at = |own: &str, path: &str| {
            let own = directory.path().join(own).into_os_string();
            std::fs::create_dir_all(&own).unwrap();
            let anchor = Anchor::open(CWD, Path::new(&own), Path::new(&own)).unwrap();
            let path = directory.path().join(path);
            let (descriptor, name) = anchor.resolve(&path);
            let inside = descriptor.as_raw_fd() == anchor.descriptor.as_raw_fd();
            assert!(inside || name == path);
            inside.then(|| name.to_str().unwrap().to_string())
        };
        let inside = |name: &str| Some(name.to_string());
        assert_eq!(at("store", "store/objects/1"), inside("objects/1"));
        assert_eq!(at("store/", "store/catalog"), inside("catalog"));
        assert_eq!(at("store/", "store//catalog"), inside("catalog"));
        assert_eq!(at("store", "store"), inside("."));
        assert_eq!(at("store", "store/"), inside("."));
        assert_eq!(at("store", "store2/catalog"), None);
        assert_eq!(at("store", ".store.partial-1"), None);
        assert_eq!(at("store", ""), None);
    }
}
