//! What is in a directory, read in bounded pieces and put into the order of inodes.
//!
//! ext4 (and not only it) lists names in the order of their hashes, which is random; inodes and the data behind
//! them lie on the disk in the order in which they were made. Read in that order, a cold directory is read with few, long
//! reads.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use rustix::fs::{FileType, RawDir};
use rustix::io::Errno;

/// Entries that are read, sorted and shared out at a time: with names of ordinary length, about 200 KiB.
pub(super) const PIECE_ENTRIES: usize = 4096;

/// Names with what the directory says they are. One allocation for all names, one for the entries.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Each with its NUL.
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
    /// With one name.
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

    /// A name and what the directory says of it, which may be [`FileType::Unknown`].
    pub(super) fn get(&self, index: usize) -> Option<(&CStr, FileType)> {
        let entry = self.entries.get(index)?;
        let (start, length) = (entry.start as usize, entry.length as usize);
        let name = CStr::from_bytes_with_nul(self.bytes.get(start..start + length)?).ok()?;
        Some((name, entry.kind))
    }
}

/// Reads a directory from wherever its descriptor stands.
pub(super) struct Listing<'a> {
    raw: RawDir<'a, BorrowedFd<'a>>,
}

impl<'a> Listing<'a> {
    /// `buffer` is what one call fills.
    pub(super) fn new(directory: BorrowedFd<'a>, buffer: &'a mut [MaybeUninit<u8>]) -> Listing<'a> {
        Listing { raw: RawDir::new(directory, buffer) }
    }

    /// Adds up to [`PIECE_ENTRIES`] to what was given: directories to one, all else to the other. Whether there may be
    /// more.
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
