//! Copies the files of a store in use: each object at one commit, and the catalog last.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::commit::Log;
use crate::error::Result;
use crate::format::{LOG_REQUIRED, LOG_REQUIRED_OFFSET, PAGE_BYTES};
use crate::layout::{BUILDING, CATALOG, CATALOG_LOG, OBJECTS};
use crate::object::{WRITER_BYTE, hex, lock_byte};
use crate::storage::{File, LockKind, OpenMode, Storage, copy_contents};
use crate::tools::audit::{is_gone, open_found, read_listing};
use crate::tools::check::{Scan, catalog_image};
use crate::tools::image::Image;
use crate::tools::listing::Listing;
use crate::tools::report::Findings;
use crate::tools::{checksums, heap, host_tables};

use super::{BackupOptions, BackupReport};

/// Rounds without a complete copy after which the catalog is locked against changes.
const ROUNDS_MAX: usize = 8;

/// Copies one store's files to a directory.
pub(super) struct Copier<'a> {
    scan: Scan<'a>,
    options: &'a BackupOptions,
    storage: Arc<dyn Storage>,
    to: PathBuf,
    /// Objects copied, with the length of each file.
    copied: HashMap<[u8; 16], u64>,
    done_bytes: u64,
    pub(super) report: BackupReport,
}

impl<'a> Copier<'a> {
    /// Copies the store of `scan` from `storage` to the directory `to`; `final_path` is the
    /// directory in the report.
    pub(super) fn new(
        scan: Scan<'a>,
        options: &'a BackupOptions,
        storage: Arc<dyn Storage>,
        to: &Path,
        final_path: &Path,
    ) -> Copier<'a> {
        Copier {
            scan,
            options,
            storage,
            to: to.to_path_buf(),
            copied: HashMap::new(),
            done_bytes: 0,
            report: BackupReport { directory: final_path.to_path_buf(), ..BackupReport::default() },
        }
    }

    /// Copies all objects, the catalog and the host's tables.
    pub(super) fn all(&mut self) -> Result<()> {
        for folder in [OBJECTS, BUILDING] {
            self.storage.create_directory(&self.to.join(folder))?;
        }
        let mut listing = self.listing()?;
        let mut catalog_lock = None;
        for round in 0.. {
            self.copy_missing(&listing, catalog_lock.is_some())?;
            let image = catalog_image(&*self.storage, self.scan.directory)?;
            let now = read_listing(&image)?;
            let complete = now.objects.iter().all(|(_, f)| self.copied.contains_key(&f.uuid));
            if complete {
                self.drop_removed(&now)?;
                self.copy_catalog(&image)?;
                self.report.objects = self.copied.len() as u64;
                self.report.bytes = self.copied.values().sum();
                break;
            }
            listing = now;
            if round >= ROUNDS_MAX && catalog_lock.is_none() {
                catalog_lock = Some(self.lock_catalog()?);
                listing = self.listing()?;
            }
        }
        // Copy the tables after the objects. A table may have addresses of objects that the copy
        // lacks, as after a kill, but it must not lack those of an object in the copy.
        host_tables::copy(&*self.storage, self.scan.directory, &self.to)?;
        self.storage.sync_directory(&self.to.join(OBJECTS))?;
        self.storage.sync_directory(&self.to)
    }

    pub(super) fn listing(&self) -> Result<Listing> {
        let image = catalog_image(&*self.storage, self.scan.directory)?;
        read_listing(&image)
    }

    /// Locks the catalog against changes until the returned file is dropped.
    fn lock_catalog(&self) -> Result<Arc<dyn File>> {
        let file = self.storage.open(&self.scan.directory.join(CATALOG), OpenMode::ReadWrite)?;
        let timeout = self.options.check.timeout;
        lock_byte(&*file, LockKind::Exclusive, WRITER_BYTE, timeout, "the catalog")?;
        Ok(file)
    }

    /// Copies the objects that the copy lacks. A missing object was removed since the catalog was
    /// read, unless the catalog is locked (`is_final`).
    fn copy_missing(&mut self, listing: &Listing, is_final: bool) -> Result<()> {
        let total_bytes = self.scan.total_bytes();
        for (name, found) in &listing.objects {
            if self.copied.contains_key(&found.uuid) {
                continue;
            }
            let image = match open_found(&self.scan, listing, (name, found)) {
                Err(e) if is_gone(&e) && !is_final && self.has_moved(listing) => continue,
                other => other?,
            };
            let file = Path::new(OBJECTS).join(hex(&found.uuid));
            if self.options.verify {
                self.verify(&image, &file, name)?;
            }
            let bytes = self.copy(&image, &self.to.join(&file), 0)?;
            self.copied.insert(found.uuid, bytes);
            self.done_bytes += bytes;
            if let Some(progress) = &self.options.check.progress {
                progress(self.done_bytes.min(total_bytes), total_bytes);
            }
        }
        Ok(())
    }

    fn has_moved(&self, listing: &Listing) -> bool {
        self.listing().is_ok_and(|now| now.sequence != listing.sequence)
    }

    fn verify(&mut self, image: &Image, file: &Path, name: &str) -> Result<()> {
        let mut findings = Findings::new(file.to_path_buf(), Some(name.to_string()));
        heap::check(image, &mut findings)?;
        checksums::check(image, &mut findings, None, |_| {})?;
        self.report.findings.extend(findings.into_list());
        Ok(())
    }

    /// Writes an image's commit to a new file and flushes it. Returns the length.
    fn copy(&self, image: &Image, to: &Path, log_required: u32) -> Result<u64> {
        let target = write_image(&*self.storage, image, to)?;
        target.write_at(&log_required.to_le_bytes(), LOG_REQUIRED_OFFSET)?;
        target.sync_data()?;
        Ok(image.superblock().file_length)
    }

    /// Removes the copies of objects that were removed from the store during the copy.
    fn drop_removed(&mut self, listing: &Listing) -> Result<()> {
        let named: HashSet<[u8; 16]> = listing.objects.iter().map(|(_, f)| f.uuid).collect();
        let gone: Vec<[u8; 16]> =
            self.copied.keys().filter(|uuid| !named.contains(*uuid)).copied().collect();
        for uuid in gone {
            self.storage.remove(&self.to.join(OBJECTS).join(hex(&uuid)))?;
            self.copied.remove(&uuid);
        }
        Ok(())
    }

    /// Copies the catalog and creates its permanent log, empty.
    fn copy_catalog(&self, image: &Image) -> Result<()> {
        let s = image.superblock();
        self.copy(image, &self.to.join(CATALOG), LOG_REQUIRED)?;
        let log_path = self.to.join(CATALOG_LOG);
        Log::create(&*self.storage, &log_path, s.object_uuid, s.commit_sequence)?;
        Ok(())
    }
}

/// Writes an image's commit to a new file that needs no log. Does not flush it.
pub(in crate::tools) fn write_image(
    storage: &dyn Storage,
    image: &Image,
    to: &Path,
) -> Result<Arc<dyn File>> {
    let length = image.superblock().file_length;
    let target = storage.open(to, OpenMode::CreateNew)?;
    copy_contents(image.file(), &*target, length)?;
    for number in image.overlay().page_numbers() {
        // The log may have pages beyond the end, which a later commit removed.
        if (number + 1) * PAGE_BYTES > length {
            continue;
        }
        let mut page = [0; PAGE_BYTES as usize];
        image.read_pages(number * PAGE_BYTES, &mut page)?;
        target.write_at(&page, number * PAGE_BYTES)?;
    }
    target.write_at(&0u32.to_le_bytes(), LOG_REQUIRED_OFFSET)?;
    Ok(target)
}
