//! Copies a store in use, and replaces a store by a copy.
//!
//! Each object is copied at one commit: the pages of the file, of which writers change only lines
//! that the log also has, and the log's lines on top. The catalog is copied last, at one commit;
//! objects that it names and the copy lacks are copied first. So the copy's catalog names exactly
//! the copied objects and has their addresses.
//!
//! A copy is written to a temporary directory next to its destination, and renamed when all of it
//! is durable. A lock in the directory shows that its process is alive; the next copy to the same
//! destination removes directories of dead processes.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::api::{Options, Store, record_arenas, refuse_open_here};
use crate::commit::Log;
use crate::error::{Error, Result};
use crate::format::{LOG_REQUIRED, LOG_REQUIRED_OFFSET, PAGE_BYTES};
use crate::layout::{
    ADDRESSES, BACKUP_MARK, BUILDING, CATALOG, CATALOG_LOG, HOST_LOCK, HOST_TABLES, NEW_CATALOG,
    OBJECTS,
};
use crate::object::{WRITER_BYTE, hex, lock_byte};
use crate::storage::{File, FileSystem, LockKind, OpenMode, Storage, copy_contents, parent_of};

use super::address_lock::{AddressLock, GRACE, wait_for_users};
use super::audit::{is_gone, open_found, read_listing};
use super::check::{CheckOptions, Scan, catalog_image, check};
use super::image::Image;
use super::listing::Listing;
use super::one_store::in_one_store;
use super::quarantine::{PREFIX as KEPT_PREFIX, exists, stamp};
use super::rebase::REBASE_PREFIX;
use super::report::{Finding, Findings, Report};
use super::{backup_mark, checksums, heap, host_tables};

/// Descriptors that removing a store's directory needs: one for it and one per level below.
const SPARE_DESCRIPTORS: usize = 3;
/// Rounds without a complete copy after which the catalog is locked against changes.
const ROUNDS_MAX: usize = 8;

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
    /// Copies the store, which may be in use, to a directory that must be empty or not exist. Each
    /// object is copied as of one commit, and so is the catalog. The copy is a store itself.
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
    /// `StoreExists` if `to` exists or is inside the store, `DiskFull`, `NotPermitted`, and
    /// `Damaged` if an object cannot be read at all. On error no copy is left.
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
    let partial = Partial::create(&storage, to)?;
    backup_mark::write(&*storage, from, &partial.path)?;
    let mut copier = Copier {
        scan,
        options,
        storage: Arc::clone(&storage),
        to: partial.path.clone(),
        copied: HashMap::new(),
        done_bytes: 0,
        report: BackupReport { directory: to.to_path_buf(), ..BackupReport::default() },
    };
    copier.all()?;
    let report = copier.report;
    refuse_occupied(&*storage, to)?;
    partial.finish(|path| storage.rename(path, to))?;
    Ok(report)
}

/// Creates a store from a backup: checks the backup, copies it to a temporary directory next to
/// `store`, and renames the copy. An existing store is replaced only if `force` is true. The two
/// directories exchange their names in one step; then the old store is removed.
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
    let partial = Partial::create(&storage, to)?;
    let source = storage.enter(from)?.unwrap_or_else(|| Arc::clone(&storage));
    let check = CheckOptions { storage: Arc::clone(&source), ..options.check.clone() };
    let unverified = BackupOptions { verify: false, check };
    let mut copier = Copier {
        scan: Scan::new(from, &unverified.check)?,
        options: &unverified,
        storage: source,
        to: partial.path.clone(),
        copied: HashMap::new(),
        done_bytes: 0,
        report: BackupReport { directory: to.to_path_buf(), ..BackupReport::default() },
    };
    copier.all()?;
    let arenas = copier.listing().map_or_else(|_| Vec::new(), |listing| listing.arenas);
    let arenas: Vec<(u64, u64)> = arenas.iter().map(|a| (a.base, a.length)).collect();
    let mut report = copier.report;
    if there {
        let unused = refuse_use(&*storage, to)?;
        let replaced = partial.exchange(to)?;
        drop(unused);
        report.left_over = replaced.remove();
    } else {
        partial.finish(|path| storage.rename(path, to))?;
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

/// Returns true if something other than an empty directory exists at a path.
fn is_occupied(storage: &dyn Storage, path: &Path) -> Result<bool> {
    match storage.list(path) {
        Ok(names) => Ok(!names.is_empty()),
        // A dangling symbolic link occupies the path.
        Err(e) if e.is_missing_file() => Ok(is_link(storage, path)),
        // The path is a file, or a parent of it is.
        Err(Error::Io { .. }) => match storage.open(path, OpenMode::Read) {
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotADirectory => {
                let why = format!("{} is not a directory", parent_of(path).display());
                Err(Error::StoreExists { path: path.to_path_buf(), why })
            }
            _ => Ok(true),
        },
        Err(e) => Err(e),
    }
}

fn refuse_occupied(storage: &dyn Storage, path: &Path) -> Result<()> {
    match is_occupied(storage, path)? {
        false => Ok(()),
        true => Err(Error::StoreExists {
            path: path.to_path_buf(),
            why: "the path already exists".to_string(),
        }),
    }
}

/// Returns true if the path is a symbolic link, which an open does not follow.
fn is_link(storage: &dyn Storage, path: &Path) -> bool {
    // A trailing slash would follow the link.
    let path = path.components().as_path();
    let opened = storage.open(path, OpenMode::Read);
    matches!(opened, Err(Error::Foreign { found, .. }) if found.contains("symbolic link"))
}

/// Refuses a directory inside another. A copy inside its store would be removed with the store.
fn refuse_inside(storage: &dyn Storage, inner: &Path, outer: &Path) -> Result<()> {
    // Compare the nearest existing directory and all directories above it. The kernel resolves
    // links.
    let there = std::path::absolute(inner).unwrap_or_else(|_| inner.to_path_buf());
    let mut at = there.as_path();
    let mut identity = storage.directory_identity(at);
    while let (Err(_), Some(parent)) = (&identity, at.parent()) {
        at = parent;
        identity = storage.directory_identity(at);
    }
    let (outer_identity, mut at) = (storage.directory_identity(outer)?, at.to_path_buf());
    while let Ok(found) = identity {
        if found == outer_identity {
            let is = if at == there { "is the same as" } else { "is inside" };
            let why = format!("it {is} {}", outer.display());
            return Err(Error::StoreExists { path: inner.to_path_buf(), why });
        }
        at.push("..");
        identity = storage.directory_identity(&at);
        if identity.as_ref().is_ok_and(|above| *above == found) {
            break;
        }
    }
    Ok(())
}

/// Refuses to replace a directory that contains more than a store, because all of it is removed.
/// Also refuses if the backup lacks a table of a sandbox's host, which would be lost with its keys.
fn refuse_foreign_files(storage: &dyn Storage, store: &Path, backup: &Path) -> Result<()> {
    let refuse = |why: String| Err(Error::StoreExists { path: store.to_path_buf(), why });
    if is_link(storage, store) {
        return refuse("it is a symbolic link; name the directory that it leads to".to_string());
    }
    let is_ours = |name: &str| {
        let known = [
            ADDRESSES,
            BACKUP_MARK,
            BUILDING,
            CATALOG,
            CATALOG_LOG,
            NEW_CATALOG,
            OBJECTS,
            HOST_LOCK,
        ];
        let is_table = HOST_TABLES.contains(&name.strip_suffix(".new").unwrap_or(name));
        is_table
            || known.contains(&name)
            || name.starts_with(KEPT_PREFIX)
            || name.starts_with(REBASE_PREFIX)
    };
    let names = match storage.list(store) {
        Err(Error::Io { source, .. }) => return refuse(source.to_string()),
        other => other?,
    };
    let there = storage.list(backup)?;
    let is_lost = |name: &&str| names.iter().any(|n| n == name) && !there.iter().any(|n| n == name);
    if let Some(name) = HOST_TABLES.iter().find(|name| is_lost(name)) {
        return refuse(format!(
            "it holds `{name}`, which the backup lacks; copy that into the backup to keep it"
        ));
    }
    match names.iter().find(|name| !is_ours(name)) {
        None => Ok(()),
        Some(name) => refuse(format!("it holds `{name}`, which is not part of a store")),
    }
}

/// Locks a store that is about to be removed, so that no process commits to it. Returns `None` if
/// it has no lock file, or if this user may not lock it.
fn refuse_use(storage: &dyn Storage, store: &Path) -> Result<Option<(AddressLock, Arc<dyn File>)>> {
    refuse_open_here(storage, store)?;
    let path = store.join(ADDRESSES);
    let locks = match storage.open(&path, OpenMode::ReadWrite) {
        Err(e) if e.is_missing_file() => return Ok(None),
        Err(Error::NotPermitted { .. }) => {
            let locks = storage.open(&path, OpenMode::Read)?;
            return wait_for_users(&*locks, 0, store, GRACE).map(|()| None);
        }
        other => other?,
    };
    // A rebase of the same store locks this byte.
    lock_byte(&*locks, LockKind::Exclusive, 0, GRACE, &format!("store {}", store.display()))?;
    Ok(Some((AddressLock::acquire(&locks, store, GRACE)?, locks)))
}

/// Copies one store's files to a directory.
struct Copier<'a> {
    scan: Scan<'a>,
    options: &'a BackupOptions,
    storage: Arc<dyn Storage>,
    to: PathBuf,
    /// Objects copied, with the length of each file.
    copied: HashMap<[u8; 16], u64>,
    done_bytes: u64,
    report: BackupReport,
}

impl Copier<'_> {
    /// Copies all objects, the catalog and the host's tables.
    fn all(&mut self) -> Result<()> {
        for folder in [OBJECTS, BUILDING] {
            self.storage.create_directory(&self.to.join(folder))?;
        }
        let mut listing = self.listing()?;
        let mut catalog_lock = None;
        for round in 0.. {
            self.copy_missing(&listing, catalog_lock.is_some())?;
            let image = catalog_image(&*self.storage, self.scan.directory)?;
            let now = read_listing(&image)?;
            let complete = now.objects.iter().all(|(_, f)| self.copied.contains_key(&f.uuid));
            if complete {
                self.drop_removed(&now)?;
                self.copy_catalog(&image)?;
                self.report.objects = self.copied.len() as u64;
                self.report.bytes = self.copied.values().sum();
                break;
            }
            listing = now;
            if round >= ROUNDS_MAX && catalog_lock.is_none() {
                catalog_lock = Some(self.lock_catalog()?);
                listing = self.listing()?;
            }
        }
        // Copy the tables after the objects. A table may have addresses of objects that the copy
        // lacks, as after a kill, but it must not lack those of an object in the copy.
        host_tables::copy(&*self.storage, self.scan.directory, &self.to)?;
        self.storage.sync_directory(&self.to.join(OBJECTS))?;
        self.storage.sync_directory(&self.to)
    }

    fn listing(&self) -> Result<Listing> {
        let image = catalog_image(&*self.storage, self.scan.directory)?;
        read_listing(&image)
    }

    /// Locks the catalog against changes until the returned file is dropped.
    fn lock_catalog(&self) -> Result<Arc<dyn File>> {
        let file = self.storage.open(&self.scan.directory.join(CATALOG), OpenMode::ReadWrite)?;
        let timeout = self.options.check.timeout;
        lock_byte(&*file, LockKind::Exclusive, WRITER_BYTE, timeout, "the catalog")?;
        Ok(file)
    }

    /// Copies the objects that the copy lacks. A missing object was removed since the catalog was
    /// read, unless the catalog is locked (`is_final`).
    fn copy_missing(&mut self, listing: &Listing, is_final: bool) -> Result<()> {
        let total_bytes = self.scan.total_bytes();
        for (name, found) in &listing.objects {
            if self.copied.contains_key(&found.uuid) {
                continue;
            }
            let image = match open_found(&self.scan, listing, (name, found)) {
                Err(e) if is_gone(&e) && !is_final && self.has_moved(listing) => continue,
                other => other?,
            };
            let file = Path::new(OBJECTS).join(hex(&found.uuid));
            if self.options.verify {
                self.verify(&image, &file, name)?;
            }
            let bytes = self.copy(&image, &self.to.join(&file), 0)?;
            self.copied.insert(found.uuid, bytes);
            self.done_bytes += bytes;
            if let Some(progress) = &self.options.check.progress {
                progress(self.done_bytes.min(total_bytes), total_bytes);
            }
        }
        Ok(())
    }

    fn has_moved(&self, listing: &Listing) -> bool {
        self.listing().is_ok_and(|now| now.sequence != listing.sequence)
    }

    fn verify(&mut self, image: &Image, file: &Path, name: &str) -> Result<()> {
        let mut findings = Findings::new(file.to_path_buf(), Some(name.to_string()));
        heap::check(image, &mut findings)?;
        checksums::check(image, &mut findings, None, |_| {})?;
        self.report.findings.extend(findings.into_list());
        Ok(())
    }

    /// Writes an image's commit to a new file and flushes it. Returns the length.
    fn copy(&self, image: &Image, to: &Path, log_required: u32) -> Result<u64> {
        let target = write_image(&*self.storage, image, to)?;
        target.write_at(&log_required.to_le_bytes(), LOG_REQUIRED_OFFSET)?;
        target.sync_data()?;
        Ok(image.superblock().file_length)
    }

    /// Removes the copies of objects that were removed from the store during the copy.
    fn drop_removed(&mut self, listing: &Listing) -> Result<()> {
        let named: HashSet<[u8; 16]> = listing.objects.iter().map(|(_, f)| f.uuid).collect();
        let gone: Vec<[u8; 16]> =
            self.copied.keys().filter(|uuid| !named.contains(*uuid)).copied().collect();
        for uuid in gone {
            self.storage.remove(&self.to.join(OBJECTS).join(hex(&uuid)))?;
            self.copied.remove(&uuid);
        }
        Ok(())
    }

    /// Copies the catalog and creates its permanent log, empty.
    fn copy_catalog(&self, image: &Image) -> Result<()> {
        let s = image.superblock();
        self.copy(image, &self.to.join(CATALOG), LOG_REQUIRED)?;
        let log_path = self.to.join(CATALOG_LOG);
        Log::create(&*self.storage, &log_path, s.object_uuid, s.commit_sequence)?;
        Ok(())
    }
}

/// Writes an image's commit to a new file that needs no log. Does not flush it.
pub(super) fn write_image(
    storage: &dyn Storage,
    image: &Image,
    to: &Path,
) -> Result<Arc<dyn File>> {
    let length = image.superblock().file_length;
    let target = storage.open(to, OpenMode::CreateNew)?;
    copy_contents(image.file(), &*target, length)?;
    for number in image.overlay().page_numbers() {
        // The log may have pages beyond the end, which a later commit removed.
        if (number + 1) * PAGE_BYTES > length {
            continue;
        }
        let mut page = [0; PAGE_BYTES as usize];
        image.read_pages(number * PAGE_BYTES, &mut page)?;
        target.write_at(&page, number * PAGE_BYTES)?;
    }
    target.write_at(&0u32.to_le_bytes(), LOG_REQUIRED_OFFSET)?;
    Ok(target)
}

/// Temporary directory next to its destination. Removed on drop unless it was finished.
struct Partial {
    storage: Arc<dyn Storage>,
    path: PathBuf,
    /// Locked as long as this process lives.
    lock: Option<Arc<dyn File>>,
    /// Descriptors held in reserve, so that the directory can be removed if the process runs out of
    /// them.
    spare: Vec<Box<dyn FileSystem>>,
    finished: bool,
}

impl Partial {
    fn create(storage: &Arc<dyn Storage>, to: &Path) -> Result<Partial> {
        let parent = parent_of(to);
        storage.create_directories(&parent)?;
        let name = to.file_name().map(|name| name.to_string_lossy().into_owned());
        let Some(name) = name else {
            return Err(Error::StoreExists {
                path: to.to_path_buf(),
                why: "the path does not end in a name".to_string(),
            });
        };
        let prefix = format!(".{name}.partial-");
        for old in storage.list(&parent)?.iter().filter(|other| other.starts_with(&prefix)) {
            remove_if_dead(&**storage, &parent.join(old));
        }
        let mut spare = Vec::new();
        for _ in 0..SPARE_DESCRIPTORS {
            spare.push(storage.file_system(&parent)?);
        }
        let stamp = stamp(SystemTime::now());
        for number in 0.. {
            let path = parent.join(format!("{prefix}{stamp}-{number}"));
            match storage.create_directory(&path) {
                Err(e) if exists(&e) => continue,
                other => other?,
            }
            let storage = Arc::clone(storage);
            let mut partial = Partial { storage, path, lock: None, spare, finished: false };
            let storage = &partial.storage;
            let lock = storage.open(&partial.path.join(ADDRESSES), OpenMode::CreateNew)?;
            lock_byte(&*lock, LockKind::Exclusive, 0, Duration::ZERO, "the copy")?;
            partial.lock = Some(lock);
            return Ok(partial);
        }
        unreachable!("there is always a further number")
    }

    /// Renames the directory to its destination, durably.
    fn finish(mut self, rename: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        rename(&self.path)?;
        self.finished = true;
        self.storage.sync_directory(&parent_of(&self.path))
    }

    /// Exchanges the names of the directory and of an existing one, durably. If that cannot be made
    /// durable, the existing one gets its name back.
    fn exchange(mut self, with: &Path) -> Result<Replaced> {
        self.swap(with)?;
        if let Err(error) = self.storage.sync_directory(&parent_of(&self.path)) {
            // The temporary name must not be the old store's when this value removes it.
            self.finished = self.swap(with).is_err();
            return Err(error);
        }
        self.finished = true;
        Ok(Replaced { storage: Arc::clone(&self.storage), path: self.path.clone() })
    }

    fn swap(&self, with: &Path) -> Result<()> {
        if self.storage.exchange(&self.path, with)? {
            return Ok(());
        }
        // The file system has no exchange: the existing directory is moved aside first.
        let name = with.file_name().unwrap_or_default().to_string_lossy();
        let aside = parent_of(with).join(format!(".{name}.old-{}", stamp(SystemTime::now())));
        self.storage.rename(with, &aside)?;
        if let Err(error) = self.storage.rename(&self.path, with) {
            self.storage.rename(&aside, with)?;
            return Err(error);
        }
        self.storage.rename(&aside, &self.path)
    }
}

/// Old directory after an exchange.
struct Replaced {
    storage: Arc<dyn Storage>,
    path: PathBuf,
}

impl Replaced {
    /// Removes the directory. Returns its path and the cause on failure, which does not undo the
    /// exchange.
    fn remove(self) -> Option<(PathBuf, String)> {
        let removed = self.storage.remove_all(&self.path);
        removed.err().map(|error| (self.path, error.to_string()))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.finished {
            self.spare.clear();
            // The next copy to the same place tries again.
            let _ = self.storage.remove_all(&self.path);
        }
    }
}

/// Removes a temporary directory if the process that created it is dead.
fn remove_if_dead(storage: &dyn Storage, path: &Path) {
    let is_alive = match storage.open(&path.join(ADDRESSES), OpenMode::ReadWrite) {
        Ok(lock) => !matches!(lock.try_lock(LockKind::Exclusive, 0, 1), Ok(true)),
        // The directory is being created or removed.
        Err(_) => false,
    };
    if !is_alive {
        let _ = storage.remove_all(path);
    }
}
