//! What all handles of one open store share.
//!
//! A process has one [`Inner`] a store, however often the store is opened: the arena can be
//! reserved once. It finds objects by name and keeps the list of what this process has open; its
//! further methods stand beside what they are about, in `arenas`, `publish` and `sweep`.

use std::any::Any;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tracing::{debug, warn};

use super::arenas::StoreAddresses;
use super::catalog_access::{CatalogAccess, CatalogWatch};
use super::leases::{LeaseBook, SharedLeases};
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

/// Open stores of this process by identity of their catalog's file, which each keeps open.
static OPEN: Mutex<Vec<(FileIdentity, Weak<Inner>)>> = Mutex::new(Vec::new());

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Refuses to go on where this process has the store open: what is about to replace its files it
/// would not notice.
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

/// What this process has open of one object.
pub(super) enum OpenObject {
    /// The mapping that its snapshots share.
    Reading(Weak<dyn Any + Send + Sync>),
    /// One session.
    Writing,
    /// One session that threads share.
    Shared(Weak<SharedCore>),
}

/// The list of what is open, locked.
pub(super) type OpenObjects<'a> = MutexGuard<'a, HashMap<[u8; 16], OpenObject>>;

/// What is open of one object while the list is locked.
pub(super) enum Current {
    Closed,
    Writing,
    Reading(Arc<dyn Any + Send + Sync>),
    Shared(Arc<SharedCore>),
}

pub(super) struct Inner {
    pub(super) directory: PathBuf,
    pub(super) uuid: [u8; 16],
    /// The first arena: base and length.
    pub(super) arena: (u64, u64),
    pub(super) options: Options,
    pub(super) storage: Arc<dyn Storage>,
    pub(super) space: Arc<AddressSpace>,
    pub(super) book: Arc<LeaseBook>,
    catalog: Mutex<CatalogAccess>,
    open: Mutex<HashMap<[u8; 16], OpenObject>>,
    /// Held while an object is opened for sharing.
    pub(super) sharing: Mutex<()>,
    /// First bytes of the ids of all objects made here: while the byte of the lock file at this
    /// offset is locked, their maker lives, and nobody sweeps their unfinished files away.
    pub(super) token: Mutex<Option<u64>>,
    pub(super) swept: Mutex<bool>,
    /// Last, so that the addresses are given back before the entry in [`OPEN`] goes.
    registration: Registration,
}

/// A store's entry in [`OPEN`]; takes it out when dropped.
struct Registration(FileIdentity);

impl Drop for Registration {
    fn drop(&mut self) {
        // The list of a child may be locked for ever, and says nothing that counts there.
        if at_fork::is_child() {
            return;
        }
        lock(&OPEN).retain(|(identity, _)| *identity != self.0);
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("directory", &self.directory).finish()
    }
}

impl Inner {
    /// The store in `directory`, opened now or already open in this process. `named` says that this
    /// process has just made it, and its name durable.
    ///
    /// All files are those of one directory, also when another directory takes its place meanwhile. If
    /// that happens before the store is open, the new one is opened.
    pub(super) fn open(directory: &Path, options: &Options, named: bool) -> Result<Arc<Inner>> {
        at_fork::refuse_in_child(|| format!("store {}", directory.display()))?;
        let storage = &options.storage;
        for _ in 1..OPENINGS_MAX {
            // Paths are all there is where it cannot be entered.
            let entered = storage.enter(directory).map_err(|e| no_store_at(directory, e))?;
            let inside = entered.as_ref().unwrap_or(storage);
            match Inner::open_in(inside, directory, options, named) {
                Err(_) if was_replaced(&**storage, entered.as_deref(), directory) => {}
                opened => return opened,
            }
        }
        Inner::open_in(storage, directory, options, named)
    }

    fn open_in(
        storage: &Arc<dyn Storage>,
        directory: &Path,
        options: &Options,
        named: bool,
    ) -> Result<Arc<Inner>> {
        let catalog = directory.join(CATALOG);
        loop {
            // Held to the end: two threads that open one store must not both reserve its arena.
            let mut open = lock(&OPEN);
            // A catalog that is open keeps its identity.
            let identity = match open.is_empty() {
                true => None,
                false => storage.file_identity(&catalog).ok(),
            };
            let known = open.iter().find(|(known, _)| Some(*known) == identity);
            match known.map(|(_, weak)| weak.upgrade()) {
                Some(Some(inner)) => return Ok(inner),
                // Another thread is just closing it: its addresses are free when the entry is gone.
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
                // It was replaced between the two looks.
                continue;
            }
            let opened = Inner::open_new(Arc::clone(storage), directory, options, file, named);
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
    ) -> Result<Arc<Inner>> {
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
        let book = Arc::new(LeaseBook::new(locks));
        let mut catalog = CatalogAccess::open(
            Arc::clone(&storage),
            Arc::clone(&space),
            Arc::clone(&book),
            catalog_file,
            directory.join(CATALOG_LOG),
            options.catalog_timeout,
        )?;
        if let Err(refused) = space.reserve(head.arena_base, head.arena_length) {
            // The range was not checked yet: damage is the better reason.
            catalog.check_page_0()?;
            return Err(refused);
        }
        let (uuid, sequence) = catalog.look(|_, reader| {
            let superblock = reader.superblock();
            (superblock.store_uuid, superblock.commit_sequence)
        })?;
        // As its maker left it, who may have been killed before the name was durable: what is built
        // on it would go with it.
        if sequence == 1 && !named && !mutated(Mutant::NewStoreTrustedUnflushed) {
            flush_name(&*storage, directory)?;
        }
        Ok(Arc::new(Inner {
            directory: directory.to_path_buf(),
            uuid,
            arena: (head.arena_base, head.arena_length),
            options: options.clone(),
            storage,
            space,
            book,
            catalog: Mutex::new(catalog),
            open: Mutex::default(),
            sharing: Mutex::default(),
            token: Mutex::default(),
            swept: Mutex::new(false),
            registration: Registration(identity),
        }))
    }

    /// Identity of the catalog's file, which no other file has while this store is open.
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

    /// The catalog, for this thread.
    ///
    /// # Errors
    /// `Forked` in a child.
    pub(super) fn catalog(&self) -> Result<MutexGuard<'_, CatalogAccess>> {
        at_fork::refuse_in_child(|| format!("store {}", self.directory.display()))?;
        Ok(lock(&self.catalog))
    }

    /// For asking whether the catalog has changed.
    pub(super) fn watch_catalog(&self) -> CatalogWatch {
        lock(&self.catalog).watch()
    }

    pub(super) fn open_objects(&self) -> OpenObjects<'_> {
        lock(&self.open)
    }

    /// The same, with what is open of one object. Waits for another thread that is just closing
    /// its last snapshot or shared handle: the addresses are free only after that.
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

    /// The entry of a name.
    pub(super) fn find(&self, name: &str) -> Result<Found> {
        catalog::check_name(name)?;
        self.catalog()?.look(|catalog, _| catalog.find(name))?.ok_or_else(|| self.not_found(name))
    }

    pub(super) fn not_found(&self, name: &str) -> Error {
        Error::NotFound { store: self.directory.clone(), object: name.to_string() }
    }

    pub(super) fn path_in(&self, folder: &str, uuid: [u8; 16]) -> PathBuf {
        self.directory.join(folder).join(hex(&uuid))
    }

    /// Where the files of an object are.
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

    /// Opens an object by whichever of its two homes its file is in. Its maker may have died between
    /// naming it in the catalog and moving it, or may be about to move it: so the second home is
    /// looked at twice.
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

    /// Finds an object and opens it. Between the two the object may be replaced or removed, and an
    /// error about the old object says nothing about the one that has the name now. So every error
    /// is held against the catalog: it counts only if the name still leads to the same object.
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
                // The file of an object may be replaced by a copy of it: that is the same object.
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

    /// Finds a name and shares the addresses of its object, in one look at the catalog. From then on no
    /// other object gets them.
    fn locate(&self, name: &str) -> Result<Located> {
        catalog::check_name(name)?;
        let located = self.catalog()?.look(|catalog, _| {
            let Some(found) = catalog.find(name) else { return Ok(None) };
            let leases = self.book.share(&found.leases)?;
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

/// An object that was found by its name.
pub(super) struct Located {
    pub(super) uuid: [u8; 16],
    /// The addresses that the catalog gave it then.
    pub(super) leases: SharedLeases,
}

impl Located {
    /// Shares the addresses of all regions of the object, which was opened meanwhile. An object that
    /// grew since the catalog was read has more.
    pub(super) fn into_leases(
        mut self,
        inner: &Inner,
        superblock: &Superblock,
    ) -> Result<SharedLeases> {
        let regions = superblock.regions().iter().map(lease_of);
        let wanted: Vec<Lease> = regions.map(|(base, bytes)| Lease { base, bytes }).collect();
        let grew = self.leases.add(&wanted)?;
        // They were shared without a look at the catalog. If the object was removed before that, the
        // next look-up finds what has its name now.
        if grew && !inner.catalog()?.look(|catalog, _| catalog.has_uuid(self.uuid))? {
            let path = inner.path_in(OBJECTS, self.uuid);
            return Err(Error::from_io(std::io::ErrorKind::NotFound.into(), "open", &path));
        }
        Ok(self.leases)
    }
}

/// Openings of one call. Each further one needs another store that took the place of the last.
const OPENINGS_MAX: usize = 100;
/// Look-ups of one call. Each further one needs another process that replaced the object meanwhile.
const LOOK_UPS_MAX: usize = 1000;
/// Look-ups that find the same object without its file, before that is damage.
const SAME_FILE_MAX: usize = 8;

impl Drop for Inner {
    fn drop(&mut self) {
        let catalog = self.catalog.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !catalog.changed || at_fork::is_child() {
            return;
        }
        match catalog.checkpoint() {
            Ok(()) | Err(Error::Busy { .. }) => {}
            Err(error) => warn!(%error, "the catalog's log is left for the next user"),
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

/// Does the path lead to another directory than the one that was entered?
pub(crate) fn was_replaced(
    storage: &dyn Storage,
    entered: Option<&dyn Storage>,
    directory: &Path,
) -> bool {
    let Some(entered) = entered else { return false };
    let now = storage.directory_identity(directory).ok();
    now.is_some_and(|now| entered.directory_identity(directory).is_ok_and(|then| now != then))
}

/// Makes the names of a store's catalog and of its directory durable, as far as this user may and
/// the file system knows how: one that is only read has nothing to flush, and may say so by an error.
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

/// Does the error say that there is no such operation here, and not that it failed?
fn has_no_flush(error: &std::io::Error) -> bool {
    let code = error.raw_os_error();
    [libc::EINVAL, libc::EROFS, libc::ENOTSUP, libc::ENOSYS].iter().any(|c| code == Some(*c))
}

/// The file whose byte locks are address leases; who may not write it reads it.
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
    fn a_file_system_that_flushes_no_directories_is_no_error_and_a_missing_directory_is() {
        let storage = Options::new().storage;
        storage.sync_directory(Path::new("/proc/self")).unwrap_err();
        flush_name(&*storage, Path::new("/proc/self")).unwrap();
        flush_name(&*storage, Path::new("/proc/self/nowhere")).unwrap_err();
    }
}
