//! One writer's session with a guest object: the object is mapped into a guest's linear memory, and
//! the guest's program has the allocator.
//!
//! Data that the guest wrote is never trusted. The host keeps its own copy of the superblock and
//! writes it over page 0 at each commit. From the guest's superblock it takes only the description
//! of the root, which it copies first and then checks. The host treats root area, chunk map,
//! records and blocks as plain bytes and never follows an address in them. A guest that damages its
//! heap cannot harm the host.

use std::mem::offset_of;
use std::sync::Arc;
use std::time::Duration;

use super::acquire::{Acquired, acquire, cut_dead_growth};
use super::region_set::RegionSet;
use super::verification::verify_now;
use super::{Displacement, Environment, ObjectPaths};
use crate::commit::{Engine, LogPolicy, Target, WriteOptions, WriterKind};
use crate::error::{Error, Result};
use crate::format::{PAGE_BYTES, ROOT_AREA_OFFSET, RegionRecord, SCHEMA_BYTES_MAX, Superblock};

/// A guest object open for writing. Holds the writer lock while it lives. Dropping it discards
/// uncommitted changes and removes the mapping from the guest's memory.
pub(crate) struct GuestWriter {
    engine: Engine,
    region_set: Arc<RegionSet>,
    /// Superblock as the next commit will write it.
    superblock: Box<Superblock>,
    here: Displacement,
    display_name: String,
}

impl GuestWriter {
    /// Opens the object, recovers it if its last writer did not close it, and maps it.
    pub(crate) fn open(
        environment: &Environment,
        paths: &ObjectPaths,
        settings: &WriteOptions,
        timeout: Duration,
    ) -> Result<GuestWriter> {
        let acquired = acquire(environment, paths, LogPolicy::WhileOpen, settings, timeout)?;
        let Acquired { file, superblock, log, overlay, applied_elsewhere } = acquired;
        let here = environment.displacement();
        let regions = here.records_here(superblock.regions());
        let region_set = Arc::new(RegionSet::open(
            Arc::clone(&file),
            Arc::clone(&environment.space),
            Arc::clone(&environment.addresses),
            environment.region_plan(),
            &regions,
        )?);
        cut_dead_growth(&region_set, &*file, superblock.file_length, log.is_some())?;
        let engine = Engine::new(Target {
            settings: settings.clone(),
            overlay,
            applied_elsewhere,
            regions,
            file_length: superblock.file_length,
            storage: Arc::clone(&environment.storage),
            object_uuid: superblock.object_uuid,
            log_path: paths.log_path.clone(),
            policy: LogPolicy::WhileOpen,
            log,
            mapped: region_set.mapped(),
            committed: region_set.committed(),
            writer_kind: WriterKind::Guest,
            sequence: superblock.commit_sequence,
        });
        let display_name = paths.display_name.clone();
        Ok(GuestWriter { engine, region_set, superblock, here, display_name })
    }

    /// The superblock as of the last commit.
    pub(crate) fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Renames the object with the next commit.
    pub(crate) fn set_name(&mut self, name: &str) {
        self.superblock.set_name(name);
    }

    /// Number of the last commit.
    pub(crate) fn sequence(&self) -> u64 {
        self.engine.sequence()
    }

    /// The regions, with guest addresses, including uncommitted growth.
    pub(crate) fn records(&self) -> Vec<RegionRecord> {
        self.here.records_in_file(&self.region_set.records())
    }

    /// Grows the regions to at least `data_bytes` of data.
    pub(crate) fn grow_to(&self, data_bytes: u64) -> Result<()> {
        self.region_set.grow_to(data_bytes)
    }

    /// Compares every page of the last commit with its checksum.
    pub(crate) fn verify(&self) -> Result<()> {
        let regions = self.here.records_here(self.superblock.regions());
        verify_now(&**self.engine.object(), &regions, self.engine.overlay())
    }

    /// Commits. Returns false if nothing had changed. See [`Engine::commit`].
    pub(crate) fn commit(&mut self) -> Result<bool> {
        self.engine.check_usable()?;
        let growth = self.region_set.growth();
        self.check_length(growth.file_length)?;
        self.take_root()?;
        let file_length = growth.file_length;
        let records = self.records();
        let superblock = &mut self.superblock;
        let seal =
            |number, page: &mut _| superblock.seal_commit(number, page, &records, file_length);
        let file = Arc::clone(self.engine.object());
        let committed = self.engine.commit(growth, |_| Ok(()), seal)?;
        if committed {
            self.region_set.mark_committed();
        }
        if !Arc::ptr_eq(&file, self.engine.object()) {
            self.region_set.file_replaced();
        }
        Ok(committed)
    }

    /// Ends the session and discards uncommitted changes.
    pub(crate) fn close(&mut self) -> Result<()> {
        self.engine.rollback()?;
        self.region_set.rollback()?;
        self.engine.close()
    }

    /// Fails if the file is shorter than the last commit, or the next one, needs. A truncated part
    /// must not be taken for zeros.
    fn check_length(&self, next_bytes: u64) -> Result<()> {
        let file = self.engine.object();
        let (length, needed) = (file.length()?, self.superblock.file_length.max(next_bytes));
        if length >= needed {
            return Ok(());
        }
        Err(Error::Damaged {
            path: file.path().to_path_buf(),
            what: "the file's length",
            found: format!("{length} bytes"),
            expected: format!("{needed} bytes: it was truncated while it was open"),
        })
    }

    /// Copies the guest's description of its root, checks the copy, and uses only the copy.
    fn take_root(&mut self) -> Result<()> {
        let mut page: Box<Superblock> = bytemuck::zeroed_box();
        let bytes = bytemuck::bytes_of_mut(&mut *page);
        // SAFETY: page 0 of the object is mapped, and no Rust reference points into a guest's
        // memory. Any bytes are a valid copy.
        unsafe {
            let from = self.region_set.base() as *const u8;
            from.copy_to_nonoverlapping(bytes.as_mut_ptr(), PAGE_BYTES as usize);
        }
        self.check_root(&page)?;
        let superblock = &mut self.superblock;
        superblock.root_address = page.root_address;
        superblock.root_bytes = page.root_bytes;
        superblock.root_type_id = page.root_type_id;
        superblock.schema_length = page.schema_length;
        superblock.schema = page.schema;
        Ok(())
    }

    fn check_root(&self, page: &Superblock) -> Result<()> {
        let refuse = |why: &'static str| {
            Err(Error::BadGuestRoot {
                object: self.display_name.clone(),
                address: page.root_address,
                bytes: page.root_bytes,
                why,
            })
        };
        if page.schema_length as usize > SCHEMA_BYTES_MAX {
            return refuse("its description is longer than 1024 bytes");
        }
        if (page.root_address, page.root_bytes) == (0, 0) {
            return Ok(());
        }
        let Some(end) = page.root_address.checked_add(page.root_bytes) else {
            return refuse("its end overflows");
        };
        let inside = self.records().iter().enumerate().any(|(index, r)| {
            let skipped = if index == 0 { ROOT_AREA_OFFSET as u64 } else { r.meta_length };
            page.root_address >= r.base + skipped && end <= r.base + r.length
        });
        if inside { Ok(()) } else { refuse("it lies outside of the object's data") }
    }
}

// Offsets at which a guest writes the description of its root.
const _: () = assert!(offset_of!(Superblock, root_address) == 104);
const _: () = assert!(offset_of!(Superblock, root_type_id) == 120);
