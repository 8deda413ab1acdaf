//! The files of one store as a check sees them: the current catalog, and where each object's files
//! are.

use std::path::{Path, PathBuf};

use crate::catalog::{Catalog, Found};
use crate::error::{Error, Result};
use crate::format::{KIND_CATALOG, KIND_OBJECT};
use crate::layout::{ADDRESSES, CATALOG, CATALOG_LOG, OBJECTS};
use crate::object::{Identity, ObjectPaths, hex};
use crate::persist::type_description;
use crate::storage::{OpenMode, Storage};
use crate::tools::image::Image;
use crate::tools::listing::{self, Listing};
use crate::tools::report::{Findings, Report};

use super::object::Subject;
use super::options::CheckOptions;

/// Result of a scan: the report, and the catalog's contents for a repair.
pub(super) struct ScanResult {
    pub(super) report: Report,
    /// Contents of the catalog, as far as they could be read.
    pub(super) listing: Option<Listing>,
}

/// One pass over a store's files.
pub(in crate::tools) struct Scan<'a> {
    pub(in crate::tools) directory: &'a Path,
    pub(in crate::tools) options: &'a CheckOptions,
    total_bytes: u64,
}

impl<'a> Scan<'a> {
    pub(in crate::tools) fn new(
        directory: &'a Path,
        options: &'a CheckOptions,
    ) -> Result<Scan<'a>> {
        let no_store = |why: String| Error::NoStore { path: directory.to_path_buf(), why };
        let storage = &options.storage;
        storage.directory_identity(directory).map_err(|e| match e {
            Error::Io { source, .. } => no_store(source.to_string()),
            other => other,
        })?;
        let names = storage.list(directory)?;
        let has = |wanted: &str| names.iter().any(|name| name == wanted);
        if !has(CATALOG) && !has(ADDRESSES) && !has(OBJECTS) {
            return Err(no_store("the directory has neither a catalog nor objects".to_string()));
        }
        let mut scan = Scan { directory, options, total_bytes: 0 };
        if options.progress.is_some() {
            scan.total_bytes = scan.count_bytes();
        }
        Ok(scan)
    }

    /// Returns the length of all object files if there is a progress callback, otherwise 0.
    pub(in crate::tools) fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    fn count_bytes(&self) -> u64 {
        let length = |path: PathBuf| {
            let file = self.options.storage.open(&path, OpenMode::Read).ok()?;
            file.length().ok()
        };
        let folder = self.directory.join(OBJECTS);
        let names = self.options.storage.list(&folder).unwrap_or_default();
        let objects = names.iter().filter(|name| !name.ends_with(".log"));
        objects.filter_map(|name| length(folder.join(name))).sum()
    }

    pub(super) fn catalog_image(&self) -> Result<Image> {
        catalog_image(&*self.options.storage, self.directory)
    }

    /// Reads the current catalog.
    pub(in crate::tools) fn listing(&self) -> Result<Listing> {
        let image = self.catalog_image()?;
        let mut findings = Findings::new(CATALOG.into(), None);
        let listing = listing::read(&image, &mut findings)?;
        match findings.has_damage() {
            false => Ok(listing),
            true => Err(Error::Damaged {
                path: self.directory.join(CATALOG),
                what: "the catalog",
                found: "inconsistent contents".to_string(),
                expected: "contents that pass a check".to_string(),
            }),
        }
    }

    /// Reads the current catalog. Returns `None` if it can no longer be read.
    pub(super) fn fresh_listing(&self) -> Option<Listing> {
        self.listing().ok()
    }

    /// Describes an object file in `objects`, or in `building` if it was not moved yet.
    pub(in crate::tools) fn subject<'n>(
        &self,
        folder: &str,
        uuid: [u8; 16],
        entry: Option<(&'n str, &'n Found)>,
        store_uuid: Option<[u8; 16]>,
    ) -> Subject<'n> {
        let file = Path::new(folder).join(hex(&uuid));
        let display_name = match entry {
            Some((name, _)) => format!("object `{name}` of store {}", self.directory.display()),
            None => format!("{} of store {}", file.display(), self.directory.display()),
        };
        // The log is always in `objects`.
        let log_path = self.directory.join(OBJECTS).join(hex(&uuid)).with_extension("log");
        let path = self.directory.join(&file);
        let identity = Identity { store_uuid, object_uuid: Some(uuid), kind: KIND_OBJECT };
        Subject { file, paths: ObjectPaths { path, log_path, identity, display_name }, entry, uuid }
    }
}

/// Returns the paths of the catalog.
pub(in crate::tools) fn catalog_paths(directory: &Path) -> ObjectPaths {
    ObjectPaths {
        path: directory.join(CATALOG),
        log_path: directory.join(CATALOG_LOG),
        identity: Identity { store_uuid: None, object_uuid: None, kind: KIND_CATALOG },
        display_name: format!("the catalog of store {}", directory.display()),
    }
}

/// Opens the catalog's last commit and checks its type.
pub(in crate::tools) fn catalog_image(storage: &dyn Storage, directory: &Path) -> Result<Image> {
    let image = Image::open(storage, &catalog_paths(directory))?;
    let s = image.superblock();
    if s.root_type_id != Catalog::TYPE_ID {
        return Err(Error::NewerFormat {
            path: image.path().to_path_buf(),
            found: format!("a catalog of type {}", s.schema()),
            known: type_description::<Catalog>().to_string(),
        });
    }
    Ok(image)
}
