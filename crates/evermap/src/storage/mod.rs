//! The only module that talks to the disk.
//!
//! The layers above see two traits: a [`Storage`] opens, renames, removes and lists files; a
//! [`File`] reads, writes, reserves, flushes and locks one. Everything that decides durability
//! passes through here, so that a simulated disk can take the real one's place and lose, reorder
//! and tear what was not flushed. Errors come back with the file's name and the operation.
//!
//! Mapping is the address layer's business: a file only lends its descriptor for it.

mod anchor;
mod boot;
mod dax;
mod locks;
mod moving;
mod real;
mod user;

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};
pub(crate) use boot::Boot;
pub(crate) use real::Disk;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenMode {
    /// It must exist; reading and locking for reading only.
    Read,
    /// It must exist.
    ReadWrite,
    /// It must not exist.
    CreateNew,
    /// Opened, or created when it is not there.
    OpenOrCreate,
}

/// How a byte range is locked against other processes (and other handles of this one).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockKind {
    /// Any number of holders.
    Shared,
    /// One holder and no shared ones.
    Exclusive,
}

/// What identifies a file independently of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileIdentity {
    /// Device.
    pub device: u64,
    /// Inode on it.
    pub inode: u64,
}

/// What the file system says of an open file, beside what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileState {
    /// Bytes.
    pub length: u64,
    /// False once its last name was removed.
    pub named: bool,
    /// When contents, name or rights were changed last: seconds and nanoseconds, as coarse as the
    /// kernel's clock. Zeros where nobody knows.
    pub changed: (i64, i64),
}

/// A namespace of files.
pub(crate) trait Storage: Send + Sync + std::fmt::Debug {
    /// Opens a file; never follows a symbolic link. New files are readable by their owner only.
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>>;
    /// Makes a directory for the owner only. Existing directories are an error.
    fn create_directory(&self, path: &Path) -> Result<()>;
    /// Makes a directory and those above it, where they are missing, with the usual permissions.
    fn create_directories(&self, path: &Path) -> Result<()>;
    /// Moves a file, replacing what is at `to`. Durable after `sync_directory` of both parents.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Removes a file's name. Durable after `sync_directory` of the parent.
    fn remove(&self, path: &Path) -> Result<()>;
    /// Names in a directory, in no order.
    fn list(&self, path: &Path) -> Result<Vec<String>>;
    /// Makes the names in a directory durable.
    fn sync_directory(&self, path: &Path) -> Result<()>;
    /// The file system that holds `path`, opened now so that write errors from now on are seen by
    /// its flush.
    fn file_system(&self, path: &Path) -> Result<Box<dyn FileSystem>>;
    /// Identity of a directory.
    fn directory_identity(&self, path: &Path) -> Result<FileIdentity>;
    /// Identity of the file that has this name now.
    fn file_identity(&self, path: &Path) -> Result<FileIdentity>;
    /// This storage with a directory held open: paths that begin with `path` lead to the files of that
    /// very directory from now on, wherever it is moved and whatever takes its place. `None` where paths
    /// are all there is.
    fn enter(&self, _path: &Path) -> Result<Option<Arc<dyn Storage>>> {
        Ok(None)
    }
    /// Where the programs of this user keep what they know from one run to the next, which may not
    /// exist yet; `None` where there is no such place, or it is somebody else's.
    fn state_directory(&self) -> Option<PathBuf> {
        None
    }
    /// Lets two directories change names in one step; false where that cannot be done. Durable
    /// after `sync_directory` of both parents.
    fn exchange(&self, _one: &Path, _other: &Path) -> Result<bool> {
        Ok(false)
    }
    /// Removes a directory with all that is in it.
    fn remove_all(&self, path: &Path) -> Result<()> {
        Err(Error::Unsupported { why: format!("cannot remove {} as a whole", path.display()) })
    }
}

/// Everything on one file system.
pub(crate) trait FileSystem: Send + Sync + std::fmt::Debug {
    /// Makes everything durable that was written: one call instead of one flush a file.
    fn sync(&self) -> Result<()>;
}

/// One open file. Offsets and lengths in bytes.
pub(crate) trait File: Send + Sync + std::fmt::Debug {
    /// The name it was opened by, for messages.
    fn path(&self) -> &Path;
    /// Reads up to `buffer.len()` bytes; fewer only at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize>;
    /// Writes all of `bytes`.
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()>;
    /// Writes all of `bytes` and returns when they, and the metadata needed to read them, are
    /// durable. Says nothing about other bytes of the file.
    fn write_at_durable(&self, bytes: &[u8], offset: u64) -> Result<()>;
    /// Reserves disk blocks for a range and extends the file to its end, so that no later write
    /// into the range runs out of space. New bytes read as zero.
    fn allocate(&self, offset: u64, length: u64) -> Result<()>;
    /// Gives the blocks of a range back to the file system: it reads as zeros, and the file stays as
    /// long as it is. Durable after `sync_data`. False where that cannot be done; nothing happened.
    fn punch_hole(&self, offset: u64, length: u64) -> Result<bool>;
    /// Cuts the file, or extends it by a hole.
    fn set_length(&self, length: u64) -> Result<()>;
    /// Length of the file.
    fn length(&self) -> Result<u64>;
    /// Bytes that it takes on the disk.
    fn disk_bytes(&self) -> Result<u64>;
    /// Makes the file's bytes durable, mapped stores included.
    fn sync_data(&self) -> Result<()>;
    /// Starts writing a range to the disk, without waiting and without promising anything: a later
    /// flush has less to do.
    fn start_write_back(&self, _offset: u64, _length: u64) {}
    /// Tells the page cache that access is random: small folios, no read-ahead.
    fn advise_random(&self) -> Result<()>;
    /// Tries to lock `length` bytes from `offset`; false when another holder is in the way. A
    /// lock held through the same `File` is changed in place and never in the way.
    fn try_lock(&self, kind: LockKind, offset: u64, length: u64) -> Result<bool>;
    /// Tries to lock one byte exclusively for as long as this `File` and this process live. No child of
    /// this process holds it, where the system can do that.
    fn try_lock_for_good(&self, offset: u64) -> Result<bool> {
        self.try_lock(LockKind::Exclusive, offset, 1)
    }
    /// From now on this file's locks end when the last process, children included, has neither the
    /// file open nor any mapping of it. Before, forked children hold none.
    fn leave_locks_to_children(&self) {}
    /// The same file, opened anew for reading, with locks of its own.
    fn again(&self) -> Result<Arc<dyn File>> {
        Err(Error::Unsupported { why: format!("{} cannot be opened twice", self.path().display()) })
    }
    /// The first lock of another holder that is in the way of an exclusive one: offset and length.
    fn lock_holder(&self, offset: u64, length: u64) -> Result<Option<(u64, u64)>>;
    /// Gives a range up.
    fn unlock(&self, offset: u64, length: u64) -> Result<()>;
    /// The same open file, its locks included, under the name that it was moved to. The value it is
    /// called on gives no lock up when it goes.
    fn with_path(&self, path: &Path) -> Result<Arc<dyn File>>;
    /// False once its last name was removed.
    fn has_a_name(&self) -> Result<bool>;
    /// Identity of the file.
    fn identity(&self) -> Result<FileIdentity>;
    /// Length, name and time of the last change: one call.
    fn state(&self) -> Result<FileState> {
        Ok(FileState { length: self.length()?, named: self.has_a_name()?, changed: (0, 0) })
    }
    /// Makes this empty file the first `length` bytes of `source` by what its system has for that:
    /// shared blocks, or a copy within the kernel. Not flushed; holes stay holes, and what the source
    /// lacks is one. False where there is nothing of the kind; nothing happened then.
    fn copy_from(&self, source: &dyn File, length: u64) -> Result<bool>;
    /// The first range at or after `offset` that may hold anything but zeros, page-aligned: start
    /// and end. `None` when there is nothing up to the end of the file.
    fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>>;
    /// Reading a hole through a mapping takes space, as in memory. On a full file system such a read is a signal.
    fn fills_holes_when_read(&self) -> bool {
        !evermap_observe::FileSystem::of(self.descriptor()).is_ok_and(|system| !system.is_memory())
    }
    /// The file's pages are storage themselves (DAX): no page cache, and a clean page looks
    /// private.
    fn is_direct(&self) -> bool;
    /// A crash leaves each 512 bytes as they were before a write or as they are after it. Not on
    /// persistent memory, which is written by the processor's words.
    fn keeps_sectors_whole(&self) -> bool {
        !self.is_direct()
    }
    /// The run of the machine, in which what was written to the file can be read.
    fn boot(&self) -> Boot {
        Boot::current()
    }
    /// For mapping.
    fn descriptor(&self) -> BorrowedFd<'_>;
}

/// Copies the first `length` bytes of `source` into the empty file `target`, sharing blocks where
/// the file system can. Not flushed. Holes stay holes.
pub(crate) fn copy_contents(source: &dyn File, target: &dyn File, length: u64) -> Result<()> {
    if target.copy_from(source, length)? {
        return Ok(());
    }
    target.set_length(length)?;
    let mut buffer = vec![0; COPY_BYTES];
    let mut at = 0;
    while let Some((start, end)) = source.next_data(at)?.filter(|&(start, _)| start < length) {
        at = start;
        let end = end.min(length);
        while at < end {
            let step = (end - at).min(COPY_BYTES as u64) as usize;
            let got = source.read_at(&mut buffer[..step], at)?;
            if got == 0 {
                return Ok(());
            }
            target.write_at(&buffer[..got], at)?;
            at += got as u64;
        }
    }
    Ok(())
}

/// Bytes copied at a time: page-cache folios of the copy get no larger than this, which keeps later
/// small writes into them cheap.
const COPY_BYTES: usize = 64 * 1024;

/// The directory a file's name is in.
pub(crate) fn parent_of(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new(".")).to_path_buf()
}
