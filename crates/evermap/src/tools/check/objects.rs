//! Checks the objects that the catalog names, and their addresses in the catalog.
//!
//! Other processes may change the store between two reads, so a finding that compares an object's
//! file with the catalog is verified against a fresh catalog before it is reported.

use std::path::Path;

use crate::catalog::{Found, Lease};
use crate::error::{Error, Result};
use crate::layout::{BUILDING, CATALOG, OBJECTS};
use crate::object::{hex, lease_of};
use crate::tools::listing::Listing;
use crate::tools::report::{Findings, Repair, Report, Unchecked};

use super::leases::{contains, show};
use super::object::{self, Subject};
use super::scan::Scan;

impl Scan<'_> {
    /// Checks an object that the catalog names. Returns the addresses of its regions.
    pub(super) fn check_object(
        &self,
        report: &mut Report,
        catalog: Option<&Listing>,
        (name, found): (&str, &Found),
        done_bytes: u64,
    ) -> Vec<Lease> {
        let store_uuid = catalog.map(|listing| listing.store_uuid);
        let mut last = None;
        // The process that created the object may move its file between two attempts.
        for folder in [OBJECTS, BUILDING, OBJECTS] {
            let subject = self.subject(folder, found.uuid, Some((name, found)), store_uuid);
            let scanned = object::check(self.options, &subject, |bytes| {
                if let Some(progress) = &self.options.progress {
                    progress((done_bytes + bytes).min(self.total_bytes()), self.total_bytes());
                }
            });
            if !scanned.unchecked.as_ref().is_some_and(Error::is_missing_file) {
                last = Some((subject, scanned));
                break;
            }
        }
        let Some((subject, scanned)) = last else {
            self.report_missing_file(report, name, found);
            return Vec::new();
        };
        report.findings.extend(scanned.findings);
        report.objects.extend(scanned.report);
        if let Some(error) = scanned.unchecked {
            let (file, object) = (subject.file.clone(), Some(name.to_string()));
            report.unchecked.push(Unchecked { file, object, error });
        }
        self.check_leases(report, &subject, &scanned.leases);
        scanned.leases
    }

    fn report_missing_file(&self, report: &mut Report, name: &str, found: &Found) {
        // The object may have been removed or replaced since the catalog was read.
        let still = |l: &Listing| l.objects.iter().any(|(_, entry)| entry.uuid == found.uuid);
        if !self.fresh_listing().is_none_or(|listing| still(&listing)) {
            return;
        }
        let file = Path::new(OBJECTS).join(hex(&found.uuid));
        let mut findings = Findings::new(file, Some(name.to_string())).with_repair(
            "restore it from a backup; `--repair` removes the name from the catalog",
            Repair::Forget { name: name.to_string(), uuid: found.uuid },
        );
        findings.damage("the file", "no such file", format!("the file of object `{name}`"));
        report.findings.extend(findings.into_list());
    }

    /// Checks that the addresses in the catalog cover the object's regions.
    fn check_leases(&self, report: &mut Report, subject: &Subject<'_>, regions: &[Lease]) {
        let Some((name, found)) = subject.entry else { return };
        let covered = |leases: &[Lease]| {
            regions.iter().all(|region| leases.iter().any(|lease| contains(lease, region)))
        };
        if covered(&found.leases) {
            return;
        }
        // The object may have grown since the catalog was read. Growth is recorded there first.
        let fresh = self.fresh_listing();
        let now = fresh.iter().flat_map(|l| &l.objects).find(|(_, e)| e.uuid == found.uuid);
        if now.is_none_or(|(_, entry)| covered(&entry.leases)) {
            return;
        }
        let mut findings = Findings::new(CATALOG.into(), Some(name.to_string())).with_repair(
            "`--repair` records the addresses from the object's file",
            Repair::Leases(found.uuid),
        );
        findings.damage("the object's addresses", show(&found.leases), show(regions));
        report.findings.extend(findings.into_list());
    }

    /// Checks that no two objects have the same addresses.
    pub(super) fn check_overlaps(&self, report: &mut Report, mut owned: Vec<(Lease, String)>) {
        if let Ok(image) = self.catalog_image() {
            let own = image.superblock().regions().iter().map(lease_of);
            owned.extend(
                own.map(|(base, bytes)| (Lease { base, bytes }, "the catalog".to_string())),
            );
        }
        owned.sort_by_key(|(lease, _)| lease.base);
        for pair in owned.windows(2) {
            let [(first, one), (second, other)] = pair else { continue };
            if first.base.saturating_add(first.bytes) > second.base {
                let mut findings = Findings::new(CATALOG.into(), None);
                findings.damage(
                    "the addresses",
                    format!("{one} and {other} both contain {:#x}", second.base),
                    "separate addresses for each",
                );
                report.findings.extend(findings.into_list());
            }
        }
    }

    /// Checks the object files of a store whose catalog cannot be read.
    pub(super) fn check_files_without_catalog(&self, report: &mut Report) -> Result<()> {
        let names = match self.options.storage.list(&self.directory.join(OBJECTS)) {
            Ok(names) => names,
            Err(e) if e.is_missing_file() => return Ok(()),
            Err(e) => return Err(e),
        };
        for uuid in names.iter().filter_map(|name| crate::layout::parse_uuid(name)) {
            let subject = self.subject(OBJECTS, uuid, None, None);
            let scanned = object::check(self.options, &subject, |_| {});
            report.findings.extend(scanned.findings);
            report.objects.extend(scanned.report);
            if let Some(error) = scanned.unchecked {
                let file = subject.file.clone();
                report.unchecked.push(Unchecked { file, object: scanned.own_name, error });
            }
        }
        Ok(())
    }
}
