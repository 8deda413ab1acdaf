//! Checks one object file and its log, from superblock to page checksums.
//!
//! The file may belong to a name in the catalog or to none. Damage becomes findings that a repair
//! answers by moving the object out of the store; other errors leave the file unchecked.

use std::sync::Arc;

use crate::catalog::{Found, Lease};
use crate::commit::Log;
use crate::error::Error;
use crate::object::{ObjectPaths, WRITER_BYTE};
use crate::storage::{File, OpenMode};
use crate::tools::image::Image;
use crate::tools::report::{Finding, Findings, ObjectReport, Repair, Severity, quantity};
use crate::tools::{checksums, heap};

use super::leases::leases_of;
use super::options::CheckOptions;

/// Object file to be checked.
pub(in crate::tools) struct Subject<'a> {
    /// File, relative to the store's directory.
    pub(super) file: std::path::PathBuf,
    pub(in crate::tools) paths: ObjectPaths,
    /// Name and entry in the catalog; `None` for a file without a name.
    pub(super) entry: Option<(&'a str, &'a Found)>,
    pub(super) uuid: [u8; 16],
}

/// Result of the check of one object file.
pub(super) struct ObjectScan {
    pub(super) report: Option<ObjectReport>,
    pub(super) findings: Vec<Finding>,
    pub(super) unchecked: Option<Error>,
    /// Addresses of its regions, if they could be read.
    pub(super) leases: Vec<Lease>,
    /// Name stored in the file.
    pub(super) own_name: Option<String>,
    pub(super) is_damaged: bool,
}

/// Checks an object file. Calls `progress` with the number of bytes done.
pub(super) fn check(
    options: &CheckOptions,
    subject: &Subject<'_>,
    progress: impl FnMut(u64),
) -> ObjectScan {
    let name = subject.entry.map(|(name, _)| name.to_string());
    let quarantine = Repair::Quarantine { uuid: subject.uuid, name: name.clone() };
    let remedy = match name.as_deref().is_some_and(options.is_cache) {
        true => {
            "use `--repair`: it moves the cache out of the store, and a program rebuilds it when needed"
        }
        false => "restore it from a backup, or move it out of the store with `--quarantine`",
    };
    let mut findings = Findings::new(subject.file.clone(), name).with_repair(remedy, quarantine);
    let mut scanned = ObjectScan {
        report: None,
        findings: Vec::new(),
        unchecked: None,
        leases: Vec::new(),
        own_name: None,
        is_damaged: false,
    };
    if let Err(error) = check_image(options, subject, &mut findings, &mut scanned, progress) {
        scanned.unchecked = findings.take_error(error);
    }
    scanned.is_damaged = findings.has_damage();
    scanned.findings = findings.into_list();
    scanned
}

fn check_image(
    options: &CheckOptions,
    subject: &Subject<'_>,
    findings: &mut Findings,
    scanned: &mut ObjectScan,
    progress: impl FnMut(u64),
) -> crate::Result<()> {
    let image = Image::open(&*options.storage, &subject.paths)?;
    let s = image.superblock();
    scanned.leases = leases_of(&image);
    scanned.own_name = Some(s.name());
    check_names(&image, subject, findings);
    check_length(&image, findings)?;
    check_log(options, subject, &image, findings)?;
    let allocated = heap::check(&image, findings)?;
    let accept = subject
        .entry
        .map(|(name, _)| Repair::AcceptData { uuid: subject.uuid, name: name.to_string() });
    let pages_verified = checksums::check(&image, findings, accept.as_ref(), progress)?;
    scanned.report = Some(ObjectReport {
        object: subject.entry.map(|(name, _)| name.to_string()),
        file: subject.file.clone(),
        sequence: s.commit_sequence,
        file_bytes: s.file_length,
        log_commits: image.log_commits,
        blocks: allocated.blocks,
        allocated_bytes: allocated.bytes,
        pages_verified,
        blocks_reached: None,
    });
    Ok(())
}

/// Compares the name in the file with the catalog. The former is only used if the catalog is lost,
/// and may be older.
fn check_names(image: &Image, subject: &Subject<'_>, findings: &mut Findings) {
    let own = image.superblock().name();
    if let Some((name, _)) = subject.entry.filter(|(name, _)| *name != own) {
        findings.add(
            Severity::Leftover,
            "the name in the file",
            format!("`{own}`"),
            format!("`{name}`"),
            ("the next session that commits corrects it", None),
        );
    }
}

/// Returns true if a process has the object open for writing.
pub(super) fn has_writer(image: &Image) -> crate::Result<bool> {
    Ok(image.file().lock_holder(WRITER_BYTE, 1)?.is_some())
}

/// Compares the file's length with the last commit's. More bytes are left by a dead writer that
/// grew the object.
fn check_length(image: &Image, findings: &mut Findings) -> crate::Result<()> {
    let (length, committed) = (image.file().length()?, image.superblock().file_length);
    if length > committed && !has_writer(image)? {
        findings.add(
            Severity::Leftover,
            "the end of the file",
            quantity(length, "byte"),
            format!("{}, the length of the last commit", quantity(committed, "byte")),
            ("the next session truncates the file", None),
        );
    }
    Ok(())
}

/// Returns true if the last session left this log for the next one.
fn is_kept(log: Arc<dyn File>, image: &Image) -> bool {
    let s = image.superblock();
    let opened = Log::open(log, s.object_uuid, s.commit_sequence);
    opened.is_ok_and(|(log, _)| log.was_needed() && log.sequence() == s.commit_sequence)
}

/// Checks for a log that is not needed. A needed log was checked when the image was opened.
pub(super) fn check_log(
    options: &CheckOptions,
    subject: &Subject<'_>,
    image: &Image,
    findings: &mut Findings,
) -> crate::Result<()> {
    let log = match options.storage.open(&subject.paths.log_path, OpenMode::Read) {
        Ok(log) => log,
        Err(error) if error.is_missing_file() => return Ok(()),
        Err(error) => return Err(error),
    };
    let is_needed = image.superblock().needs_log() != Some(false);
    if is_needed || has_writer(image)? || is_kept(log, image) {
        return Ok(());
    }
    let path = subject.file.with_extension("log");
    findings.add(
        Severity::Leftover,
        "the log",
        format!("{}, which the object does not need", path.display()),
        "no log",
        (
            "the next session that commits replaces it, or use `--repair`",
            Some(Repair::PutLogAside(path)),
        ),
    );
    Ok(())
}
