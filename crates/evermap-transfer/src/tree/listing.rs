//! Directory entries, read in bounded pieces and sorted by inode.
//!
//! ext4 and other file systems list names in hash order, which is random. Inodes and their data lie
//! on the disk in the order of creation. In inode order, a cold directory needs few, long reads.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use rustix::fs::{FileType, RawDir};
use rustix::io::Errno;

/// Entries read, sorted and distributed at a time: about 200 KiB with names of common length.
pub(super) const PIECE_ENTRIES: usize = 4096;

/// Names with their listed types. Uses one allocation for the names and one for the entries.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Names, each with its NUL.
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    inode: u64,
    start: u32,
    length: u32,
    kind: FileType,
}

impl Names {
    /// Creates a list with one name.
    pub(super) fn one(name: &CStr, kind: FileType) -> Names {
        let mut names = Names::default();
        names.push(name, kind, 0);
        names
    }

    pub(super) fn push(&mut self, name: &CStr, kind: FileType, inode: u64) {
        let bytes = name.to_bytes_with_nul();
        let (start, length) = (self.bytes.len() as u32, bytes.len() as u32);
        self.bytes.extend_from_slice(bytes);
        self.entries.push(Entry { inode, start, length, kind });
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn sort_by_inode(&mut self) {
        self.entries.sort_unstable_by_key(|entry| entry.inode);
    }

    /// Returns a name and its listed type, which may be [`FileType::Unknown`].
    pub(super) fn get(&self, index: usize) -> Option<(&CStr, FileType)> {
        let entry = self.entries.get(index)?;
        let (start, length) = (entry.start as usize, entry.length as usize);
        let name = CStr::from_bytes_with_nul(self.bytes.get(start..start + length)?).ok()?;
        Some((name, entry.kind))
    }
}

/// Reads a directory from its descriptor's current position.
pub(super) struct Listing<'a> {
    raw: RawDir<'a, BorrowedFd<'a>>,
}

impl<'a> Listing<'a> {
    /// `buffer` holds the entries of one system call.
    pub(super) fn new(directory: BorrowedFd<'a>, buffer: &'a mut [MaybeUninit<u8>]) -> Listing<'a> {
        Listing { raw: RawDir::new(directory, buffer) }
    }

    /// Reads up to [`PIECE_ENTRIES`] entries and appends directories and other entries to separate
    /// lists. Returns true if there may be more.
    pub(super) fn piece(
        &mut self,
        files: &mut Names,
        directories: &mut Names,
    ) -> Result<bool, Errno> {
        for _ in 0..PIECE_ENTRIES {
            let Some(entry) = self.raw.next() else { return Ok(false) };
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let kind = entry.file_type();
            let names = if kind == FileType::Directory { &mut *directories } else { &mut *files };
            names.push(name, kind, entry.ino());
        }
        Ok(true)
    }
}
