//! One commit of an object, mapped for reading.
//!
//! A reader never writes to the store: lines that are in the log and not in the object file are
//! patched into private pages. So it works without write permission, on a read-only mount and
//! during commits, and its cost does not depend on the object's size. The content lock must be held
//! for as long as anything is mapped.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::superblock::{self, Loaded};
use super::touched::Touched;
use super::verification::{BackgroundVerification, damage, verify_now};
use super::{Environment, ObjectPaths};
use crate::address::{AccessKey, Mapping, Sharing, populate_runs};
use crate::commit::checksums::Tables;
use crate::commit::locks;
use crate::commit::{Log, LogPosition, Overlay, first_bad_mapped, for_each_run};
use crate::error::{Error, Result};
use crate::format::{PAGE_BYTES, RegionRecord, Superblock};
use crate::storage::{File, OpenMode, Storage};

/// Effect of stores into a commit that is mapped for reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writes {
    /// They fault.
    Fault,
    /// They are visible through this mapping only, and lost when it ends.
    Private,
}

/// A mapped commit. Holds the content lock shared while the commit, or its copy in a child, is
/// mapped.
#[derive(Debug)]
pub(crate) struct Reader {
    superblock: Box<Superblock>,
    log_position: LogPosition,
    /// The regions, with this process's addresses.
    regions: Vec<RegionRecord>,
    /// Lines that are in the log and not in the file.
    overlay: Overlay,
    mappings: Vec<Mapping>,
    /// Held while a page is writable for a patch.
    patching: Mutex<()>,
    touched: Touched,
    file: Arc<dyn File>,
}

impl Reader {
    /// Maps the last commit without waiting for a writer.
    pub(crate) fn open(environment: &Environment, paths: &ObjectPaths) -> Result<Reader> {
        Reader::open_for(environment, paths, Writes::Fault)
    }

    /// Like [`open`](Reader::open), with a choice of what stores do.
    pub(crate) fn open_for(
        environment: &Environment,
        paths: &ObjectPaths,
        writes: Writes,
    ) -> Result<Reader> {
        let file = environment.storage.open(&paths.path, OpenMode::Read)?;
        // The mappings keep the file open, and with it this lock, in this process and its children.
        file.leave_locks_to_children();
        locks::begin_reading(&*file, &paths.display_name)?;
        let opened = Arc::clone(&file);
        let loaded = superblock::read_shared(&*file, (&*environment.storage, paths));
        match loaded.and_then(|loaded| Reader::map(environment, paths, file, loaded, writes)) {
            // The file was replaced or removed in the meantime, and the log may belong to the new
            // file.
            Err(_) if !opened.has_a_name()? => {
                let source = std::io::ErrorKind::NotFound.into();
                Err(Error::from_io(source, "open", &paths.path))
            }
            opened => opened,
        }
    }

    /// Like [`open`](Reader::open), for a file whose content the caller has locked and whose
    /// superblock it has read since.
    pub(crate) fn from_locked(
        environment: &Environment,
        paths: &ObjectPaths,
        file: Arc<dyn File>,
        loaded: Loaded,
    ) -> Result<Reader> {
        let reader = Reader::map(environment, paths, file, loaded, Writes::Fault)?;
        // The caller may release its lock at any time, so a child must not keep the memory.
        for (region, mapping) in reader.regions.iter().zip(&reader.mappings) {
            mapping.leave_out_of_children(region.base, region.length);
        }
        Ok(reader)
    }

    fn map(
        environment: &Environment,
        paths: &ObjectPaths,
        file: Arc<dyn File>,
        loaded: Loaded,
        writes: Writes,
    ) -> Result<Reader> {
        let Loaded { superblock, log, overlay } = loaded;
        environment.check_kind(paths, &superblock)?;
        let regions = environment.displacement().records_here(superblock.regions());
        let read_only = writes == Writes::Fault;
        let sharing = match writes {
            Writes::Fault if overlay.is_empty() => Sharing::ReadOnly,
            Writes::Fault | Writes::Private => Sharing::PrivateCopy,
        };
        let mut mappings = Vec::new();
        for region in &regions {
            let mapping = environment.space.claim(region.base, region.capacity)?;
            mapping.map(&*file, region.base, region.length, region.file_offset, sharing)?;
            mappings.push(mapping);
        }
        if !overlay.is_empty() {
            patch(&regions, &mappings, &overlay, &file)?;
            for (region, mapping) in regions.iter().zip(&mappings).filter(|_| read_only) {
                mapping.protect_read_only(region.base, region.length)?;
            }
        }
        let log_position = log.as_ref().map(|l| l.position()).unwrap_or_default();
        Ok(Reader {
            superblock,
            log_position,
            regions,
            overlay,
            mappings,
            patching: Mutex::default(),
            touched: Touched::default(),
            file,
        })
    }

    /// The commit's superblock.
    pub(crate) fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// The commit's regions, with this process's addresses.
    pub(crate) fn regions(&self) -> &[RegionRecord] {
        &self.regions
    }

    /// Position of the log when the commit was read.
    pub(crate) fn log_position(&self) -> LogPosition {
        self.log_position
    }

    /// Returns true if this is still the newest commit. Costs a few small reads.
    pub(crate) fn is_current(&self, storage: &dyn Storage, log_path: &Path) -> Result<bool> {
        if !self.file.has_a_name()? {
            return Ok(false);
        }
        let stored = superblock::peek(&*self.file)?;
        let sequence = self.superblock.commit_sequence;
        if stored.needs_log() == Some(false) {
            return Ok(stored.commit_sequence == sequence);
        }
        let log = match storage.open(log_path, OpenMode::Read) {
            Ok(log) => log,
            // Its writer has just closed the object.
            Err(e) if e.is_missing_file() => return Ok(false),
            Err(e) => return Err(e),
        };
        let position = self.log_position;
        let moved = Log::moved_since(&*log, self.superblock.object_uuid, position, sequence)?;
        Ok(!moved && stored.commit_sequence <= sequence)
    }

    /// Replaces bytes of the commit as this process sees it.
    ///
    /// # Safety
    /// The bytes lie in the data of one region, and no other thread reads them during the call.
    pub(crate) unsafe fn patch(&self, address: u64, bytes: &[u8]) -> Result<()> {
        let regions = self.regions.iter().zip(&self.mappings);
        let length = bytes.len() as u64;
        for (region, mapping) in regions {
            if address >= region.base && address - region.base < region.length {
                let _patching = self.patching.lock().unwrap_or_else(PoisonError::into_inner);
                let first = address - address % PAGE_BYTES;
                let pages = (address + length).next_multiple_of(PAGE_BYTES) - first;
                mapping.protect_writable(first, pages)?;
                // SAFETY: private pages of the region, writable now; the rest is the caller's
                // promise.
                unsafe {
                    (address as *mut u8).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
                }
                return mapping.protect_read_only(first, pages);
            }
        }
        Ok(())
    }

    /// The mappings, one for each region.
    pub(crate) fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }

    /// Puts the mappings under an embedder's protection key.
    pub(crate) fn set_protection_key(&self, key: &AccessKey) -> Result<()> {
        let regions = self.superblock.regions().iter().zip(&self.mappings);
        for (region, mapping) in regions {
            mapping.set_protection_key(key.key(), region.length, false)?;
        }
        Ok(())
    }

    /// Prefaults and maps all pages.
    pub(crate) fn warm(&self) -> Result<()> {
        let parts: Vec<_> = self
            .regions
            .iter()
            .map(|region| evermap_load::MappedPart {
                address: region.base as usize,
                offset_bytes: region.file_offset,
                bytes: region.length as usize,
            })
            .collect();
        evermap_load::warm(self.file.descriptor(), &parts)
            .map_err(|e| Error::from_io(e, "read", self.file.path()))
    }

    /// Compares every page with its checksum.
    pub(crate) fn verify(&self) -> Result<()> {
        verify_now(&*self.file, self.superblock.regions(), &self.overlay)
    }

    /// Like [`verify`](Reader::verify), but reads through the mapping; for small objects.
    pub(crate) fn verify_mapped(&self) -> Result<()> {
        // SAFETY: the regions are mapped for reading as long as `self` lives, and its pages are one
        // commit's.
        let bad = unsafe { first_bad_mapped(&self.regions, &self.overlay) };
        bad.map_or(Ok(()), |page| Err(damage(&*self.file, page)))
    }

    /// Compares the pages that hold `length` bytes from `address` with their checksums, each page
    /// once. Returns false if one of them has no checksum.
    pub(crate) fn verify_range(&self, address: u64, length: u64) -> Result<bool> {
        // SAFETY: the regions are mapped for reading as long as `self` lives, never change, and
        // their pages are one commit's.
        let judged = unsafe { self.touched.verify(&self.regions, &self.overlay, address, length) };
        judged.map_err(|page| damage(&*self.file, page))
    }

    /// Starts [`verify`](Reader::verify) in a thread.
    pub(crate) fn verify_in_background(&self) -> Result<BackgroundVerification> {
        let regions = self.superblock.regions().to_vec();
        BackgroundVerification::start(Arc::clone(&self.file), regions, self.overlay.clone(), None)
    }

    /// The object file.
    pub(crate) fn file(&self) -> &Arc<dyn File> {
        &self.file
    }
}

/// Writes the log's lines over the private pages. Skips checksum tables, which are never read
/// through a mapping.
fn patch(
    regions: &[RegionRecord],
    mappings: &[Mapping],
    overlay: &Overlay,
    file: &Arc<dyn File>,
) -> Result<()> {
    let length = file.length()?;
    if let Some(long) = regions.iter().find(|r| length < r.file_offset + r.length) {
        return Err(Error::Damaged {
            path: file.path().to_path_buf(),
            what: "the file's length",
            found: format!("{length} bytes"),
            expected: format!("{} bytes", long.file_offset + long.length),
        });
    }
    let tables = Tables::of(regions);
    let mut pages = Vec::new();
    for number in overlay.page_numbers() {
        let offset = number.saturating_mul(PAGE_BYTES);
        let region = regions
            .iter()
            .position(|r| offset >= r.file_offset && offset - r.file_offset < r.length);
        // A later commit released this page.
        let Some(region) = region.filter(|_| !tables.is_table_page(number)) else { continue };
        let address = regions[region].base + (offset - regions[region].file_offset);
        pages.push((number, &mappings[region], address));
    }
    populate_runs(&pages.iter().map(|p| (p.1, p.2, PAGE_BYTES)).collect::<Vec<_>>());
    for (number, _, address) in pages {
        let Some((mask, lines)) = overlay.lines(number) else { continue };
        for_each_run(mask, lines, |at, bytes| {
            let to = (address + at as u64) as *mut u8;
            // SAFETY: the page lies in the region, which `from_locked` mapped writable and
            // private; no reference into it exists yet. A run ends inside its page.
            unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        });
    }
    Ok(())
}
