//! Removes a temporary tree, without following symbolic links or leaving the tree.
//!
//! Works without recursion and with a limited number of descriptors, because a tree may be too deep
//! for either. It ascends through `..` and compares device and inode.

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;

use super::directory::{DIRECTORY, DeviceInode, identity};

/// Number of parents of the current directory that stay open.
const OPEN_MAX: usize = 16;

/// A directory being emptied.
struct Level {
    name: CString,
    identity: DeviceInode,
    /// `None` while it is far above the current directory.
    descriptor: Option<OwnedFd>,
    /// Remaining subdirectories.
    directories: Vec<CString>,
}

/// Removes the directory `name` and its contents.
pub(crate) fn tree(parent: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    let mut levels = vec![enter(parent, name)?];
    while let Some(level) = levels.last_mut() {
        if let Some(next) = level.directories.pop() {
            let below = enter(open_of(level)?, &next)?;
            levels.push(below);
            if let Some(far) = levels.len().checked_sub(OPEN_MAX + 1) {
                levels[far].descriptor = None;
            }
            continue;
        }
        let Some(level) = levels.pop() else { break };
        match levels.last_mut() {
            Some(above) => {
                if above.descriptor.is_none() {
                    above.descriptor = Some(open_parent(&level, above.identity)?);
                }
                remove_directory(open_of(above)?, &level.name)?;
            }
            None => remove_directory(parent, &level.name)?,
        }
    }
    Ok(())
}

fn open_of(level: &Level) -> Result<BorrowedFd<'_>, Errno> {
    level.descriptor.as_ref().map(AsFd::as_fd).ok_or(Errno::BADF)
}

fn remove_directory(parent: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    match fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
        // The parent may already have its final mode, without write permission.
        Err(Errno::ACCESS) => {
            fs::fchmod(parent, Mode::RWXU)?;
            fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
        }
        other => other,
    }
}

fn open_parent(level: &Level, expected: DeviceInode) -> Result<OwnedFd, Errno> {
    let above = fs::openat(open_of(level)?, c"..", DIRECTORY, Mode::empty())?;
    match identity(&fs::fstat(&above)?) == expected {
        true => Ok(above),
        false => Err(Errno::STALE),
    }
}

/// Opens a directory and removes all entries except subdirectories.
fn enter(parent: BorrowedFd<'_>, name: &CStr) -> Result<Level, Errno> {
    let descriptor = open(parent, name)?;
    let identity = identity(&fs::fstat(&descriptor)?);
    let mut directories = Vec::new();
    let mut buffer = [MaybeUninit::<u8>::uninit(); 16 << 10];
    // On some file systems removing during a listing skips names, so repeat until nothing was
    // removed.
    loop {
        let mut removed = 0;
        directories.clear();
        fs::seek(&descriptor, fs::SeekFrom::Start(0))?;
        let mut listing = RawDir::new(&descriptor, &mut buffer);
        while let Some(entry) = listing.next() {
            let entry = entry?;
            let (name, kind) = (entry.file_name(), entry.file_type());
            if name == c"." || name == c".." {
                continue;
            }
            if kind == FileType::Directory || !unlink(descriptor.as_fd(), name)? {
                directories.push(name.to_owned());
            } else {
                removed += 1;
            }
        }
        if removed == 0 {
            return Ok(Level {
                name: name.to_owned(),
                identity,
                descriptor: Some(descriptor),
                directories,
            });
        }
    }
}

/// Removes a name. Returns false for a directory.
fn unlink(directory: BorrowedFd<'_>, name: &CStr) -> Result<bool, Errno> {
    let result = match fs::unlinkat(directory, name, AtFlags::empty()) {
        Err(Errno::ACCESS) => {
            fs::fchmod(directory, Mode::RWXU)?;
            fs::unlinkat(directory, name, AtFlags::empty())
        }
        other => other,
    };
    match result {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::ISDIR) => Ok(false),
        Err(errno) => Err(errno),
    }
}

fn open(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    match fs::openat(parent, name, DIRECTORY, Mode::empty()) {
        Err(Errno::ACCESS) => {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
            // The parent's own mode may deny access.
            let node = match fs::openat(parent, name, flags, Mode::empty()) {
                Err(Errno::ACCESS) => {
                    fs::fchmod(parent, Mode::RWXU)?;
                    fs::openat(parent, name, flags, Mode::empty())?
                }
                other => other?,
            };
            fs::chmod(format!("/proc/self/fd/{}", node.as_raw_fd()), Mode::RWXU)?;
            fs::openat(parent, name, DIRECTORY, Mode::empty())
        }
        other => other,
    }
}
