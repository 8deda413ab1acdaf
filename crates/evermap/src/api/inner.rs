//! State that all handles of one open store share: what this process has open.
//!
//! A process has one [`StoreInner`] per store, however often it opens the store, because it can
//! reserve the store's arena only once. A [`StoreInner`] keeps the list of objects that this
//! process has open, and opens objects beside those: an object has one mapping in a process. Its
//! other methods are in `publish` and `sweep`.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use super::application::ApplicationKey;
use super::options::Options;
use super::session::open::OpenSession;
use super::share::{ShareOptions, SharedCore};
use super::snapshot::mapped::MappedCommit;
use super::store_files::{HoldsObjects, Located, OpenEntry, StoreFiles, lock};
use crate::at_fork;
use crate::catalog::Lease;
use crate::commit::WriteOptions;
use crate::error::{Error, Result};
use crate::format::Superblock;
use crate::layout::CATALOG;
use crate::object::{Addresses, Environment};
use crate::storage::{FileIdentity, OpenMode, Storage};

/// Open stores of this process, by the identity of their catalog's file. Each store keeps that file
/// open.
static OPEN: Mutex<Vec<(FileIdentity, Weak<StoreInner>)>> = Mutex::new(Vec::new());

/// Fails if this process has the store open. The caller is about to replace files of the store,
/// which an open store would not notice.
pub(crate) fn refuse_open_here(storage: &dyn Storage, directory: &Path) -> Result<()> {
    at_fork::refuse_in_child(|| format!("store {}", directory.display()))?;
    let identity = match storage.file_identity(&directory.join(CATALOG)) {
        Err(e) if e.is_missing_file() => return Ok(()),
        found => found?,
    };
    match lock(&OPEN).iter().any(|(known, _)| *known == identity) {
        false => Ok(()),
        true => Err(Error::Busy {
            what: format!("store {}", directory.display()),
            holder: "this process has it open".to_string(),
        }),
    }
}

/// State of one object in this process.
pub(super) enum OpenObject {
    /// Open for reading: the mapping that its snapshots share.
    Reading(Weak<MappedCommit>),
    /// Open for writing by one session.
    Writing,
    /// Open for writing by one session that threads share.
    Shared(Weak<SharedCore>),
}

/// Locked list of open objects.
pub(super) type OpenObjects<'a> = MutexGuard<'a, BTreeMap<[u8; 16], OpenObject>>;

/// State of one object while the list is locked.
pub(super) enum Current {
    Closed,
    Writing,
    Reading(Arc<MappedCommit>),
    Shared(Arc<SharedCore>),
}

impl Current {
    /// Returns how the object is being used, for a message.
    fn verb(&self) -> &'static str {
        match self {
            Current::Closed => "closed",
            Current::Writing => "written",
            Current::Reading(_) => "read",
            Current::Shared(_) => "shared",
        }
    }
}

pub(super) struct StoreInner {
    files: StoreFiles,
    open: Mutex<BTreeMap<[u8; 16], OpenObject>>,
    /// Locked while an object is opened for sharing.
    sharing: Mutex<()>,
    pub(super) swept: Mutex<bool>,
    /// Declared last, so that the addresses are released before the entry in [`OPEN`] is removed.
    registration: Registration,
}

impl Deref for StoreInner {
    type Target = StoreFiles;

    fn deref(&self) -> &StoreFiles {
        &self.files
    }
}

impl HoldsObjects for StoreInner {
    fn files(&self) -> &StoreFiles {
        &self.files
    }

    fn forget(&self, uuid: [u8; 16]) {
        self.open_objects().remove(&uuid);
    }
}

/// Leases addresses for objects of a store.
struct StoreAddresses(Weak<StoreInner>);

impl Addresses for StoreAddresses {
    fn lease(&self, bytes: u64) -> Result<u64> {
        match self.0.upgrade() {
            Some(inner) => inner.lease(bytes),
            None => Err(Error::OutOfAddresses {
                what: "an object".to_string(),
                bytes,
                why: "its store was closed".to_string(),
            }),
        }
    }

    fn release(&self, base: u64, bytes: u64) {
        if let Some(inner) = self.0.upgrade() {
            inner.lease_table.release(&[Lease { base, bytes }]);
        }
    }
}

/// Entry of a store in [`OPEN`]. Removes it when dropped.
struct Registration(FileIdentity);

impl Drop for Registration {
    fn drop(&mut self) {
        // In a forked child the list may be locked forever. The child does not need it.
        if at_fork::is_child() {
            return;
        }
        lock(&OPEN).retain(|(identity, _)| *identity != self.0);
    }
}

impl std::fmt::Debug for StoreInner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("directory", &self.directory).finish()
    }
}

impl StoreInner {
    /// Returns the store in `directory`, which may already be open in this process. `named` is true
    /// if this process has just created the store and made its name durable.
    ///
    /// All files come from one directory, even if another directory replaces it during the call. If
    /// that happens before the store is open, this opens the new store.
    pub(super) fn open(
        directory: &Path,
        options: &Options,
        named: bool,
    ) -> Result<Arc<StoreInner>> {
        at_fork::refuse_in_child(|| format!("store {}", directory.display()))?;
        let storage = &options.storage;
        for _ in 1..OPENINGS_MAX {
            // Storage that cannot enter a directory uses paths.
            let entered = storage.enter(directory).map_err(|e| no_store_at(directory, e))?;
            let inside = entered.as_ref().unwrap_or(storage);
            match StoreInner::open_in(inside, directory, options, named) {
                Err(_) if was_replaced(&**storage, entered.as_deref(), directory) => {}
                opened => return opened,
            }
        }
        StoreInner::open_in(storage, directory, options, named)
    }

    fn open_in(
        storage: &Arc<dyn Storage>,
        directory: &Path,
        options: &Options,
        named: bool,
    ) -> Result<Arc<StoreInner>> {
        let catalog = directory.join(CATALOG);
        loop {
            // Locked to the end, so that two threads which open one store do not both reserve its
            // arena.
            let mut open = lock(&OPEN);
            // An open catalog keeps its identity.
            let identity = match open.is_empty() {
                true => None,
                false => storage.file_identity(&catalog).ok(),
            };
            let known = open.iter().find(|(known, _)| Some(*known) == identity);
            match known.map(|(_, weak)| weak.upgrade()) {
                Some(Some(inner)) => return Ok(inner),
                // Another thread is closing the store. Its addresses are free once the entry is
                // removed.
                Some(None) => {
                    drop(open);
                    std::thread::yield_now();
                    continue;
                }
                None => {}
            }
            let file = storage
                .open(&catalog, OpenMode::Read)
                .map_err(|e| no_store_without_catalog(directory, e))?;
            let identity = file.identity()?;
            if open.iter().any(|(known, _)| *known == identity) {
                // The catalog was replaced since its identity was read.
                continue;
            }
            let files = StoreFiles::open(Arc::clone(storage), directory, options, file, named)
                .map_err(|e| no_store_without_catalog(directory, e))?;
            let inner = Arc::new(StoreInner {
                files,
                open: Mutex::default(),
                sharing: Mutex::default(),
                swept: Mutex::new(false),
                registration: Registration(identity),
            });
            open.push((identity, Arc::downgrade(&inner)));
            return Ok(inner);
        }
    }

    /// Returns the identity of the catalog's file, which no other file has while this store is
    /// open.
    pub(super) fn identity(&self) -> FileIdentity {
        self.registration.0
    }

    pub(super) fn environment(self: &Arc<Self>) -> Environment {
        Environment {
            storage: Arc::clone(&self.storage),
            space: Arc::clone(&self.space),
            addresses: Arc::new(StoreAddresses(Arc::downgrade(self))),
            guest: None,
        }
    }

    pub(super) fn open_objects(&self) -> OpenObjects<'_> {
        lock(&self.open)
    }

    /// Locks the list of open objects and returns the state of one object. Waits if another thread
    /// is closing the last snapshot or shared handle of it, because the addresses are free only
    /// after that.
    pub(super) fn open_object(&self, uuid: [u8; 16]) -> (OpenObjects<'_>, Current) {
        loop {
            let open = self.open_objects();
            let current = match open.get(&uuid) {
                None => Some(Current::Closed),
                Some(OpenObject::Writing) => Some(Current::Writing),
                Some(OpenObject::Reading(weak)) => weak.upgrade().map(Current::Reading),
                Some(OpenObject::Shared(weak)) => weak.upgrade().map(Current::Shared),
            };
            match current {
                Some(current) => return (open, current),
                None => {
                    drop(open);
                    std::thread::yield_now();
                }
            }
        }
    }

    /// Maps the last commit of an object, or returns the mapping that this process already has.
    pub(super) fn read_object(self: &Arc<Self>, name: &str) -> Result<Arc<MappedCommit>> {
        self.find_and_open(name, |located| self.read_located(name, located))
    }

    fn read_located(self: &Arc<Self>, name: &str, located: Located) -> Result<Arc<MappedCommit>> {
        let uuid = located.uuid;
        let (mut open, current) = self.open_object(uuid);
        if !matches!(current, Current::Closed) {
            // Unlock the list first, because dropping the last handle locks it.
            drop(open);
            return match current {
                Current::Reading(mapped) => Ok(mapped),
                other => Err(self.busy_here(name, other.verb())),
            };
        }
        let environment = self.environment();
        // The list stays locked, so the object is in the list before its entry can be dropped.
        let mapped = MappedCommit::open(self.clone(), &environment, name, located)?;
        let mapped = Arc::new(mapped);
        open.insert(uuid, OpenObject::Reading(Arc::downgrade(&mapped)));
        Ok(mapped)
    }

    /// Like [`read_object`](StoreInner::read_object), and refuses an object of another application.
    pub(super) fn read_object_for(
        self: &Arc<Self>,
        name: &str,
        application: Option<ApplicationKey>,
    ) -> Result<Arc<MappedCommit>> {
        let mapped = self.read_object(name)?;
        self.check_application(name, mapped.superblock(), application)?;
        Ok(mapped)
    }

    /// Opens an object for writing. `check` gets its superblock and may refuse it.
    pub(super) fn write_object<R>(
        self: &Arc<Self>,
        name: &str,
        options: &WriteOptions,
        application: Option<ApplicationKey>,
        check: impl Fn(&Superblock) -> Result<R>,
    ) -> Result<(OpenSession, R)> {
        self.find_and_open(name, |located| {
            let session = self.write_located(name, options, application, located)?;
            let checked = check(session.superblock())?;
            Ok((session, checked))
        })
    }

    fn write_located(
        self: &Arc<Self>,
        name: &str,
        options: &WriteOptions,
        application: Option<ApplicationKey>,
        located: Located,
    ) -> Result<OpenSession> {
        // From here on, dropping the entry removes the mark.
        let entry = self.mark_as_written(name, located.uuid)?;
        let session = OpenSession::open(entry, &self.environment(), name, options, located)?;
        self.check_application(name, session.superblock(), application)?;
        Ok(session)
    }

    /// Marks an object as open for writing. Fails if it is open in this process.
    fn mark_as_written(self: &Arc<Self>, name: &str, uuid: [u8; 16]) -> Result<OpenEntry> {
        let (mut open, current) = self.open_object(uuid);
        if !matches!(current, Current::Closed) {
            // Unlock the list first, because dropping the last handle locks it.
            drop(open);
            return Err(self.busy_here(name, current.verb()));
        }
        open.insert(uuid, OpenObject::Writing);
        Ok(OpenEntry::new(self.clone(), uuid))
    }

    /// Opens an object for sharing, or returns the open one. `check` gets a newly mapped object and
    /// the path of its file, and may refuse it.
    pub(super) fn share_object(
        self: &Arc<Self>,
        name: &str,
        options: &ShareOptions,
        application: Option<ApplicationKey>,
        check: impl Fn(&OpenSession, &Path) -> Result<()>,
    ) -> Result<Arc<SharedCore>> {
        at_fork::refuse_in_child(|| format!("store {}", self.directory.display()))?;
        // Serialise openings, so that a second call finds the object that the first one opens.
        let _opening = lock(&self.sharing);
        self.find_and_open(name, |located| {
            let uuid = located.uuid;
            let (open, current) = self.open_object(uuid);
            // Unlock the list first, because dropping a snapshot or a shared object locks it.
            drop(open);
            if let Current::Shared(core) = current {
                self.check_application(name, core.superblock(), application)?;
                if core.options() != options {
                    return Err(self.busy_here(name, "shared with other options"));
                }
                return Ok(core);
            }
            let session = self.write_located(name, &options.write, application, located)?;
            let path = self.paths(name, uuid).path;
            check(&session, &path)?;
            let display_name = format!("object `{name}` of store {}", self.directory.display());
            let core = Arc::new(SharedCore::new(session, options.clone(), display_name, path));
            self.open_objects().insert(uuid, OpenObject::Shared(Arc::downgrade(&core)));
            Ok(core)
        })
    }
}

/// Maximum number of openings in one call. Each further one means that the store was replaced
/// again.
const OPENINGS_MAX: usize = 100;

fn no_store_at(directory: &Path, error: Error) -> Error {
    match &error {
        Error::Io { source, .. } => {
            Error::NoStore { path: directory.to_path_buf(), why: source.to_string() }
        }
        _ => error,
    }
}

fn no_store_without_catalog(directory: &Path, error: Error) -> Error {
    if !error.is_missing_file() {
        return error;
    }
    let why = "the directory has no catalog".to_string();
    Error::NoStore { path: directory.to_path_buf(), why }
}

/// Returns true if the path leads to another directory than the one entered.
pub(crate) fn was_replaced(
    storage: &dyn Storage,
    entered: Option<&dyn Storage>,
    directory: &Path,
) -> bool {
    let Some(entered) = entered else { return false };
    let now = storage.directory_identity(directory).ok();
    now.is_some_and(|now| entered.directory_identity(directory).is_ok_and(|then| now != then))
}
