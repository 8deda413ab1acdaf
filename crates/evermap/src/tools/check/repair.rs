//! Repairs the findings of a check if nothing can be lost by it.
//!
//! The catalog is rebuilt first if necessary; then the other repairs run in the order of the
//! findings. Each step that changes the catalog or an object verifies its finding again, under the
//! lock that protects it. A copy of an object is moved under the object's lock; steps that move
//! other leftovers rely on the scan before. Nothing is deleted: files are moved to the
//! [`Quarantine`] directory, and files to be changed in place are copied there first. Objects' data
//! are never changed, because only their owner can decide whether a page or its checksum is right.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::api::{Options, Store};
use crate::catalog::Found;
use crate::error::{Error, Result};
use crate::layout::{BUILDING, CATALOG, CATALOG_LOG, OBJECTS, parse_uuid};
use crate::object::{CONTENT_BYTE, WRITER_BYTE, hex, lock_byte, peek};
use crate::storage::{File, LockKind, OpenMode};
use crate::tools::checksums;
use crate::tools::image::Image;
use crate::tools::quarantine::Quarantine;
use crate::tools::report::{Repair, Report};

use super::leases::leases_of;
use super::options::CheckOptions;
use super::rebuild;
use super::scan::{Scan, ScanResult};

/// Repairs the findings of a scan.
pub(super) fn run(directory: &Path, options: &CheckOptions, result: ScanResult) -> Result<Report> {
    let ScanResult { mut report, listing } = result;
    let mut repairer = Repairer {
        directory,
        options,
        quarantine: Quarantine::new(&options.storage, directory),
        actions: Vec::new(),
        store: None,
    };
    let rebuilds = |r: &Repair| *r == Repair::RebuildCatalog;
    if report.findings.iter().filter_map(|f| f.repair.as_ref()).any(rebuilds) {
        let done =
            rebuild::catalog(directory, options, &mut repairer.quarantine, listing.as_ref())?;
        repairer.actions.extend(done);
        mark(&mut report, &Repair::RebuildCatalog);
    }
    let mut repairs: Vec<Repair> = Vec::new();
    for finding in report.findings.iter_mut().filter(|finding| !finding.repaired) {
        let Some(repair) = &mut finding.repair else { continue };
        // Without `--accept-data`, damaged data lead to quarantine of the whole object if
        // requested.
        if let Repair::AcceptData { uuid, name } = &*repair
            && (options.quarantine || (options.is_cache)(name))
            && !options.accept_data
        {
            *repair = Repair::Quarantine { uuid: *uuid, name: Some(name.clone()) };
        }
        if !repairs.contains(repair) {
            repairs.push(repair.clone());
        }
    }
    repairs.retain(|repair| repairer.is_wanted(repair));
    for repair in &repairs {
        if repairer.repair(repair)? {
            mark(&mut report, repair);
        }
    }
    let Repairer { quarantine, actions, store, .. } = repairer;
    drop(store);
    report.actions = actions;
    report.kept_in = quarantine.folder().map(Path::to_path_buf);
    Ok(report)
}

fn mark(report: &mut Report, repair: &Repair) {
    let answered = report.findings.iter_mut().filter(|f| f.repair.as_ref() == Some(repair));
    answered.for_each(|finding| finding.repaired = true);
}

/// State of a running repair.
struct Repairer<'a> {
    directory: &'a Path,
    options: &'a CheckOptions,
    quarantine: Quarantine<'a>,
    actions: Vec<String>,
    /// Opened by the first step that changes the catalog.
    store: Option<Store>,
}

impl Repairer<'_> {
    fn is_wanted(&self, repair: &Repair) -> bool {
        match repair {
            Repair::AcceptData { .. } => self.options.accept_data,
            Repair::Quarantine { name, .. } => {
                let is_cache = name.as_deref().is_some_and(self.options.is_cache);
                self.options.quarantine || is_cache
            }
            Repair::RebuildCatalog => false,
            _ => true,
        }
    }

    /// Performs one repair. Returns false if nothing was left to do, or if the object is in use.
    fn repair(&mut self, repair: &Repair) -> Result<bool> {
        let done = match repair {
            Repair::RebuildCatalog => Ok(None),
            Repair::PutAside(file) => self.put_leftover_aside(file),
            Repair::PutLogAside(file) => self.put_log_aside(file),
            Repair::Move(uuid) => self.move_home(*uuid),
            Repair::Forget { name, uuid } => self.forget(name, *uuid),
            Repair::Adopt(uuid) => self.adopt(*uuid),
            Repair::Leases(uuid) => self.record_leases(*uuid),
            Repair::AcceptData { uuid, name } => self.accept_data(*uuid, name),
            Repair::Quarantine { uuid, name } => self.quarantine(*uuid, name.as_deref()),
        };
        match done {
            Ok(Some(action)) => {
                self.actions.push(action);
                Ok(true)
            }
            Ok(None) => Ok(false),
            // Objects in use are left as they are; the other repairs continue.
            Err(Error::Busy { what, holder }) => {
                self.actions.push(format!("did not repair {what}: {holder}"));
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Opens the store, and copies its catalog before the first change.
    fn store(&mut self) -> Result<Store> {
        if let Some(store) = &self.store {
            return Ok(store.clone());
        }
        let options = Options { storage: self.options.storage.clone(), ..Options::default() };
        let store = options.open(self.directory)?;
        self.quarantine.copy(Path::new(CATALOG))?;
        self.quarantine.copy(Path::new(CATALOG_LOG))?;
        Ok(self.store.insert(store).clone())
    }

    /// Moves a leftover out of the store. A writer may be making a new copy of its object by now,
    /// so a copy is moved only while no process can write the object.
    fn put_leftover_aside(&mut self, file: &Path) -> Result<Option<String>> {
        let is_copy = file.extension().is_some_and(|extension| extension == "new");
        let stem = file.file_stem().filter(|_| is_copy);
        let uuid = stem.and_then(|stem| parse_uuid(&stem.to_string_lossy()));
        let lock = match uuid.map(|uuid| self.lock_writer(uuid)).transpose() {
            Err(e) if e.is_missing_file() => None,
            other => other?,
        };
        // The copy that was found may have become the object.
        if let Some(object) = &lock
            && !object.has_a_name()?
        {
            return Ok(None);
        }
        self.put_aside(file)
    }

    fn put_aside(&mut self, file: &Path) -> Result<Option<String>> {
        let taken = self.quarantine.take(file)?;
        Ok(taken.then(|| format!("moved {} out of the store", file.display())))
    }

    /// Locks an object against writers.
    fn lock_writer(&self, uuid: [u8; 16]) -> Result<std::sync::Arc<dyn File>> {
        let path = self.directory.join(OBJECTS).join(hex(&uuid));
        let file = self.options.storage.open(&path, OpenMode::ReadWrite)?;
        let display_name = format!("the object in {}", path.display());
        lock_byte(&*file, LockKind::Exclusive, WRITER_BYTE, Duration::ZERO, &display_name)?;
        Ok(file)
    }

    fn put_log_aside(&mut self, file: &Path) -> Result<Option<String>> {
        let name = file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let Some(uuid) = name.and_then(|name| parse_uuid(&name)) else {
            return Ok(None);
        };
        let object = self.lock_writer(uuid)?;
        if peek(&*object)?.needs_log() != Some(false) {
            return Ok(None);
        }
        self.put_aside(file)
    }

    fn move_home(&mut self, uuid: [u8; 16]) -> Result<Option<String>> {
        let (from, to) = (self.home(BUILDING, uuid), self.home(OBJECTS, uuid));
        match self.options.storage.rename(&from, &to) {
            Err(e) if e.is_missing_file() => return Ok(None),
            other => other?,
        }
        self.options.storage.sync_directory(&self.directory.join(OBJECTS))?;
        Ok(Some(format!("moved {BUILDING}/{} to {OBJECTS}", hex(&uuid))))
    }

    fn home(&self, folder: &str, uuid: [u8; 16]) -> PathBuf {
        self.directory.join(folder).join(hex(&uuid))
    }

    fn forget(&mut self, name: &str, uuid: [u8; 16]) -> Result<Option<String>> {
        let done = self.store()?.repair_missing(name, uuid)?;
        Ok(done.then(|| format!("removed `{name}` from the catalog: its file is missing")))
    }

    /// Opens an object's last commit.
    fn image(&self, uuid: [u8; 16]) -> Result<Image> {
        let scan = Scan::new(self.directory, self.options)?;
        let paths = scan.subject(OBJECTS, uuid, None, None).paths;
        Image::open(&*self.options.storage, &paths)
    }

    fn adopt(&mut self, uuid: [u8; 16]) -> Result<Option<String>> {
        let image = self.image(uuid)?;
        let s = image.superblock();
        let found = Found { uuid, created_ns: s.created_ns, leases: leases_of(&image) };
        let own = s.name();
        let name = self.store()?.repair_unnamed(&own, &found)?;
        Ok(Some(match name {
            Some(name) => format!("named {OBJECTS}/{} `{name}` in the catalog", hex(&uuid)),
            None => return Ok(None),
        }))
    }

    fn record_leases(&mut self, uuid: [u8; 16]) -> Result<Option<String>> {
        let leases = leases_of(&self.image(uuid)?);
        let done = self.store()?.repair_leases(uuid, &leases)?;
        Ok(done.then(|| format!("recorded the addresses of {OBJECTS}/{}", hex(&uuid))))
    }

    /// Recomputes the object's checksum tables from its pages.
    fn accept_data(&mut self, uuid: [u8; 16], name: &str) -> Result<Option<String>> {
        let file = self.lock_writer(uuid)?;
        let timeout = self.options.timeout;
        lock_byte(&*file, LockKind::Exclusive, CONTENT_BYTE, timeout, name)?;
        let scan = Scan::new(self.directory, self.options)?;
        let paths = scan.subject(OBJECTS, uuid, None, None).paths;
        let image = Image::of_locked(&*self.options.storage, &paths, file.clone())?;
        if !image.overlay().is_empty() {
            let what = format!("object `{name}`");
            let holder =
                "its log has commits that the file lacks; open the object for writing first".into();
            return Err(Error::Busy { what, holder });
        }
        self.quarantine.copy(&Path::new(OBJECTS).join(hex(&uuid)))?;
        checksums::recompute(&image, |offset, page| file.write_at(page, offset))?;
        file.sync_data()?;
        Ok(Some(format!("accepted the data of `{name}` and recomputed its checksums")))
    }

    /// Moves a damaged object out of the store. Readers that have it open can continue.
    fn quarantine(&mut self, uuid: [u8; 16], name: Option<&str>) -> Result<Option<String>> {
        let lock = match self.lock_writer(uuid) {
            Err(Error::Busy { what, holder }) => return Err(Error::Busy { what, holder }),
            other => other.ok(),
        };
        if let Some(name) = name
            && !self.store()?.repair_take_out(name, uuid)?
        {
            return Ok(None);
        }
        let file = Path::new(OBJECTS).join(hex(&uuid));
        self.quarantine.take(&file)?;
        self.quarantine.take(&file.with_extension("log"))?;
        drop(lock);
        let display_name =
            name.map_or_else(|| file.display().to_string(), |name| format!("`{name}`"));
        Ok(Some(format!("moved {display_name}, which is damaged, out of the store")))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_copy_is_not_moved_away_from_the_writer_that_makes_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store");
        let store = Store::create_new(&path).unwrap();
        store.create::<u64, _>("answer", 42).unwrap();
        let uuid = store.info("answer").unwrap().uuid;
        let copy = Path::new(OBJECTS).join(uuid).with_extension("new");
        std::fs::write(path.join(&copy), "half of it").unwrap();
        let options = CheckOptions::new().repair(true);
        // A writer comes after the scan.
        let found = super::super::scan(&path, &options).unwrap();
        let session = store.write::<u64>("answer").unwrap();
        let report = run(&path, &options, found).unwrap();
        assert!(path.join(&copy).exists(), "{:?}", report.actions);
        assert!(report.actions[0].starts_with("did not repair"), "{:?}", report.actions);
        session.close().unwrap();
        let found = super::super::scan(&path, &options).unwrap();
        let report = run(&path, &options, found).unwrap();
        assert!(!path.join(&copy).exists(), "{:?}", report.actions);
    }
}
