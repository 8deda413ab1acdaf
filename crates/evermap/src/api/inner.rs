//! State that all handles of one open store share.
//!
//! A process has one [`StoreInner`] per store, however often it opens the store, because it can
//! reserve the store's arena only once. A [`StoreInner`] finds objects by name and keeps the list
//! of objects that this process has open. Its other methods are in `arenas`, `publish` and `sweep`.

use std::any::Any;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tracing::{debug, warn};

use super::arenas::StoreAddresses;
use super::catalog_access::{CatalogAccess, CatalogWatch};
use super::leases::{LeaseTable, SharedLeases};
use super::options::Options;
use super::share::SharedCore;
use crate::address::AddressSpace;
use crate::at_fork;
use crate::catalog::{self, Found, Lease};
use crate::error::{Error, Result};
use crate::format::{KIND_OBJECT, Superblock};
pub(super) use crate::layout::{ADDRESSES, BUILDING, CATALOG, CATALOG_LOG, OBJECTS};
use crate::mutate::{Mutant, mutated};
use crate::object::{Environment, Identity, ObjectPaths, hex, lease_of};
use crate::storage::{File, FileIdentity, OpenMode, Storage, parent_of};

/// Open stores of this process, by the identity of their catalog's file. Each store keeps that file
/// open.
static OPEN: Mutex<Vec<(FileIdentity, Weak<StoreInner>)>> = Mutex::new(Vec::new());

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

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
    Reading(Weak<dyn Any + Send + Sync>),
    /// Open for writing by one session.
    Writing,
    /// Open for writing by one session that threads share.
    Shared(Weak<SharedCore>),
}

/// Locked list of open objects.
pub(super) type OpenObjects<'a> = MutexGuard<'a, HashMap<[u8; 16], OpenObject>>;

/// State of one object while the list is locked.
pub(super) enum Current {
    Closed,
    Writing,
    Reading(Arc<dyn Any + Send + Sync>),
    Shared(Arc<SharedCore>),
}

pub(super) struct StoreInner {
    pub(super) directory: PathBuf,
    pub(super) uuid: [u8; 16],
    /// First arena: base and length.
    pub(super) arena: (u64, u64),
    pub(super) options: Options,
    pub(super) storage: Arc<dyn Storage>,
    pub(super) space: Arc<AddressSpace>,
    pub(super) lease_table: Arc<LeaseTable>,
    catalog: Mutex<CatalogAccess>,
    open: Mutex<HashMap<[u8; 16], OpenObject>>,
    /// Locked while an object is opened for sharing.
    pub(super) sharing: Mutex<()>,
    pub(super) swept: Mutex<bool>,
    /// Declared last, so that the addresses are released before the entry in [`OPEN`] is removed.
    registration: Registration,
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
            let opened = StoreInner::open_new(Arc::clone(storage), directory, options, file, named);
            let inner = opened.map_err(|e| no_store_without_catalog(directory, e))?;
            open.push((identity, Arc::downgrade(&inner)));
            return Ok(inner);
        }
    }

    fn open_new(
        storage: Arc<dyn Storage>,
        directory: &Path,
        options: &Options,
        catalog_file: Arc<dyn File>,
        named: bool,
    ) -> Result<Arc<StoreInner>> {
        crate::address::check_page_size()?;
        let display_name = format!("store {}", directory.display());
        let space = AddressSpace::new(&display_name);
        let identity = catalog_file.identity()?;
        let head = crate::object::peek(&*catalog_file)?;
        let inside = |base| options.window.contains(base, head.arena_length);
        if !inside(head.arena_base) {
            debug!(base = head.arena_base, "the store's arena lies outside the window given");
        }
        let locks = open_lock_file(&*storage, &directory.join(ADDRESSES))?;
        let lease_table = Arc::new(LeaseTable::new(locks));
        let mut catalog = CatalogAccess::open(
            Arc::clone(&storage),
            Arc::clone(&space),
            Arc::clone(&lease_table),
            catalog_file,
            directory.join(CATALOG_LOG),
            options.catalog_timeout,
        )?;
        if let Err(refused) = space.reserve(head.arena_base, head.arena_length) {
            // The arena was read unverified. If page 0 is damaged, report that instead.
            catalog.check_page_0()?;
            return Err(refused);
        }
        let (uuid, sequence) = catalog.read(|_, reader| {
            let superblock = reader.superblock();
            (superblock.store_uuid, superblock.commit_sequence)
        })?;
        // Unchanged since its creation. The creator may have been killed before the name was
        // durable, and then later changes would be lost with the store.
        if sequence == 1 && !named && !mutated(Mutant::NewStoreTrustedUnflushed) {
            flush_name(&*storage, directory)?;
        }
        Ok(Arc::new(StoreInner {
            directory: directory.to_path_buf(),
            uuid,
            arena: (head.arena_base, head.arena_length),
            options: options.clone(),
            storage,
            space,
            lease_table,
            catalog: Mutex::new(catalog),
            open: Mutex::default(),
            sharing: Mutex::default(),
            swept: Mutex::new(false),
            registration: Registration(identity),
        }))
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

    /// Locks the catalog for this thread.
    ///
    /// # Errors
    /// `Forked` in a child.
    pub(super) fn catalog(&self) -> Result<MutexGuard<'_, CatalogAccess>> {
        at_fork::refuse_in_child(|| format!("store {}", self.directory.display()))?;
        Ok(lock(&self.catalog))
    }

    /// Returns a handle that checks whether the catalog has changed.
    pub(super) fn watch_catalog(&self) -> CatalogWatch {
        lock(&self.catalog).watch()
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

    /// Returns the catalog entry of a name.
    pub(super) fn find(&self, name: &str) -> Result<Found> {
        catalog::check_name(name)?;
        self.catalog()?.read(|catalog, _| catalog.find(name))?.ok_or_else(|| self.not_found(name))
    }

    pub(super) fn not_found(&self, name: &str) -> Error {
        Error::NotFound { store: self.directory.clone(), object: name.to_string() }
    }

    pub(super) fn path_in(&self, folder: &str, uuid: [u8; 16]) -> PathBuf {
        self.directory.join(folder).join(hex(&uuid))
    }

    /// Returns the paths of an object's files.
    pub(super) fn paths(&self, name: &str, uuid: [u8; 16]) -> ObjectPaths {
        let path = self.path_in(OBJECTS, uuid);
        ObjectPaths {
            log_path: path.with_extension("log"),
            path,
            identity: Identity {
                store_uuid: Some(self.uuid),
                object_uuid: Some(uuid),
                kind: KIND_OBJECT,
            },
            display_name: format!("object `{name}` of store {}", self.directory.display()),
        }
    }

    /// Opens an object in whichever of the two folders its file is. Its creator names the object in
    /// the catalog before moving the file, and may have died in between or may move the file now.
    /// So this tries the first folder again after the second.
    pub(super) fn with_paths<R>(
        &self,
        name: &str,
        uuid: [u8; 16],
        open: impl Fn(&ObjectPaths) -> Result<R>,
    ) -> Result<R> {
        let paths = self.paths(name, uuid);
        let missing = match open(&paths) {
            Err(e) if e.is_missing_file() => e,
            other => return other,
        };
        match open(&ObjectPaths { path: self.path_in(BUILDING, uuid), ..paths.clone() }) {
            Err(e) if e.is_missing_file() => {}
            other => return other,
        }
        match open(&paths) {
            Err(e) if e.is_missing_file() => Err(missing),
            other => other,
        }
    }

    /// Finds an object and opens it. The object may be replaced or removed between the two steps,
    /// and an error about the old object does not apply to the new one. So after every error this
    /// checks the catalog again, and returns the error only if the name still leads to the same
    /// object.
    pub(super) fn find_and_open<R>(
        &self,
        name: &str,
        open: impl Fn(Located) -> Result<R>,
    ) -> Result<R> {
        let mut last: Option<([u8; 16], Error)> = None;
        let mut same = 0;
        for _ in 0..LOOK_UPS_MAX {
            let located = self.locate(name)?;
            let uuid = located.uuid;
            if let Some((_, error)) = last.take_if(|(before, _)| *before == uuid) {
                // The file of an object may be replaced by a copy, which has the same id.
                same += 1;
                if !error.is_missing_file() {
                    return Err(error);
                }
                if same == SAME_FILE_MAX {
                    return Err(self.file_missing(name, uuid));
                }
            }
            match open(located) {
                Err(error) => last = Some((uuid, error)),
                opened => return opened,
            }
        }
        Err(Error::Busy {
            what: format!("object `{name}` of store {}", self.directory.display()),
            holder: format!("other processes replaced it {LOOK_UPS_MAX} times during this call"),
        })
    }

    /// Finds a name and shares the leases of its object in one look-up. From then on no other
    /// object gets these addresses.
    fn locate(&self, name: &str) -> Result<Located> {
        catalog::check_name(name)?;
        let located = self.catalog()?.read(|catalog, _| {
            let Some(found) = catalog.find(name) else { return Ok(None) };
            let leases = self.lease_table.share(&found.leases)?;
            Ok(Some(Located { uuid: found.uuid, leases }))
        })?;
        located?.ok_or_else(|| self.not_found(name))
    }

    fn file_missing(&self, name: &str, uuid: [u8; 16]) -> Error {
        Error::Damaged {
            path: self.paths(name, uuid).path,
            what: "the object's file",
            found: "no such file".to_string(),
            expected: format!("the file of object `{name}`"),
        }
    }
}

/// An object found by its name.
pub(super) struct Located {
    pub(super) uuid: [u8; 16],
    /// Leases recorded in the catalog at that time.
    pub(super) leases: SharedLeases,
}

impl Located {
    /// Shares the leases of all regions of the object, which has been opened since. It may have
    /// grown since the catalog was read.
    pub(super) fn into_leases(
        mut self,
        inner: &StoreInner,
        superblock: &Superblock,
    ) -> Result<SharedLeases> {
        let regions = superblock.regions().iter().map(lease_of);
        let wanted: Vec<Lease> = regions.map(|(base, bytes)| Lease { base, bytes }).collect();
        let grew = self.leases.add(&wanted)?;
        // The new leases were shared without the catalog's lock. If the object was removed before
        // that, fail, so that the next look-up finds the object that has its name now.
        if grew && !inner.catalog()?.read(|catalog, _| catalog.has_uuid(self.uuid))? {
            let path = inner.path_in(OBJECTS, self.uuid);
            return Err(Error::from_io(std::io::ErrorKind::NotFound.into(), "open", &path));
        }
        Ok(self.leases)
    }
}

/// Maximum number of openings in one call. Each further one means that the store was replaced
/// again.
const OPENINGS_MAX: usize = 100;
/// Maximum number of look-ups in one call. Each further one means that another process replaced the
/// object again.
const LOOK_UPS_MAX: usize = 1000;
/// Number of look-ups that find the same object without its file before that counts as damage.
const SAME_FILE_MAX: usize = 8;

impl Drop for StoreInner {
    fn drop(&mut self) {
        let catalog = self.catalog.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !catalog.changed || at_fork::is_child() {
            return;
        }
        match catalog.checkpoint() {
            Ok(()) | Err(Error::Busy { .. }) => {}
            Err(error) => warn!(%error, "cannot empty the catalog's log; the next process will"),
        }
    }
}

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

/// Makes the names of a store's catalog and of its directory durable. Ignores missing permission
/// and file systems that cannot flush a directory: a read-only one has nothing to flush, and may
/// return an error.
fn flush_name(storage: &dyn Storage, directory: &Path) -> Result<()> {
    for folder in [directory, &parent_of(directory)] {
        match storage.sync_directory(folder) {
            Err(Error::NotPermitted { .. }) | Ok(()) => {}
            Err(Error::Io { source, .. }) if has_no_flush(&source) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Returns true if the error means that the file system lacks the operation.
fn has_no_flush(error: &std::io::Error) -> bool {
    let code = error.raw_os_error();
    [libc::EINVAL, libc::EROFS, libc::ENOTSUP, libc::ENOSYS].iter().any(|c| code == Some(*c))
}

/// Opens the file whose byte locks are the address leases. Opens it read-only if this user may not
/// write it.
fn open_lock_file(storage: &dyn Storage, path: &Path) -> Result<Arc<dyn File>> {
    match storage.open(path, OpenMode::ReadWrite) {
        Err(Error::NotPermitted { .. }) => storage.open(path, OpenMode::Read),
        Err(e) if e.is_missing_file() => storage.open(path, OpenMode::OpenOrCreate),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_file_system_without_directory_flush_is_accepted_and_a_missing_directory_fails() {
        let storage = Options::new().storage;
        storage.sync_directory(Path::new("/proc/self")).unwrap_err();
        flush_name(&*storage, Path::new("/proc/self")).unwrap();
        flush_name(&*storage, Path::new("/proc/self/nowhere")).unwrap_err();
    }
}
