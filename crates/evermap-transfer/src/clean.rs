//! Removes the files and directories with temporary names that killed copies left behind.
//!
//! A running copy holds a shared lock (`flock`) on each unfinished object: the file with a
//! temporary name, the directory being filled, or the directory it merges into. Cleaning takes the
//! same lock exclusively, so it never removes data of a running copy. The kernel releases the locks
//! of a killed process.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, FileType, FlockOperation, Mode, OFlags, RawDir};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::file::{Unfinished, unfinished_name};
use crate::tree;

/// Flags for opening directories during the walk. Symbolic links are not followed.
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Result of [`clean`]: unfinished copies by path.
#[derive(Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Cleaned {
    /// Removed.
    pub removed: Vec<PathBuf>,
    /// Skipped because a running copy holds them.
    pub in_use: Vec<PathBuf>,
    /// Kept because `resume` can continue them.
    pub parts: Vec<PathBuf>,
    /// Errors of entries that could not be read or removed.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub errors: Vec<Error>,
}

/// Removes unfinished copies in `directory` and below, on the same file system. Removes parts of
/// resumable copies only if `parts` is set. Does not follow symbolic links. Cost: reads every
/// directory.
///
/// ```
/// let directory = tempfile::tempdir()?;
/// std::fs::write(directory.path().join(".film.evermap-0123abcd"), "half of a copy")?;
/// let cleaned = evermap_transfer::clean(directory.path(), false)?;
/// assert_eq!(cleaned.removed, [directory.path().join(".film.evermap-0123abcd")]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// [`Error::Io`] if `directory` cannot be opened. Errors below it are listed in the result and do
/// not stop the walk.
pub fn clean(directory: &Path, parts: bool) -> Result<Cleaned> {
    let flags = DIRECTORY - OFlags::NOFOLLOW;
    let root = fs::openat(fs::CWD, directory, flags, Mode::empty())
        .map_err(Error::io("open the directory", directory))?;
    let device = fs::fstat(&root).map_err(Error::io("read the attributes of", directory))?.st_dev;
    let mut cleaned = Cleaned::default();
    if is_merged_into_above(root.as_fd()) {
        cleaned.in_use.push(directory.into());
        return Ok(cleaned);
    }
    let mut waiting = vec![(directory.to_path_buf(), Some(root))];
    while let Some((path, opened)) = waiting.pop() {
        let opened = match opened {
            Some(opened) => Ok(opened),
            None => fs::openat(fs::CWD, &path, DIRECTORY, Mode::empty()),
        };
        let below = opened
            .and_then(|opened| match fs::fstat(&opened)?.st_dev == device {
                true => one_directory(&opened, &path, parts, &mut cleaned),
                false => Ok(Vec::new()),
            })
            .map_err(Error::io("read the directory", &path));
        match below {
            Ok(below) => waiting.extend(below.into_iter().map(|path| (path, None))),
            Err(error) => cleaned.errors.push(error),
        }
    }
    Ok(cleaned)
}

/// Removes the unfinished copies in one directory. Returns its subdirectories.
fn one_directory(
    directory: &OwnedFd,
    path: &Path,
    parts: bool,
    cleaned: &mut Cleaned,
) -> Result<Vec<PathBuf>, Errno> {
    if fs::flock(directory, FlockOperation::NonBlockingLockExclusive) == Err(Errno::AGAIN) {
        cleaned.in_use.push(path.into());
        return Ok(Vec::new());
    }
    let (mut below, mut left_over) = (Vec::new(), Vec::new());
    let mut buffer = [MaybeUninit::<u8>::uninit(); 16 << 10];
    let mut listing = RawDir::new(directory, &mut buffer);
    while let Some(entry) = listing.next() {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        match unfinished_name(name.to_bytes()) {
            Some(kind) => left_over.push((name.to_owned(), kind)),
            None if is_directory(directory.as_fd(), name, entry.file_type()) => {
                below.push(path.join(os(name)));
            }
            None => {}
        }
    }
    for (name, kind) in left_over {
        let at = path.join(os(&name));
        if kind == Unfinished::Part && !parts {
            cleaned.parts.push(at);
            continue;
        }
        match remove(directory.as_fd(), &name) {
            Ok(true) => cleaned.removed.push(at),
            Ok(false) => cleaned.in_use.push(at),
            Err(Errno::NOENT) => {}
            Err(errno) => cleaned.errors.push(Error::io("remove", at)(errno)),
        }
    }
    fs::flock(directory, FlockOperation::Unlock)?;
    Ok(below)
}

/// Removes one unfinished copy. Returns false if a running copy holds it.
fn remove(directory: BorrowedFd<'_>, name: &CStr) -> Result<bool, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = match fs::openat(directory, name, flags, Mode::empty()) {
        Ok(opened) => opened,
        // A symbolic link, a socket or an unreadable file: no copy can hold a lock on it.
        Err(Errno::LOOP | Errno::NXIO | Errno::ACCESS) => {
            return fs::unlinkat(directory, name, AtFlags::empty()).map(|()| true);
        }
        Err(errno) => return Err(errno),
    };
    if fs::flock(&opened, FlockOperation::NonBlockingLockExclusive) == Err(Errno::AGAIN) {
        return Ok(false);
    }
    let kind = FileType::from_raw_mode(fs::fstat(&opened)?.st_mode);
    match kind {
        FileType::Directory => tree::remove(directory, name)?,
        _ => fs::unlinkat(directory, name, AtFlags::empty())?,
    }
    Ok(true)
}

/// Returns true if a running copy merges into a parent directory. Its files below have no locks of
/// their own.
fn is_merged_into_above(directory: BorrowedFd<'_>) -> bool {
    let identity =
        |directory: &OwnedFd| fs::fstat(directory).ok().map(|stat| (stat.st_dev, stat.st_ino));
    let Ok(mut above) = fs::openat(directory, c"..", DIRECTORY, Mode::empty()) else {
        return false;
    };
    loop {
        if fs::flock(&above, FlockOperation::NonBlockingLockExclusive) == Err(Errno::AGAIN) {
            return true;
        }
        let _ = fs::flock(&above, FlockOperation::Unlock);
        let Ok(next) = fs::openat(&above, c"..", DIRECTORY, Mode::empty()) else { return false };
        if identity(&next) == identity(&above) {
            return false;
        }
        above = next;
    }
}

fn is_directory(directory: BorrowedFd<'_>, name: &CStr, kind: FileType) -> bool {
    match kind {
        FileType::Directory => true,
        FileType::Unknown => fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory),
        _ => false,
    }
}

fn os(name: &CStr) -> &std::ffi::OsStr {
    std::ffi::OsStr::from_bytes(name.to_bytes())
}
