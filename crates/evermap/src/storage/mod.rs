//! The only module that accesses the disk.
//!
//! The layers above see two traits: a [`Storage`] opens, renames, removes and lists files; a
//! [`File`] reads, writes, reserves, flushes and locks one. Every operation that affects durability
//! goes through them, so a simulated disk can replace the real one and lose, reorder and tear
//! unflushed writes. Errors contain the file's name and the operation.
//!
//! The address layer does the mapping; a file only lends its descriptor.

mod anchor;
mod boot;
mod dax;
mod disk;
mod file;
mod locks;
mod moving;
mod user;

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};
pub(crate) use boot::Boot;
pub(crate) use disk::Disk;

/// Mode in which a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenMode {
    /// Must exist; for reading and shared locks only.
    Read,
    /// Must exist.
    ReadWrite,
    /// Must not exist.
    CreateNew,
    /// Opens the file, or creates it if it does not exist.
    OpenOrCreate,
}

/// Kind of a byte-range lock. Excludes other processes and other handles of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockKind {
    /// Any number of holders.
    Shared,
    /// One holder, and no shared ones.
    Exclusive,
}

/// Identity of a file, independent of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileIdentity {
    /// Device.
    pub device: u64,
    /// Inode on the device.
    pub inode: u64,
}

/// Metadata of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileState {
    /// Length in bytes.
    pub length: u64,
    /// False after its last name was removed.
    pub named: bool,
    /// Time of the last change of contents, name or permissions: seconds and nanoseconds, with the
    /// resolution of the kernel's clock. Zeros if unknown.
    pub changed: (i64, i64),
}

/// Namespace of files.
pub(crate) trait Storage: Send + Sync + std::fmt::Debug {
    /// Opens a file. Never follows a symbolic link. New files are readable by their owner only.
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>>;
    /// Like [`open`](Storage::open) for an existing file that is only locked, or only read by
    /// `read_at`. Saves a system call by not checking the file's type.
    fn open_any_type(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        self.open(path, mode)
    }
    /// Creates a directory for the owner only. An existing directory is an error.
    fn create_directory(&self, path: &Path) -> Result<()>;
    /// Creates a directory and its missing parents, with the usual permissions.
    fn create_directories(&self, path: &Path) -> Result<()>;
    /// Moves a file and replaces what is at `to`. Durable after `sync_directory` of both parents.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Removes a file's name. Durable after `sync_directory` of the parent.
    fn remove(&self, path: &Path) -> Result<()>;
    /// Lists the names in a directory, in no particular order.
    fn list(&self, path: &Path) -> Result<Vec<String>>;
    /// Makes the names in a directory durable.
    fn sync_directory(&self, path: &Path) -> Result<()>;
    /// Opens the file system that holds `path`. Its flush reports write errors that happen from now
    /// on.
    fn file_system(&self, path: &Path) -> Result<Box<dyn FileSystem>>;
    /// Returns the identity of a directory.
    fn directory_identity(&self, path: &Path) -> Result<FileIdentity>;
    /// Returns the identity of the file that has this name now.
    fn file_identity(&self, path: &Path) -> Result<FileIdentity>;
    /// Returns this storage with a directory held open. Paths that begin with `path` then lead to
    /// the files of that directory, even if it is moved or replaced. Returns `None` if this storage
    /// knows paths only.
    fn enter(&self, _path: &Path) -> Result<Option<Arc<dyn Storage>>> {
        Ok(None)
    }
    /// Returns the absolute path of an existing file, without symbolic links and `..`. A storage
    /// without links returns `path`.
    fn resolve(&self, path: &Path) -> Result<PathBuf> {
        Ok(path.to_path_buf())
    }
    /// Returns true if a file system is mounted at `path`. No rename replaces such a directory.
    fn is_mount_point(&self, _path: &Path) -> bool {
        false
    }
    /// Returns the directory in which this user's programs keep state between runs. It may not
    /// exist yet. `None` if no such directory is defined, or another user owns it.
    fn state_directory(&self) -> Option<PathBuf> {
        None
    }
    /// Swaps the names of two directories in one step. Returns false if that is not supported.
    /// Durable after `sync_directory` of both parents.
    fn exchange(&self, _one: &Path, _other: &Path) -> Result<bool> {
        Ok(false)
    }
    /// Removes a directory with all its contents.
    fn remove_all(&self, path: &Path) -> Result<()> {
        Err(Error::Unsupported { why: format!("cannot remove {} as a whole", path.display()) })
    }
}

/// A whole file system.
pub(crate) trait FileSystem: Send + Sync + std::fmt::Debug {
    /// Makes all written data durable with one call, instead of one flush per file.
    fn sync(&self) -> Result<()>;
}

/// An open file. Offsets and lengths are in bytes.
pub(crate) trait File: Send + Sync + std::fmt::Debug {
    /// Path under which it was opened, for messages.
    fn path(&self) -> &Path;
    /// Reads up to `buffer.len()` bytes; fewer only at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize>;
    /// Writes all of `bytes`.
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()>;
    /// Writes all of `bytes` and returns when they, and the metadata needed to read them, are
    /// durable. Other bytes of the file may not be.
    fn write_at_durable(&self, bytes: &[u8], offset: u64) -> Result<()>;
    /// Reserves disk blocks for a range and extends the file to its end, so that no later write
    /// into the range runs out of space. New bytes read as zero.
    fn allocate(&self, offset: u64, length: u64) -> Result<()>;
    /// Releases the disk blocks of a range: it then reads as zeros, and the file keeps its length.
    /// Durable after `sync_data`. Returns false, with nothing changed, if that is not supported.
    fn punch_hole(&self, offset: u64, length: u64) -> Result<bool>;
    /// Truncates the file, or extends it by a hole.
    fn set_length(&self, length: u64) -> Result<()>;
    /// Length of the file.
    fn length(&self) -> Result<u64>;
    /// Length of the file, without a system call the first time after it was opened. For checks
    /// right after opening.
    fn length_after_open(&self) -> Result<u64> {
        self.length()
    }
    /// Bytes that the file occupies on the disk.
    fn disk_bytes(&self) -> Result<u64>;
    /// Makes the file's bytes durable, including stores through mappings.
    fn sync_data(&self) -> Result<()>;
    /// Starts writing a range to the disk, without waiting and without any guarantee, to shorten a
    /// later flush.
    fn start_write_back(&self, _offset: u64, _length: u64) {}
    /// Tells the page cache that access is random: small folios, no read-ahead.
    fn advise_random(&self) -> Result<()>;
    /// Tries to lock `length` bytes from `offset`. Returns false if another holder conflicts. A
    /// lock held through the same `File` never conflicts and is changed in place.
    fn try_lock(&self, kind: LockKind, offset: u64, length: u64) -> Result<bool>;
    /// Tries to lock one byte exclusively for as long as this `File` and this process live. No
    /// child of this process holds the lock, where the system supports that.
    fn try_lock_for_good(&self, offset: u64) -> Result<bool> {
        self.try_lock(LockKind::Exclusive, offset, 1)
    }
    /// From now on, this file's locks end when no process, children included, has the file open or
    /// mapped. Without this call, forked children hold no locks.
    fn leave_locks_to_children(&self) {}
    /// Opens the same file again for reading, with separate locks.
    fn again(&self) -> Result<Arc<dyn File>> {
        Err(Error::Unsupported { why: format!("{} cannot be opened twice", self.path().display()) })
    }
    /// Returns offset and length of the first lock of another holder that conflicts with an
    /// exclusive one.
    fn lock_holder(&self, offset: u64, length: u64) -> Result<Option<(u64, u64)>>;
    /// Unlocks a range.
    fn unlock(&self, offset: u64, length: u64) -> Result<()>;
    /// Returns the same open file, including its locks, under the name that it was moved to.
    /// Dropping this value then releases no lock.
    fn with_path(&self, path: &Path) -> Result<Arc<dyn File>>;
    /// Returns false after the last name of the file was removed.
    fn has_a_name(&self) -> Result<bool>;
    /// Returns the identity of the file.
    fn identity(&self) -> Result<FileIdentity>;
    /// Returns length, name state and time of the last change with one call.
    fn state(&self) -> Result<FileState> {
        Ok(FileState { length: self.length()?, named: self.has_a_name()?, changed: (0, 0) })
    }
    /// Copies the first `length` bytes of `source` into this empty file by system means: shared
    /// blocks, or a copy inside the kernel. Not flushed. Holes stay holes, and bytes past the end
    /// of the source become a hole. Returns false, with nothing changed, if no such means is
    /// available.
    fn copy_from(&self, source: &dyn File, length: u64) -> Result<bool>;
    /// Returns start and end of the first page-aligned range at or after `offset` that may hold
    /// other bytes than zeros, or `None` if there is none up to the end of the file.
    fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>>;
    /// Returns true if reading a hole through a mapping takes space, as on tmpfs. On a full file
    /// system such a read raises a signal.
    fn fills_holes_when_read(&self) -> bool {
        !evermap_observe::FileSystem::of(self.descriptor()).is_ok_and(|system| !system.is_memory())
    }
    /// Returns true if the file's pages are storage themselves (DAX): no page cache, and clean
    /// pages look private.
    fn is_direct(&self) -> bool;
    /// Returns true if a crash leaves each 512-byte sector as it was before or after a write. False
    /// on persistent memory, which the processor writes word by word.
    fn keeps_sectors_whole(&self) -> bool {
        !self.is_direct()
    }
    /// Returns the boot in which the file's written data can be read.
    fn boot(&self) -> Boot {
        Boot::current()
    }
    /// Lends the descriptor, for mapping.
    fn descriptor(&self) -> BorrowedFd<'_>;
}

/// Copies the first `length` bytes of `source` into the empty file `target`, and shares blocks if
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

/// Bytes copied at a time. Page-cache folios of the copy get no larger, which keeps later small
/// writes to them cheap.
const COPY_BYTES: usize = 64 * 1024;

/// Returns the directory that contains a file.
pub(crate) fn parent_of(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new(".")).to_path_buf()
}
