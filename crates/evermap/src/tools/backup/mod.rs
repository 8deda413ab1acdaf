//! Copies a store in use, and replaces a store by a copy.
//!
//! Each object is copied at one commit: the pages of the file, of which writers change only lines
//! that the log also has, and the log's lines on top. The catalog is copied last, at one commit;
//! objects that it names and the copy lacks are copied first. So the copy's catalog names exactly
//! the copied objects and has their addresses.
//!
//! A copy is written to a temporary directory next to its destination, and renamed when all of it
//! is durable.

mod copier;
mod partial;
mod refuse;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::api::{Options, Store, record_arenas};
use crate::error::{Error, Result};

use super::backup_mark;
use super::check::{CheckOptions, Scan, check};
use super::one_store::in_one_store;
use super::report::{Finding, Report};
use copier::Copier;
pub(super) use copier::write_image;
use partial::Partial;
use refuse::{
    is_occupied, place_of, refuse_foreign_files, refuse_inside, refuse_occupied, refuse_use,
};

/// Options of a backup or a restore.
///
/// ```
/// let options = evermap::tools::BackupOptions::new().verify(false);
/// # let directory = tempfile::tempdir()?;
/// let store = evermap::Store::create_new(directory.path().join("store"))?;
/// let copy = directory.path().join("copy");
/// assert_eq!(evermap::tools::backup(store.path(), &copy, &options)?.objects, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct BackupOptions {
    verify: bool,
    check: CheckOptions,
}

impl Default for BackupOptions {
    fn default() -> Self {
        BackupOptions { verify: true, check: CheckOptions::new() }
    }
}

impl BackupOptions {
    /// Defaults: verify each object.
    pub fn new() -> BackupOptions {
        BackupOptions::default()
    }

    /// Sets whether to check each object while it is copied, which reads all of it. Without this
    /// check, a file system that can share blocks copies an object of any size instantly.
    /// Default: yes.
    pub fn verify(mut self, verify: bool) -> BackupOptions {
        self.verify = verify;
        self
    }

    /// Calls `progress` from time to time with the bytes copied so far and the total bytes.
    pub fn on_progress(
        mut self,
        progress: impl Fn(u64, u64) + Send + Sync + 'static,
    ) -> BackupOptions {
        self.check = self.check.on_progress(progress);
        self
    }
}

/// Result of a backup or a restore.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct BackupReport {
    /// Directory of the copy.
    pub directory: PathBuf,
    /// Number of objects copied, without the catalog.
    pub objects: u64,
    /// Length of their files in bytes.
    pub bytes: u64,
    /// Damage found in the objects, if they were verified. The copy has the same damage.
    pub findings: Vec<Finding>,
    /// For [`restore`]: path of the replaced store and the cause, if it could not be removed.
    pub left_over: Option<(PathBuf, String)>,
}

impl Store {
    /// Copies the store, which may be in use, to a directory that must be empty or not exist. A
    /// symbolic link to an empty directory is followed; a mount point is refused. Each object is
    /// copied as of one commit, and so is the catalog. The copy is a store itself.
    ///
    /// Other processes can use the store during the copy. Only if the catalog changes faster than
    /// objects are copied, further changes of the catalog wait until the copy is complete. If the
    /// file system can share blocks, the copy takes no space. Objects are still read to verify
    /// them; [`tools::backup`](backup) has an option for that.
    ///
    /// The copy has the same addresses as the original, so one process can open only one of them.
    /// It contains a mark, which [`tools::original_of_backup`](crate::tools::original_of_backup)
    /// reads and a restore leaves out.
    ///
    /// # Errors
    /// `StoreExists` if `to` is anything but an empty directory or is inside the store, `DiskFull`,
    /// `NotPermitted`, `Busy` if the catalog stays locked, and `Damaged` if an object cannot be
    /// read at all. On error no copy is left.
    ///
    /// ```
    /// use evermap::Store;
    /// # let directory = tempfile::tempdir()?;
    /// let store = Store::create_new(directory.path().join("store"))?;
    /// store.create::<u64, _>("answer", 42)?;
    /// let copy = directory.path().join("copy");
    /// let report = store.backup(&copy)?;
    /// assert_eq!(report.objects, 1);
    /// assert!(report.findings.is_empty());
    /// drop(store);
    /// assert_eq!(*Store::open(&copy)?.read::<u64>("answer")?, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn backup(&self, to: impl AsRef<Path>) -> Result<BackupReport> {
        let mut options = BackupOptions::new();
        options.check.storage = self.storage();
        backup(self.path(), to, &options)
    }
}

/// Copies the store in a directory, like [`Store::backup`]. The store need not be open in this
/// process, and its addresses need not be free.
///
/// # Errors
/// `NoStore`, and the errors of [`Store::backup`].
pub fn backup(
    from: impl AsRef<Path>,
    to: impl AsRef<Path>,
    options: &BackupOptions,
) -> Result<BackupReport> {
    let (from, to) = (from.as_ref(), to.as_ref());
    in_one_store(
        from,
        &options.check,
        |_| true,
        |check| backup_in(from, to, &BackupOptions { check: check.clone(), ..options.clone() }),
    )
}

fn backup_in(from: &Path, to: &Path, options: &BackupOptions) -> Result<BackupReport> {
    let storage = Arc::clone(&options.check.storage);
    // Fails if there is no store, before any file is created.
    let scan = Scan::new(from, &options.check)?;
    refuse_occupied(&*storage, to)?;
    refuse_inside(&*storage, to, from)?;
    let place = place_of(&*storage, to)?;
    let partial = Partial::create(&storage, &place)?;
    backup_mark::write(&*storage, from, &partial.path)?;
    let mut copier = Copier::new(scan, options, Arc::clone(&storage), &partial.path, to);
    copier.all()?;
    let report = copier.report;
    refuse_occupied(&*storage, &place)?;
    partial.finish(|path| storage.rename(path, &place))?;
    Ok(report)
}

/// Creates a store from a backup: checks the backup, copies it to a temporary directory next to
/// `store`, and renames the copy. An existing store is replaced only if `force` is true. The two
/// directories exchange their names, in one step if the file system supports that; then the old
/// store is removed.
///
/// No process may have objects of the replaced store open.
///
/// # Errors
/// `StoreExists` if `store` exists and `force` is false, if one of the two directories is inside
/// the other, or if `store` contains files that are not part of a store. `Damaged` if the check
/// finds damage in the backup. `Busy` if a process has objects of the old store open. `NoStore`,
/// `DiskFull`, `NotPermitted`. On error the old store is unchanged.
///
/// ```
/// use evermap::{Store, tools};
/// # let directory = tempfile::tempdir()?;
/// # let (path, copy) = (directory.path().join("store"), directory.path().join("copy"));
/// let store = Store::create_new(&path)?;
/// store.create::<u64, _>("answer", 42)?;
/// store.backup(&copy)?;
/// store.replace::<u64, _>("answer", 43)?;
/// drop(store);
/// tools::restore(&copy, &path, true, &tools::BackupOptions::new())?;
/// assert_eq!(*Store::open(&path)?.read::<u64>("answer")?, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn restore(
    backup: impl AsRef<Path>,
    store: impl AsRef<Path>,
    force: bool,
    options: &BackupOptions,
) -> Result<BackupReport> {
    let (from, to) = (backup.as_ref(), store.as_ref());
    let storage = Arc::clone(&options.check.storage);
    let there = is_occupied(&*storage, to)?;
    if there && !force {
        return refuse_occupied(&*storage, to).map(|()| BackupReport::default());
    }
    let silent = CheckOptions { progress: None, ..options.check.clone() };
    refuse_damage(check(from, &silent)?, "the backup")?;
    refuse_inside(&*storage, to, from)?;
    if there {
        // The whole directory is about to be removed.
        refuse_foreign_files(&*storage, to, from)?;
        refuse_inside(&*storage, from, to)?;
    }
    let place = place_of(&*storage, to)?;
    let partial = Partial::create(&storage, &place)?;
    let source = storage.enter(from)?.unwrap_or_else(|| Arc::clone(&storage));
    let check = CheckOptions { storage: Arc::clone(&source), ..options.check.clone() };
    let unverified = BackupOptions { verify: false, check };
    let scan = Scan::new(from, &unverified.check)?;
    let mut copier = Copier::new(scan, &unverified, source, &partial.path, to);
    copier.all()?;
    let arenas = copier.listing().map_or_else(|_| Vec::new(), |listing| listing.arenas);
    let arenas: Vec<(u64, u64)> = arenas.iter().map(|a| (a.base, a.length)).collect();
    let mut report = copier.report;
    if there {
        let unused = refuse_use(&*storage, to)?;
        let replaced = partial.exchange(&place)?;
        drop(unused);
        report.left_over = replaced.remove();
    } else {
        partial.finish(|path| storage.rename(path, &place))?;
    }
    record_arenas(&Options { storage, ..Options::default() }, to, &arenas);
    Ok(report)
}

/// Returns an error if a check of `what` found damage, or could not read a file.
pub(super) fn refuse_damage(report: Report, what: &'static str) -> Result<()> {
    if let Some(unchecked) = report.unchecked.into_iter().next() {
        return Err(unchecked.error);
    }
    let is_bad = |f: &&Finding| f.severity == super::Severity::Damage;
    match report.findings.iter().find(is_bad) {
        None => Ok(()),
        Some(finding) => Err(Error::Damaged {
            path: report.directory.join(&finding.file),
            what,
            found: format!("{}: {}", finding.what, finding.found),
            expected: finding.expected.clone(),
        }),
    }
}
