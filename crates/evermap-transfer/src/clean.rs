//! Removes the files and directories with temporary names that killed copies left behind.
//!
//! A running copy holds a shared lock (`flock`) on each file and each new directory that has a
//! temporary name, or on a directory above it: the one it merges into, or the one in which it makes
//! a link. It takes the lock before it makes the name, or checks afterwards that the name still
//! exists. `clean` first lists a directory and then tests the locks, so a name that it removes
//! belongs to no running copy. The kernel releases the locks of a killed process.

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{self, AtFlags, FileType, FlockOperation, Mode, OFlags, RawDir};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::file::{Unfinished, leads_to, part_of_journal, unfinished_name};
use crate::tree;

/// Flags for opening directories during the walk. Symbolic links are not followed.
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Attempts to lock an object that is locked, one millisecond apart.
const LOCK_ATTEMPTS: usize = 3;

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
        let below = opened.and_then(|opened| match fs::fstat(&opened)?.st_dev == device {
            true => one_directory(&opened, &path, parts, &mut cleaned),
            false => Ok(Vec::new()),
        });
        match below {
            Ok(below) => waiting.extend(below.into_iter().map(|path| (path, None))),
            // Removed or published since it was listed.
            Err(Errno::NOENT) => {}
            Err(errno) => cleaned.errors.push(Error::io("look through", &path)(errno)),
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
    if is_held(directory.as_fd()) {
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
    // A copy that has one of these names has had its lock for longer.
    let is_any = !left_over.is_empty();
    if is_any && (is_held(directory.as_fd()) || is_merged_into_above(directory.as_fd())) {
        cleaned.in_use.push(path.into());
        return Ok(Vec::new());
    }
    for (name, kind) in left_over {
        let at = path.join(os(&name));
        if kind == Unfinished::Part && !parts {
            cleaned.parts.push(at);
            continue;
        }
        let removed = match part_of_journal(name.to_bytes()) {
            Some(part) => remove_journal(directory.as_fd(), &name, part),
            None => remove(directory.as_fd(), &name),
        };
        match removed {
            Ok(true) => cleaned.removed.push(at),
            Ok(false) => cleaned.in_use.push(at),
            Err(Errno::NOENT) => {}
            Err(errno) => cleaned.errors.push(Error::io("remove", at)(errno)),
        }
    }
    Ok(below)
}

/// Returns true if a running copy holds this file or directory.
fn is_held(held: BorrowedFd<'_>) -> bool {
    // Another `clean` that examines the same object holds the lock for some microseconds.
    for _ in 0..LOCK_ATTEMPTS {
        match fs::flock(held, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::AGAIN) => std::thread::sleep(Duration::from_millis(1)),
            _ => {
                let _ = fs::flock(held, FlockOperation::Unlock);
                return false;
            }
        }
    }
    true
}

/// Removes one unfinished copy. Returns false if a running copy holds it.
fn remove(directory: BorrowedFd<'_>, name: &CStr) -> Result<bool, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = match fs::openat(directory, name, flags, Mode::empty()) {
        Ok(opened) => opened,
        // A symbolic link or a socket: a running copy holds the directory instead.
        Err(Errno::LOOP | Errno::NXIO) => {
            return fs::unlinkat(directory, name, AtFlags::empty()).map(|()| true);
        }
        // It cannot be opened, so its lock cannot be tested. Remove it only if it is this user's
        // own.
        Err(Errno::ACCESS) if is_own(directory, name)? => {
            return fs::unlinkat(directory, name, AtFlags::empty()).map(|()| true);
        }
        Err(errno) => return Err(errno),
    };
    if fs::flock(&opened, FlockOperation::NonBlockingLockExclusive) == Err(Errno::AGAIN) {
        return Ok(false);
    }
    // Before it was locked, a copy may have given it its name, and made another one under this.
    if !leads_to(directory, name, opened.as_fd()) {
        return Err(Errno::NOENT);
    }
    let kind = FileType::from_raw_mode(fs::fstat(&opened)?.st_mode);
    match kind {
        FileType::Directory => tree::remove(directory, name)?,
        _ => fs::unlinkat(directory, name, AtFlags::empty())?,
    }
    Ok(true)
}

/// Removes the journal of a part file. Returns false if a running copy holds the part. The part's
/// lock also protects the journal, so the part is created if it is missing.
fn remove_journal(directory: BorrowedFd<'_>, name: &CStr, part: &[u8]) -> Result<bool, Errno> {
    let part = CString::new(part).map_err(|_| Errno::INVAL)?;
    let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = fs::openat(directory, &part, flags, Mode::RUSR | Mode::WUSR)?;
    if fs::flock(&opened, FlockOperation::NonBlockingLockExclusive) == Err(Errno::AGAIN) {
        return Ok(false);
    }
    if !leads_to(directory, &part, opened.as_fd()) {
        return Ok(false);
    }
    fs::unlinkat(directory, name, AtFlags::empty())?;
    if fs::fstat(&opened)?.st_size == 0 {
        fs::unlinkat(directory, &part, AtFlags::empty())?;
    }
    Ok(true)
}

fn is_own(directory: BorrowedFd<'_>, name: &CStr) -> Result<bool, Errno> {
    let found = fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(found.st_uid == rustix::process::geteuid().as_raw())
}

/// Returns true if a running copy merges into a directory above this one. Its files below have no
/// locks of their own.
fn is_merged_into_above(directory: BorrowedFd<'_>) -> bool {
    let identity =
        |directory: &OwnedFd| fs::fstat(directory).ok().map(|stat| (stat.st_dev, stat.st_ino));
    let Ok(mut above) = fs::openat(directory, c"..", DIRECTORY, Mode::empty()) else {
        return false;
    };
    loop {
        if is_held(above.as_fd()) {
            return true;
        }
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
