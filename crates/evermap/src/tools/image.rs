//! One commit of an object, read from its files without mapping it.
//!
//! The commit is the file's pages with the log's lines over them. Everything here is a bounded read:
//! an address is looked up in the region table, which was checked, and what lies outside of every
//! region is an error and never a memory access. So an image can be had of any file, also where its
//! addresses are taken, and without permission to write.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::commit::Commit;
use crate::error::{Error, Result};
use crate::format::{LINE_BYTES, PAGE_BYTES, PAGE_LINES, RegionRecord, Superblock};
use crate::object::{CONTENT_BYTE, Loaded, LogSource, Place, lock_byte, read_superblock};
use crate::storage::{File, LockKind, OpenMode, Storage};

/// Bytes of a page.
const PAGE: usize = PAGE_BYTES as usize;
/// How often a file that was replaced while it was being opened is opened again.
const OPENINGS_MAX: usize = 8;

/// A commit of an object. Holds the reader's lock while it lives: nobody changes pages that the
/// log does not have.
#[derive(Debug)]
pub(super) struct Image {
    file: Arc<dyn File>,
    superblock: Box<Superblock>,
    lines: Lines,
    /// Commits that only the log has.
    pub(super) log_commits: u64,
}

impl Image {
    /// Opens the last commit as a reader does.
    pub(super) fn open(storage: &dyn Storage, place: &Place, patience: Duration) -> Result<Image> {
        let file = open_locked(storage, place, patience)?;
        Image::of_locked(storage, place, file)
    }

    /// The last commit of a file that the caller has locked.
    pub(super) fn of_locked(
        storage: &dyn Storage,
        place: &Place,
        file: Arc<dyn File>,
    ) -> Result<Image> {
        let log = LogSource::Path(storage, &place.log_path, OpenMode::Read);
        let Loaded { superblock, commits, .. } = read_superblock(&*file, log, &place.identity)?;
        let lines = Lines::of(&commits);
        Ok(Image { file, superblock, lines, log_commits: commits.len() as u64 })
    }

    pub(super) fn file(&self) -> &dyn File {
        &*self.file
    }

    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    pub(super) fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Pages of which the log has newer lines, each with all of its lines.
    pub(super) fn changed_pages(&self) -> impl Iterator<Item = u64> + '_ {
        self.lines.pages.keys().copied()
    }

    /// Reads whole pages from a page-aligned offset of the file.
    pub(super) fn read_pages(&self, offset: u64, pages: &mut [u8]) -> Result<()> {
        let got = self.file.read_at(pages, offset)?;
        if got < pages.len() {
            return Err(Error::Damaged {
                path: self.path().to_path_buf(),
                what: "the file's length",
                found: format!("{} bytes", offset + got as u64),
                expected: format!("at least {} bytes", offset + pages.len() as u64),
            });
        }
        self.lines.lay_over(offset / PAGE_BYTES, pages);
        Ok(())
    }

    /// Reads what lies at an address; false when it does not lie inside one region.
    pub(super) fn read(&self, address: u64, bytes: &mut [u8]) -> Result<bool> {
        let Some(offset) = self.offset_of(address, bytes.len() as u64) else {
            return Ok(false);
        };
        let first = offset / PAGE_BYTES * PAGE_BYTES;
        let end = (offset + bytes.len() as u64).next_multiple_of(PAGE_BYTES);
        let mut pages = vec![0; (end - first) as usize];
        self.read_pages(first, &mut pages)?;
        let at = (offset - first) as usize;
        bytes.copy_from_slice(&pages[at..at + bytes.len()]);
        Ok(true)
    }

    /// A value of plain bytes at an address.
    pub(super) fn value<T: bytemuck::AnyBitPattern>(&self, address: u64) -> Result<Option<T>> {
        let mut bytes = vec![0; size_of::<T>()];
        let inside = self.read(address, &mut bytes)?;
        Ok(inside.then(|| bytemuck::pod_read_unaligned(&bytes)))
    }

    /// Where in the file a range of addresses lies.
    fn offset_of(&self, address: u64, length: u64) -> Option<u64> {
        let end = address.checked_add(length)?;
        let region = self
            .superblock
            .regions()
            .iter()
            .find(|r| address >= r.base && end <= r.base + r.length)?;
        Some(region.file_offset + (address - region.base))
    }

    /// The regions with their numbers.
    pub(super) fn regions(&self) -> impl Iterator<Item = (usize, &RegionRecord)> {
        self.superblock.regions().iter().enumerate()
    }
}

/// Opens an object file and locks it as its readers do. A file that lost its name meanwhile was
/// replaced: then the name leads to another one.
fn open_locked(storage: &dyn Storage, place: &Place, patience: Duration) -> Result<Arc<dyn File>> {
    for _ in 0..OPENINGS_MAX {
        let file = storage.open(&place.path, OpenMode::Read)?;
        lock_byte(&*file, LockKind::Shared, CONTENT_BYTE, patience, &place.called)?;
        if file.has_a_name()? {
            return Ok(file);
        }
    }
    Err(Error::Busy {
        what: place.called.clone(),
        holder: "another process replaces its file again and again".to_string(),
    })
}

/// The lines that the log has and the file may lack: page number to a mask and the lines' bytes,
/// lowest first. As large as the log's records, whatever they name.
#[derive(Debug, Default)]
struct Lines {
    pages: BTreeMap<u64, (u64, Vec<u8>)>,
}

impl Lines {
    fn of(commits: &[Commit]) -> Lines {
        let mut lines = Lines::default();
        for commit in commits {
            for (page, mask, bytes) in commit.pages() {
                let kept = lines.pages.entry(page).or_default();
                *kept = merge((kept.0, &kept.1), (mask, bytes));
            }
        }
        lines
    }

    /// Lays the lines over pages that begin with page `first` of the file.
    fn lay_over(&self, first: u64, pages: &mut [u8]) {
        let end = first + (pages.len() / PAGE) as u64;
        for (page, (mask, lines)) in self.pages.range(first..end) {
            let start = (page - first) as usize * PAGE;
            for (line, bytes) in lines_of(*mask, lines) {
                let at = start + line * LINE_BYTES;
                pages[at..at + LINE_BYTES].copy_from_slice(bytes);
            }
        }
    }
}

fn lines_of(mask: u64, lines: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let numbers = (0..PAGE_LINES).filter(move |line| mask >> line & 1 == 1);
    numbers.zip(lines.chunks_exact(LINE_BYTES))
}

/// Both sets of lines, the newer one where both have a line.
fn merge(older: (u64, &[u8]), newer: (u64, &[u8])) -> (u64, Vec<u8>) {
    let mask = older.0 | newer.0;
    let mut from_older = lines_of(older.0, older.1).peekable();
    let mut from_newer = lines_of(newer.0, newer.1).peekable();
    let mut bytes = Vec::with_capacity(mask.count_ones() as usize * LINE_BYTES);
    for line in (0..PAGE_LINES).filter(|line| mask >> line & 1 == 1) {
        let old = from_older.next_if(|(number, _)| *number == line);
        let new = from_newer.next_if(|(number, _)| *number == line);
        bytes.extend(new.or(old).into_iter().flat_map(|(_, bytes)| bytes));
    }
    (mask, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(value: u8) -> [u8; LINE_BYTES] {
        [value; LINE_BYTES]
    }

    #[test]
    fn the_newest_line_wins_and_the_others_stay() {
        let older = [line(1), line(2), line(3)].concat();
        let newer = [line(9), line(8)].concat();
        let (mask, bytes) = merge((0b1011, &older), (0b1000_0000_0010, &newer[..]));
        assert_eq!(mask, 0b1000_0000_1011);
        assert_eq!(bytes, [line(1), line(9), line(3), line(8)].concat());
        let mut lines = Lines::default();
        lines.pages.insert(7, (0b101, [line(5), line(6)].concat()));
        let mut pages = vec![0; 2 * PAGE];
        lines.lay_over(6, &mut pages);
        assert!(pages[..PAGE].iter().all(|b| *b == 0));
        assert_eq!(pages[PAGE..PAGE + LINE_BYTES], line(5));
        assert_eq!(pages[PAGE + LINE_BYTES..PAGE + 2 * LINE_BYTES], line(0));
        assert_eq!(pages[PAGE + 2 * LINE_BYTES..PAGE + 3 * LINE_BYTES], line(6));
    }
}
