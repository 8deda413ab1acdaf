//! Reads one commit of an object from its files, without mapping it.
//!
//! The commit consists of the file's pages and the log's lines on top. An address is looked up in
//! the region table, which was checked, so an address outside every region is an error and never a
//! memory access. So an image needs neither free addresses nor write permission.

use std::path::Path;
use std::sync::Arc;

use crate::commit::{Log, Overlay, locks};
use crate::error::{Error, Result};
use crate::format::{PAGE_BYTES, RegionRecord, Superblock};
use crate::object::{Loaded, LogSource, ObjectPaths, read_superblock};
use crate::storage::{File, OpenMode, Storage};

use super::report::quantity;

const PAGE: usize = PAGE_BYTES as usize;
/// Attempts to open a file that another process replaces.
const OPEN_ATTEMPTS_MAX: usize = 8;

/// A commit of an object. Holds the reader's lock, so a writer changes the file's committed pages
/// only in lines that the overlay has as well: those of an apply that had begun before.
#[derive(Debug)]
pub(super) struct Image {
    file: Arc<dyn File>,
    superblock: Box<Superblock>,
    overlay: Overlay,
    /// Number of commits in the log.
    pub(super) log_commits: u64,
    /// Size of their records in bytes.
    pub(super) log_bytes: u64,
}

impl Image {
    /// Opens the last commit as a reader does.
    pub(super) fn open(storage: &dyn Storage, paths: &ObjectPaths) -> Result<Image> {
        for _ in 0..OPEN_ATTEMPTS_MAX {
            let file = storage.open(&paths.path, OpenMode::Read)?;
            locks::begin_reading(&*file, &paths.display_name)?;
            match Image::of_locked(storage, paths, Arc::clone(&file)) {
                // The file was replaced after it was opened. Try again with the new file.
                Err(_) if !file.has_a_name()? => {}
                opened => return opened,
            }
        }
        Err(Error::Busy {
            what: paths.display_name.clone(),
            holder: "another process keeps replacing its file".to_string(),
        })
    }

    /// Reads the last commit of a file that the caller has locked.
    pub(super) fn of_locked(
        storage: &dyn Storage,
        paths: &ObjectPaths,
        file: Arc<dyn File>,
    ) -> Result<Image> {
        let lock_file = Arc::clone(&file);
        let _log_lock = locks::hold_log_for_reading(&*lock_file, &paths.display_name)?;
        let log = LogSource::Path(storage, &paths.log_path, OpenMode::Read);
        let loaded = read_superblock(&*file, log, &paths.identity)?;
        let Loaded { superblock, log, overlay } = loaded;
        let log_commits = log.as_ref().map_or(0, |log| log.sequence() - log.base_sequence());
        let log_bytes = log.as_ref().map_or(0, Log::records_bytes);
        Ok(Image { file, superblock, overlay, log_commits, log_bytes })
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

    /// Lines of the log that the file may lack.
    pub(super) fn overlay(&self) -> &Overlay {
        &self.overlay
    }

    /// Reads whole pages from a page-aligned offset of the file.
    pub(super) fn read_pages(&self, offset: u64, pages: &mut [u8]) -> Result<()> {
        let got = self.file.read_at(pages, offset)?;
        if got < pages.len() {
            return Err(Error::Damaged {
                path: self.path().to_path_buf(),
                what: "the file's length",
                found: quantity(offset + got as u64, "byte"),
                expected: format!("at least {}", quantity(offset + pages.len() as u64, "byte")),
            });
        }
        if !self.overlay.is_empty() {
            for (number, page) in (offset / PAGE_BYTES..).zip(pages.as_chunks_mut::<PAGE>().0) {
                self.overlay.patch(number, page);
            }
        }
        Ok(())
    }

    /// Reads bytes at an address. Returns false if they are not all inside one region.
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

    /// Reads a plain value at an address. Returns `None` outside the regions.
    pub(super) fn value<T: bytemuck::AnyBitPattern>(&self, address: u64) -> Result<Option<T>> {
        let mut bytes = vec![0; size_of::<T>()];
        let inside = self.read(address, &mut bytes)?;
        Ok(inside.then(|| bytemuck::pod_read_unaligned(&bytes)))
    }

    /// Returns the file offset of a range of addresses.
    fn offset_of(&self, address: u64, length: u64) -> Option<u64> {
        let end = address.checked_add(length)?;
        let region = self
            .superblock
            .regions()
            .iter()
            .find(|r| address >= r.base && end <= r.base + r.length)?;
        Some(region.file_offset + (address - region.base))
    }

    /// Iterates over the regions with their numbers.
    pub(super) fn regions(&self) -> impl Iterator<Item = (usize, &RegionRecord)> {
        self.superblock.regions().iter().enumerate()
    }
}
