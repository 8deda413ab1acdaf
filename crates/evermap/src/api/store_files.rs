//! Files of one open store: directory, catalog, address leases, and how an object is found by its
//! name.
//!
//! Sessions and mapped commits work on these files. They know the list of open objects, which
//! belongs to the store above, only as [`OpenEntry`].

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::{debug, warn};

use super::addresses::leases::{LeaseTable, SharedLeases};
use super::application::ApplicationKey;
use super::catalog::access::{CatalogAccess, CatalogWatch};
use super::options::Options;
use crate::address::AddressSpace;
use crate::at_fork;
use crate::catalog::{self, Found, Lease};
use crate::error::{Error, Result};
use crate::format::{KIND_OBJECT, Superblock};
use crate::layout::{ADDRESSES, BUILDING, CATALOG_LOG, OBJECTS};
use crate::mutate::{Mutant, mutated};
use crate::object::{Identity, ObjectPaths, hex, lease_of};
use crate::storage::{File, OpenMode, Storage, parent_of};

/// Maximum number of look-ups in one call. Each further one means that another process replaced the
/// object again.
const LOOK_UPS_MAX: usize = 1000;
/// Number of look-ups that find the same object without its file before that counts as damage.
const SAME_FILE_MAX: usize = 8;

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A store that has objects open.
pub(super) trait HoldsObjects: Send + Sync {
    /// Returns the files of the store.
    fn files(&self) -> &StoreFiles;

    /// Removes an object from the list of open objects.
    fn forget(&self, uuid: [u8; 16]);
}

/// Entry of an open object in its store's list. Keeps the store open, and removes the object from
/// the list when it is dropped. By then the object's addresses must be free, because a thread that
/// waits for the removal maps the object again.
pub(super) struct OpenEntry {
    store: Arc<dyn HoldsObjects>,
    uuid: [u8; 16],
    is_removed: bool,
}

impl OpenEntry {
    /// Wraps the entry of an object that is in the list.
    pub(super) fn new(store: Arc<dyn HoldsObjects>, uuid: [u8; 16]) -> OpenEntry {
        OpenEntry { store, uuid, is_removed: false }
    }

    pub(super) fn files(&self) -> &StoreFiles {
        self.store.files()
    }

    pub(super) fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// Removes the object from the list. Dropping the entry does the same.
    pub(super) fn remove(&mut self) {
        // In a forked child the list belongs to the parent, and may be locked forever.
        if !std::mem::replace(&mut self.is_removed, true) && !at_fork::is_child() {
            self.store.forget(self.uuid);
        }
    }
}

impl Drop for OpenEntry {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Files and addresses of one open store.
pub(super) struct StoreFiles {
    pub(super) directory: PathBuf,
    pub(super) uuid: [u8; 16],
    /// First arena: base and length.
    pub(super) arena: (u64, u64),
    pub(super) options: Options,
    pub(super) storage: Arc<dyn Storage>,
    pub(super) space: Arc<AddressSpace>,
    pub(super) lease_table: Arc<LeaseTable>,
    catalog: Mutex<CatalogAccess>,
}

impl StoreFiles {
    /// Opens the files of a store and reserves its addresses. `named` is true if this process has
    /// just created the store and made its name durable.
    pub(super) fn open(
        storage: Arc<dyn Storage>,
        directory: &Path,
        options: &Options,
        catalog_file: Arc<dyn File>,
        named: bool,
    ) -> Result<StoreFiles> {
        crate::address::check_page_size()?;
        let display_name = format!("store {}", directory.display());
        let space = AddressSpace::new(&display_name);
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
        let superblock = catalog.superblock()?;
        let arena = (superblock.arena_base, superblock.arena_length);
        if !options.window.contains(arena.0, arena.1) {
            debug!(base = arena.0, "the store's arena lies outside the window given");
        }
        // Unchanged since its creation. The creator may have been killed before the name was
        // durable, and then later changes would be lost with the store.
        if superblock.commit_sequence == 1 && !named && !mutated(Mutant::NewStoreTrustedUnflushed) {
            flush_name(&*storage, directory)?;
        }
        Ok(StoreFiles {
            directory: directory.to_path_buf(),
            uuid: superblock.store_uuid,
            arena,
            options: options.clone(),
            storage,
            space,
            lease_table,
            catalog: Mutex::new(catalog),
        })
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

    /// Returns the catalog entry of a name.
    pub(super) fn find(&self, name: &str) -> Result<Found> {
        catalog::check_name(name)?;
        self.catalog()?.find(name, |found, _| found.ok_or_else(|| self.not_found(name)))
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
        self.catalog()?.find(name, |found, _| {
            let found = found.ok_or_else(|| self.not_found(name))?;
            let leases = self.lease_table.share(&found.leases)?;
            Ok(Located { uuid: found.uuid, leases })
        })
    }

    fn file_missing(&self, name: &str, uuid: [u8; 16]) -> Error {
        Error::Damaged {
            path: self.paths(name, uuid).path,
            what: "the object's file",
            found: "no such file".to_string(),
            expected: format!("the file of object `{name}`"),
        }
    }

    /// Refuses an object that belongs to another application.
    pub(super) fn check_application(
        &self,
        name: &str,
        superblock: &Superblock,
        application: Option<ApplicationKey>,
    ) -> Result<()> {
        let stored = ApplicationKey::from_bytes(superblock.application_key);
        if stored.is_none() || stored == application {
            return Ok(());
        }
        let shown =
            |key: Option<ApplicationKey>| key.map_or("none".to_string(), |k| hex(&k.bytes()));
        Err(Error::OtherApplication {
            store: self.directory.clone(),
            object: name.to_string(),
            stored: shown(stored),
            given: shown(application),
        })
    }

    /// Returns the error for an object that this process has open in a conflicting way.
    pub(super) fn busy_here(&self, name: &str, how: &str) -> Error {
        Error::Busy {
            what: format!("object `{name}` of store {}", self.directory.display()),
            holder: format!(
                "it is being {how} in this process; Store::share lets its threads read and write it"
            ),
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
        files: &StoreFiles,
        superblock: &Superblock,
    ) -> Result<SharedLeases> {
        let regions = superblock.regions().iter().map(lease_of);
        let wanted: Vec<Lease> = regions.map(|(base, bytes)| Lease { base, bytes }).collect();
        let grew = self.leases.add(&wanted)?;
        // The new leases were shared without the catalog's lock. If the object was removed before
        // that, fail, so that the next look-up finds the object that has its name now.
        if grew && !files.catalog()?.read(|catalog, _| catalog.has_uuid(self.uuid))? {
            let path = files.path_in(OBJECTS, self.uuid);
            return Err(Error::from_io(std::io::ErrorKind::NotFound.into(), "open", &path));
        }
        Ok(self.leases)
    }
}

impl Drop for StoreFiles {
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
    match storage.open_any_type(path, OpenMode::ReadWrite) {
        Err(Error::NotPermitted { .. }) => storage.open_any_type(path, OpenMode::Read),
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
