//! Compares a store's files with its catalog: finds object files without a name, and leftovers.
//!
//! Other processes may create and remove files during the check. A file counts as stray only if it
//! is not locked and a catalog read after that does not name it; in doubt it stays.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::layout::{ADDRESSES, BUILDING, NEW_CATALOG, OBJECTS, parse_uuid, token_of};
use crate::object::WRITER_BYTE;
use crate::storage::OpenMode;
use crate::tools::listing::Listing;
use crate::tools::report::{Findings, Repair, Report, Severity, Unchecked};

use super::object;
use super::scan::Scan;

/// Finds files that the catalog, as of `listing`, does not account for.
pub(super) fn check(scan: &Scan<'_>, report: &mut Report, listing: &Listing) -> Result<()> {
    let mut strays = Strays { scan, report, listing: listing.clone() };
    strays.objects()?;
    strays.building()?;
    strays.new_catalog()
}

struct Strays<'a> {
    scan: &'a Scan<'a>,
    report: &'a mut Report,
    listing: Listing,
}

impl Strays<'_> {
    fn names(&self, folder: &str) -> Result<Vec<String>> {
        let directory = self.scan.directory.join(folder);
        match self.scan.options.storage.list(&directory) {
            Err(e) if e.is_missing_file() => Ok(Vec::new()),
            Err(e) if e.is_no_directory() => Err(Error::not_a_directory(&directory)),
            other => other.map(|mut names| {
                names.sort_unstable();
                names
            }),
        }
    }

    fn is_named(&self, uuid: [u8; 16]) -> bool {
        self.listing.objects.iter().any(|(_, found)| found.uuid == uuid)
    }

    /// Returns true if the file still exists and the current catalog does not name it.
    fn is_stray(&mut self, file: &Path, uuid: [u8; 16]) -> bool {
        if self.is_named(uuid) {
            return false;
        }
        if let Some(fresh) = self.scan.fresh_listing() {
            self.listing = fresh;
        }
        !self.is_named(uuid) && self.opens(file)
    }

    /// Returns true if the file exists. A file that exists may still fail to open.
    fn opens(&self, file: &Path) -> bool {
        let path = self.scan.directory.join(file);
        let opened = self.scan.options.storage.open(&path, OpenMode::Read);
        !opened.is_err_and(|error| error.is_missing_file())
    }

    /// Returns true if a process creates or removes the object, or if that cannot be determined.
    ///
    /// A process that removes an object holds its lock until the files are gone. A process that
    /// creates one holds it until it has locked the catalog to name the object. So a file is stray
    /// if it is not locked *before* the catalog is read and has no name in it.
    fn is_in_work(&self, file: &Path) -> bool {
        let path = self.scan.directory.join(file);
        match self.scan.options.storage.open(&path, OpenMode::Read) {
            Ok(file) => !matches!(file.lock_holder(WRITER_BYTE, 1), Ok(None)),
            Err(error) => !error.is_missing_file(),
        }
    }

    fn objects(&mut self) -> Result<()> {
        let names = self.names(OBJECTS)?;
        for name in &names {
            let file = Path::new(OBJECTS).join(name);
            if let Some(uuid) = parse_uuid(name) {
                // The object may be removed between two of these tests. Then the lock is gone too,
                // so the existence of the file is tested last.
                if !self.is_in_work(&file)
                    && self.is_stray(&file, uuid)
                    && !self.is_in_work(&file)
                    && self.opens(&file)
                {
                    self.unnamed(file, uuid);
                }
            } else if let Some(uuid) = name.strip_suffix(".log").and_then(parse_uuid) {
                let object = Path::new(OBJECTS).join(crate::object::hex(&uuid));
                if !self.opens(&object) && self.is_stray(&file, uuid) {
                    self.leftover(file.clone(), "a log without its object", Some(file));
                }
            } else if let Some(uuid) = name.strip_suffix(".new").and_then(parse_uuid) {
                let object = Path::new(OBJECTS).join(crate::object::hex(&uuid));
                if !self.is_in_work(&object) && self.opens(&file) {
                    self.leftover(file.clone(), "a copy that was never completed", Some(file));
                }
            } else {
                self.leftover(file, "a file that is not part of a store", None);
            }
        }
        Ok(())
    }

    /// Reports an object file without a name: about to be removed, or lost.
    fn unnamed(&mut self, file: PathBuf, uuid: [u8; 16]) {
        if self.listing.doomed.contains(&uuid) {
            self.leftover(file.clone(), "the file of an object that was removed", Some(file));
            return;
        }
        let subject = self.scan.subject(OBJECTS, uuid, None, Some(self.listing.store_uuid));
        let scanned = object::check(self.scan.options, &subject, |_| {});
        if scanned.unchecked.as_ref().is_some_and(Error::is_missing_file) {
            return;
        }
        let own = scanned.own_name.clone().unwrap_or_default();
        let sound = !scanned.is_damaged && scanned.unchecked.is_none();
        self.report.findings.extend(scanned.findings);
        self.report.objects.extend(scanned.report);
        if let Some(error) = scanned.unchecked {
            let file = file.clone();
            self.report.unchecked.push(Unchecked { file, object: None, error });
        }
        if sound {
            let mut findings = Findings::new(file, None)
                .with_repair("`--repair` adds its name to the catalog again", Repair::Adopt(uuid));
            findings.damage(
                "the object's name",
                "none in the catalog",
                format!("`{own}`, the name in the file"),
            );
            self.report.findings.extend(findings.into_list());
        }
    }

    fn building(&mut self) -> Result<()> {
        for name in self.names(BUILDING)? {
            let file = Path::new(BUILDING).join(&name);
            let Some(uuid) = parse_uuid(&name) else {
                self.leftover(file, "a file that is not part of a store", None);
                continue;
            };
            if self.is_stray(&file, uuid) {
                if !self.maker_lives(uuid) && !self.is_in_work(&file) && self.is_stray(&file, uuid)
                {
                    self.leftover(file.clone(), "an object that was never completed", Some(file));
                }
            } else if self.opens(&file) && !self.maker_lives(uuid) {
                let mut findings = Findings::new(file, None);
                findings.add(
                    Severity::Leftover,
                    "the file",
                    format!("in `{BUILDING}`"),
                    format!("in `{OBJECTS}`, because its object has a name"),
                    (
                        "the next process that changes the store moves it, or use `--repair`",
                        Some(Repair::Move(uuid)),
                    ),
                );
                self.report.findings.extend(findings.into_list());
            }
        }
        Ok(())
    }

    /// Returns true if the process that generated this id is still running.
    fn maker_lives(&self, uuid: [u8; 16]) -> bool {
        let path = self.scan.directory.join(ADDRESSES);
        // In doubt the process counts as running, so its file stays.
        match self.scan.options.storage.open(&path, OpenMode::Read) {
            Ok(locks) => !matches!(locks.lock_holder(token_of(uuid), 1), Ok(None)),
            Err(error) => !error.is_missing_file(),
        }
    }

    fn new_catalog(&mut self) -> Result<()> {
        let file = PathBuf::from(NEW_CATALOG);
        if self.names("")?.iter().any(|name| name == NEW_CATALOG) && !self.is_in_work(&file) {
            self.leftover(file.clone(), "a catalog that was never completed", Some(file));
        }
        Ok(())
    }

    fn leftover(&mut self, file: PathBuf, found: &str, aside: Option<PathBuf>) {
        let remedy = match aside {
            Some(_) => "it only takes up space; use `--repair` to move it out of the store",
            None => "move it out of the store's directory",
        };
        let mut findings = Findings::new(file, None);
        let answer = (remedy, aside.map(Repair::PutAside));
        findings.add(Severity::Leftover, "the file", found, "no such file", answer);
        self.report.findings.extend(findings.into_list());
    }
}
