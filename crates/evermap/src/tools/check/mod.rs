//! Checks a store: its catalog, every object file, and the catalog against the files.
//!
//! A check reads and locks as a reader does, so it works while the store is in use and on a
//! read-only mount. It sees the last commit of each object. Other processes may change the store
//! between two reads, so a finding that compares two files is verified against a fresh catalog
//! before it is reported. After a repair, the store is checked again.

mod catalog;
mod files;
mod leases;
mod object;
mod objects;
mod options;
mod rebuild;
mod repair;
mod scan;

use std::path::Path;

use crate::catalog::Lease;
use crate::error::Result;
use crate::tools::one_store::in_one_store;
use crate::tools::report::{Report, Severity};

use scan::ScanResult;

pub(super) use leases::leases_of;
pub use options::CheckOptions;
pub(super) use scan::{Scan, catalog_image};

/// Checks the store in a directory, and repairs it if `options` request that.
///
/// Nothing is mapped, and every pointer is looked up before it is followed. Damage becomes a
/// [`Finding`](super::Finding), and a file that cannot be read an
/// [`Unchecked`](super::Unchecked). Reads objects with page checksums completely, and the metadata
/// of the others. Of an object that is being written, checks the last commit.
///
/// A repair needs exclusive access to each object that it changes; objects in use are left as they
/// are. It opens the store, so the store's addresses must be free in this process, or the store
/// must already be open here.
///
/// # Errors
/// `NoStore`, and the errors of a repair: `DiskFull`, `NotPermitted`, `Busy`.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("store");
/// let store = evermap::Store::create_new(&path)?;
/// store.create::<u64, _>("answer", 42)?;
/// let report = evermap::tools::check(&path, &evermap::tools::CheckOptions::new())?;
/// assert!(report.is_clean(), "{:?}", report.findings);
/// assert_eq!(report.objects.len(), 2); // the catalog and the object
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn check(directory: impl AsRef<Path>, options: &CheckOptions) -> Result<Report> {
    let directory = directory.as_ref();
    // A repair is not repeated on another store once it has begun to change this one.
    let is_good = |report: &Report| {
        options.repair || (report.findings.is_empty() && report.unchecked.is_empty())
    };
    in_one_store(directory, options, is_good, |options| {
        let mut result = scan(directory, options)?;
        if !options.repair {
            return Ok(result.report);
        }
        // A read error may be temporary. Scan again, so that only damage is repaired.
        if result.report.had_read_errors() {
            result = scan(directory, options)?;
        }
        let mut report = repair::run(directory, options, result)?;
        if !report.actions.is_empty() {
            scan_again(directory, options, &mut report)?;
        }
        Ok(report)
    })
}

/// Checks the catalog, all objects and all files.
fn scan(directory: &Path, options: &CheckOptions) -> Result<ScanResult> {
    let scan = Scan::new(directory, options)?;
    let mut report = Report { directory: directory.to_path_buf(), ..Report::default() };
    let (listing, trusted) = scan.check_catalog(&mut report);
    let known = listing.as_ref().filter(|_| trusted);
    let mut owned: Vec<(Lease, String)> = Vec::new();
    let mut done_bytes = 0;
    let objects = known.iter().flat_map(|listing| &listing.objects);
    for (name, found) in objects {
        let scanned = scan.check_object(&mut report, known, (name, found), done_bytes);
        done_bytes += report.objects.last().map_or(0, |last| last.file_bytes);
        owned.extend(scanned.into_iter().map(|lease| (lease, format!("object `{name}`"))));
    }
    if let Some(listing) = known {
        scan.check_overlaps(&mut report, owned);
        files::check(&scan, &mut report, listing)?;
    } else {
        scan.check_files_without_catalog(&mut report)?;
    }
    Ok(ScanResult { report, listing })
}

/// Scans after a repair. Adds new damage to the report, and marks findings as not repaired if the
/// damage is still there.
fn scan_again(directory: &Path, options: &CheckOptions, report: &mut Report) -> Result<()> {
    let after = scan(directory, options)?.report;
    report.objects = after.objects;
    report.unchecked = after.unchecked;
    for finding in after.findings.into_iter().filter(|f| f.severity == Severity::Damage) {
        let same = report
            .findings
            .iter_mut()
            .find(|f| f.file == finding.file && f.what == finding.what && f.found == finding.found);
        match same {
            Some(known) => known.repaired = false,
            None => report.findings.push(finding),
        }
    }
    Ok(())
}
