//! Creates an object from an export.
//!
//! The pages are staged in a file in the store's `building` directory, checked like any object
//! file, and then written for the addresses that the object gets. The object appears durably or not
//! at all; a sweeper removes what a dead process left.

use std::io::Read;
use std::path::{Path, PathBuf};

use crate::api::{Import, Options};
use crate::catalog::check_name;
use crate::error::Error as StoreError;
use crate::format::{KIND_OBJECT, PAGE_BYTES};
use crate::object::{Identity, ObjectPaths, WRITER_BYTE, hex, lease_of, lock_byte};
use crate::storage::{LockKind, OpenMode, Storage};
use crate::tools::audit::refuse_guest;
use crate::tools::check::leases_of;
use crate::tools::error::{Error, Result};
use crate::tools::heap;
use crate::tools::image::Image;
use crate::tools::rebase::{Moves, Relocation, SuperblockChanges, paths_in, plan, write};
use crate::tools::report::Findings;

use super::GUESTS_TRAVEL;
use super::file::{POINTS_ELSEWHERE, Reader};

/// Options of an import.
///
/// ```
/// let options = evermap::tools::ImportOptions::new().name("copy");
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
pub struct ImportOptions {
    name: Option<String>,
    samples: usize,
    display_name: PathBuf,
    create: bool,
    store: Options,
}

impl Default for ImportOptions {
    fn default() -> Self {
        let (display_name, store) = (PathBuf::from("-"), Options::default());
        ImportOptions { name: None, samples: 5, display_name, create: false, store }
    }
}

impl ImportOptions {
    /// Defaults: import the object under its old name into an existing store.
    pub fn new() -> ImportOptions {
        ImportOptions::default()
    }

    /// Sets the object's new name. Default: its old name.
    pub fn name(mut self, name: impl Into<String>) -> ImportOptions {
        self.name = Some(name.into());
        self
    }

    /// Sets how many rewritten words of each kind are reported with their path. Default: five.
    pub fn samples(mut self, samples: usize) -> ImportOptions {
        self.samples = samples;
        self
    }

    /// Sets the source's name in messages. Default: `-`.
    pub fn display_name(mut self, source: impl Into<PathBuf>) -> ImportOptions {
        self.display_name = source.into();
        self
    }

    /// Sets whether to create a store if the directory has none. It is created only after the
    /// beginning of the source was verified. Default: no.
    pub fn create(mut self, create: bool) -> ImportOptions {
        self.create = create;
        self
    }
}

/// Result of an import.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ImportReport {
    /// Name of the object in this store.
    pub object: String,
    /// Name in the store it was exported from.
    pub old_name: String,
    /// First address.
    pub base_address: u64,
    /// First address in the store it was exported from.
    pub old_base_address: u64,
    /// Length of its file in bytes.
    pub file_bytes: u64,
    /// True if it has pointers to other objects of its old store. They are invalid now.
    pub points_elsewhere: bool,
    /// Rewritten words; `None` if the object has its old addresses.
    pub relocation: Option<Relocation>,
}

/// Creates an object from the output of [`export`](super::export). Reads the source once, front to
/// back.
///
/// The object gets its old addresses if they belong to the store and are free. Otherwise it gets
/// others, and its pointers are rewritten as by a [`rebase`](crate::tools::rebase). The object
/// appears durably or not at all.
///
/// # Errors
/// `Foreign`, `NewerFormat` and `BadExport` if the source is not a complete export. `OtherKind` if
/// the export contains a guest object. `AlreadyExists` if the name is taken. `InvalidName`,
/// `NoStore`, `DiskFull`, `OutOfAddresses`, `NotPermitted`.
pub fn import(
    directory: impl AsRef<Path>,
    source: &mut dyn Read,
    options: &ImportOptions,
) -> Result<ImportReport> {
    let mut reader = Reader::begin(source, &options.display_name)?;
    let old_name = reader.superblock.name();
    let name = options.name.clone().unwrap_or_else(|| old_name.clone());
    // Check these before a store is created.
    refuse_guest(&reader.superblock, &old_name, GUESTS_TRAVEL)?;
    check_name(&name)?;
    let store = match options.create {
        true => options.store.open_or_create(directory)?,
        false => options.store.open(directory)?,
    };
    let mut import = store.begin_import(&name)?;
    let storage = import.storage();
    let staged = stage(&*storage, &import, &mut reader)?;
    let image = check(&*storage, &staged, options)?;
    let old = leases_of(&image);
    let old_base = image.superblock().regions()[0].base;
    let is_moved = !import.lease_exactly(&old)?;
    let mut ranges: Vec<(u64, u64, u64)> = Vec::new();
    for lease in &old {
        let to = if is_moved { import.lease(lease.bytes)? } else { lease.base };
        ranges.push((lease.base, lease.base + lease.bytes, to));
    }
    let objects = image.superblock().regions().iter().map(|r| (r.base, r.base + r.capacity));
    let moves = Moves::new(ranges, objects.collect());
    let plan = plan(&image, &name, &moves, options.samples)?;
    let identity = Some((import.store_uuid(), import.uuid, name.clone()));
    let changes = SuperblockChanges { arena: import.arena(), identity };
    let paths = paths_in(&import.folder(), import.uuid, import.store_uuid());
    let written = write(&*storage, &plan, &changes, &paths)?;
    // The lock tells a check that this process is alive.
    lock_byte(&*written, LockKind::Exclusive, WRITER_BYTE, std::time::Duration::ZERO, &name)?;
    let report = ImportReport {
        object: name,
        old_name,
        base_address: moves.of(old_base).unwrap_or(old_base),
        old_base_address: old_base,
        file_bytes: image.superblock().file_length,
        points_elsewhere: reader.flags & POINTS_ELSEWHERE != 0,
        relocation: is_moved.then_some(plan.report),
    };
    let created_ns = image.superblock().created_ns;
    import.publish(created_ns, written)?;
    Ok(report)
}

/// Writes the export's pages to a staging file, unchanged.
fn stage(storage: &dyn Storage, import: &Import, reader: &mut Reader<'_>) -> Result<ObjectPaths> {
    let path = import.folder().join(hex(&import.stage));
    let file = storage.open(&path, OpenMode::CreateNew)?;
    let superblock = *reader.superblock;
    file.set_length(superblock.file_length.max(PAGE_BYTES))?;
    file.write_at(bytemuck::bytes_of(&superblock), 0)?;
    let mut pages = Vec::new();
    while let Some(first) = reader.run(&mut pages)? {
        file.write_at(&pages, first * PAGE_BYTES)?;
    }
    let identity = Identity { store_uuid: None, object_uuid: None, kind: KIND_OBJECT };
    let display_name = path.display().to_string();
    Ok(ObjectPaths { log_path: path.with_extension("log"), path, identity, display_name })
}

/// Opens and checks the staging file. Reports damage as damage of the export.
fn check(storage: &dyn Storage, staged: &ObjectPaths, options: &ImportOptions) -> Result<Image> {
    let bad = |found: String, expected: String| Error::BadExport {
        path: options.display_name.clone(),
        found,
        expected,
    };
    let image = Image::open(storage, staged).map_err(|error| match error {
        StoreError::Damaged { what, found, expected, .. } => {
            bad(format!("{what}: {found}"), expected)
        }
        StoreError::LogMissing { .. } => {
            bad("an object that needs a log".to_string(), "an object without a log".to_string())
        }
        other => other.into(),
    })?;
    let mut findings = Findings::new(staged.path.clone(), None);
    heap::check(&image, &mut findings)?;
    if let Some(finding) = findings.into_list().into_iter().next() {
        return Err(bad(format!("{}: {}", finding.what, finding.found), finding.expected));
    }
    let mut leases: Vec<(u64, u64)> = image.superblock().regions().iter().map(lease_of).collect();
    leases.sort_unstable();
    if leases.windows(2).any(|pair| pair[0].0 + pair[0].1 > pair[1].0) {
        return Err(bad("overlapping regions".to_string(), "disjoint regions".to_string()));
    }
    Ok(image)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{FEATURE_GUEST, Superblock};
    use crate::tools::export::file::Writer;

    #[test]
    fn export_of_a_guest_object_is_refused_before_a_store_is_created() {
        let mut superblock: Box<Superblock> = bytemuck::zeroed_box();
        superblock.features_incompatible = FEATURE_GUEST;
        superblock.file_length = PAGE_BYTES;
        superblock.set_name("app:heap");
        let mut file = Vec::new();
        Writer::begin(&mut file, Path::new("-"), &superblock, 0).unwrap().finish().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let (path, options) = (directory.path().join("store"), ImportOptions::new().create(true));
        let refused = import(&path, &mut file.as_slice(), &options).unwrap_err();
        let Error::Store(StoreError::OtherKind { what, .. }) = &refused else {
            panic!("{refused}");
        };
        assert!(what.contains("app:heap"), "{refused}");
        assert!(!path.exists());
    }
}
