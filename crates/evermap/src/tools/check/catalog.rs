//! Checks the catalog: its allocator, its contents and its checksums.

use std::path::PathBuf;

use crate::catalog::{Arena, Lease};
use crate::error::Result;
use crate::format::PAGE_BYTES;
use crate::layout::{ADDRESSES, BUILDING, CATALOG, CATALOG_LOG, NEW_CATALOG, OBJECTS};
use crate::object::lease_of;
use crate::storage::OpenMode;
use crate::tools::image::Image;
use crate::tools::listing::{self, Listing};
use crate::tools::report::{Findings, ObjectReport, Repair, Report, Severity, Unchecked, quantity};
use crate::tools::{checksums, heap};

use super::leases::show;
use super::scan::Scan;

impl Scan<'_> {
    /// Checks the catalog. Returns what could be read of it, and whether it can be trusted.
    pub(super) fn check_catalog(&self, report: &mut Report) -> (Option<Listing>, bool) {
        let remedy = "`--repair` rebuilds it from the object files";
        let mut findings =
            Findings::new(CATALOG.into(), None).with_repair(remedy, Repair::RebuildCatalog);
        let mut listing = None;
        let scanned = self.read_catalog(report, &mut findings, &mut listing);
        let mut trusted = scanned.is_ok();
        if let Err(error) = scanned {
            let error = match error.is_missing_file() {
                true if self.was_never_finished() => {
                    findings.add(
                        Severity::Leftover,
                        "the store",
                        "files of a process that was killed while it created the store",
                        "a complete store, or no files",
                        (
                            "create the store again, which completes it, or use `--repair`",
                            Some(Repair::RebuildCatalog),
                        ),
                    );
                    None
                }
                true => {
                    findings.damage("the catalog", "no such file", "a catalog");
                    None
                }
                false => findings.take_error(error),
            };
            if let Some(error) = error {
                let file = PathBuf::from(CATALOG);
                report.unchecked.push(Unchecked { file, object: None, error });
            }
        }
        trusted &= !findings.has_damage();
        report.findings.extend(findings.into_list());
        (listing, trusted)
    }

    /// Returns true if there are only files that creating a store makes before its catalog has its
    /// name. Unfinished objects belong to a store that was complete once.
    fn was_never_finished(&self) -> bool {
        let list = |folder: &str| match self.options.storage.list(&self.directory.join(folder)) {
            Err(error) if error.is_missing_file() => Ok(Vec::new()),
            other => other,
        };
        let known = [ADDRESSES, BUILDING, OBJECTS, CATALOG_LOG, NEW_CATALOG];
        let is_known = |names: Vec<String>| names.iter().all(|n| known.contains(&n.as_str()));
        let is_empty = |folder| list(folder).is_ok_and(|names| names.is_empty());
        list("").is_ok_and(is_known) && is_empty(OBJECTS) && is_empty(BUILDING)
    }

    fn read_catalog(
        &self,
        report: &mut Report,
        findings: &mut Findings,
        listing: &mut Option<Listing>,
    ) -> Result<()> {
        let image = self.catalog_image()?;
        let allocated = heap::check(&image, findings)?;
        let read = &*listing.insert(listing::read(&image, findings)?);
        let pages_verified = checksums::check(&image, findings, None, |_| {})?;
        check_listing(&image, read, findings);
        if allocated.blocks != read.blocks && !findings.has_damage() {
            findings.add(
                Severity::Leftover,
                "the allocator",
                format!("{} allocated", quantity(allocated.blocks, "block")),
                format!("{}, the number reachable from the root", read.blocks),
                ("nothing to do: the other blocks only take up space", None),
            );
        }
        let log_path = self.directory.join(CATALOG_LOG);
        if let Err(error) = self.options.storage.open(&log_path, OpenMode::Read) {
            if !error.is_missing_file() {
                return Err(error);
            }
            findings.damage("the log", "no such file", "the catalog's log, which is permanent");
        }
        let s = image.superblock();
        report.objects.push(ObjectReport {
            object: None,
            file: CATALOG.into(),
            sequence: s.commit_sequence,
            file_bytes: s.file_length,
            log_commits: image.log_commits,
            blocks: allocated.blocks,
            allocated_bytes: allocated.bytes,
            pages_verified,
            blocks_reached: Some(read.blocks),
        });
        Ok(())
    }
}

/// Checks the catalog's contents for consistency.
fn check_listing(image: &Image, listing: &Listing, findings: &mut Findings) {
    for arena in &listing.arenas {
        let end = arena.base.checked_add(arena.length);
        let sound = arena.base.is_multiple_of(PAGE_BYTES)
            && end.is_some_and(|end| (arena.base..=end).contains(&arena.high_water));
        if !sound {
            findings.damage("an arena", format!("{arena:x?}"), "a high-water mark inside it");
        }
    }
    let mut arenas: Vec<&Arena> = listing.arenas.iter().collect();
    arenas.sort_by_key(|arena| arena.base);
    if arenas.windows(2).any(|w| w[0].base.saturating_add(w[0].length) > w[1].base) {
        findings.damage("the arenas", "two overlapping arenas", "disjoint arenas");
    }
    let is_allocated = |lease: &Lease| {
        let end = lease.base.saturating_add(lease.bytes);
        arenas.iter().any(|arena| lease.base >= arena.base && end <= arena.high_water)
    };
    let own = image.superblock().regions().iter().map(lease_of);
    if own.map(|(base, bytes)| Lease { base, bytes }).any(|lease| !is_allocated(&lease)) {
        let (found, expected) = ("some outside the arenas", "addresses in an arena");
        findings.damage("the catalog's addresses", found, expected);
    }
    let mut uuids = std::collections::HashSet::new();
    for (name, found) in &listing.objects {
        if let Some(lease) = found.leases.iter().find(|lease| !is_allocated(lease)) {
            let show = show(std::slice::from_ref(lease));
            let expected = "addresses below an arena's high-water mark";
            findings.damage(format!("the addresses of `{name}`"), show, expected);
        }
        if !uuids.insert(found.uuid) {
            let (found, expected) = ("the file of another name", "one name per file");
            findings.damage(format!("the file of `{name}`"), found, expected);
        }
    }
}
