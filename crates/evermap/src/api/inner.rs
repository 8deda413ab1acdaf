//! What all handles of one open store share.
//!
//! A process has one [`Inner`] a store, however often the store is opened: the arena can be
//! reserved once. It finds objects by name, keeps the list of what this process has open, and
//! publishes new objects: files first, durable, then one catalog commit that names them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tracing::{debug, warn};

use super::catalog_access::{CatalogAccess, own_leases};
use super::leases::LeaseBook;
use super::options::Options;
use super::snapshot::Shared;
use crate::address::{AddressSpace, random_uuid};
use crate::catalog::{self, Arena, Found, Lease};
use crate::commit::LogPolicy;
use crate::error::{Error, Result};
use crate::format::KIND_OBJECT;
use crate::object::{Addresses, Environment, Identity, Place, WRITER_BYTE, Writer, hex, lock_byte};
use crate::storage::{Disk, File, FileIdentity, LockKind, OpenMode, Storage};

/// Names inside a store's directory.
pub(super) const CATALOG: &str = "catalog";
pub(super) const CATALOG_LOG: &str = "catalog.log";
pub(super) const ADDRESSES: &str = "addresses";
pub(super) const OBJECTS: &str = "objects";
pub(super) const BUILDING: &str = "building";

/// Open stores of this process by identity of their directory.
static OPEN: Mutex<Vec<(FileIdentity, Weak<Inner>)>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What this process has open of one object.
pub(super) enum OpenObject {
    Reading(Weak<Shared>),
    Writing,
}

/// An object that is complete and durable, and not yet in the catalog.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) name: String,
    pub(super) uuid: [u8; 16],
    pub(super) created_ns: u64,
    pub(super) leases: Vec<Lease>,
    /// An object of this name may be there and is replaced then.
    pub(super) replace: bool,
}

pub(super) struct Inner {
    pub(super) directory: PathBuf,
    pub(super) uuid: [u8; 16],
    pub(super) options: Options,
    pub(super) storage: Arc<dyn Storage>,
    pub(super) space: Arc<AddressSpace>,
    pub(super) book: Arc<LeaseBook>,
    catalog: Mutex<CatalogAccess>,
    open: Mutex<HashMap<[u8; 16], OpenObject>>,
    /// First bytes of the ids of all objects made here: while the byte of the lock file at this
    /// offset is locked, their maker lives, and nobody sweeps their unfinished files away.
    token: Mutex<Option<u64>>,
    swept: Mutex<bool>,
}

/// An object whose files are to go, and the lock that keeps writers away until they are gone.
type Doomed = ([u8; 16], Option<Arc<dyn File>>);

/// Bytes of an object's id that are its maker's token. Tokens as lock offsets stay below every
/// window, so they never meet an address.
const TOKEN_BYTES: usize = 5;

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("directory", &self.directory).finish()
    }
}

/// Leases addresses for objects of a store.
struct StoreAddresses(Weak<Inner>);

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

    fn give_up(&self, base: u64, bytes: u64) {
        if let Some(inner) = self.0.upgrade() {
            inner.book.give_up(&[Lease { base, bytes }]);
        }
    }
}

impl Inner {
    /// The store in `directory`, opened now or already open in this process.
    pub(super) fn open(directory: &Path, options: &Options) -> Result<Arc<Inner>> {
        let storage: Arc<dyn Storage> = Arc::new(Disk);
        let no_store =
            |why: &str| Error::NoStore { path: directory.to_path_buf(), why: why.to_string() };
        let identity = storage.directory_identity(directory).map_err(|e| match &e {
            Error::Io { source, .. } => no_store(&source.to_string()),
            _ => e,
        })?;
        // Held to the end: two threads that open one store must not both reserve its arena.
        let mut open = lock(&OPEN);
        open.retain(|(_, inner)| inner.strong_count() > 0);
        let known = open.iter().find(|(i, _)| *i == identity).and_then(|(_, w)| w.upgrade());
        if let Some(inner) = known {
            return Ok(inner);
        }
        let inner = Inner::open_new(storage, directory, options).map_err(|e| {
            if e.is_missing_file() { no_store("the directory has no catalog") } else { e }
        })?;
        open.push((identity, Arc::downgrade(&inner)));
        Ok(inner)
    }

    fn open_new(
        storage: Arc<dyn Storage>,
        directory: &Path,
        options: &Options,
    ) -> Result<Arc<Inner>> {
        crate::address::check_page_size()?;
        let path = directory.join(CATALOG);
        let called = format!("store {}", directory.display());
        let space = AddressSpace::new(&called);
        let catalog_file = storage.open(&path, OpenMode::Read)?;
        let head = crate::object::peek(&*catalog_file)?;
        let inside = |base| options.window.contains(base, head.arena_length);
        if !inside(head.arena_base) {
            debug!(base = head.arena_base, "the store's arena lies outside the window given");
        }
        space.reserve(head.arena_base, head.arena_length)?;
        let locks = open_lock_file(&*storage, &directory.join(ADDRESSES))?;
        let book = Arc::new(LeaseBook::new(locks));
        let mut catalog = CatalogAccess::open(
            Arc::clone(&storage),
            Arc::clone(&space),
            Arc::clone(&book),
            path,
            directory.join(CATALOG_LOG),
            options.catalog_timeout,
        )?;
        let uuid = catalog.look(|_, reader| reader.superblock().store_uuid)?;
        Ok(Arc::new(Inner {
            directory: directory.to_path_buf(),
            uuid,
            options: options.clone(),
            storage,
            space,
            book,
            catalog: Mutex::new(catalog),
            open: Mutex::default(),
            token: Mutex::default(),
            swept: Mutex::new(false),
        }))
    }

    pub(super) fn environment(self: &Arc<Self>) -> Environment {
        Environment {
            storage: Arc::clone(&self.storage),
            space: Arc::clone(&self.space),
            addresses: Arc::new(StoreAddresses(Arc::downgrade(self))),
        }
    }

    pub(super) fn catalog(&self) -> MutexGuard<'_, CatalogAccess> {
        lock(&self.catalog)
    }

    pub(super) fn open_objects(&self) -> MutexGuard<'_, HashMap<[u8; 16], OpenObject>> {
        lock(&self.open)
    }

    /// The same, after a snapshot of this object that is just being closed by another thread is
    /// gone: its addresses are free only then.
    pub(super) fn open_object(
        &self,
        uuid: [u8; 16],
    ) -> MutexGuard<'_, HashMap<[u8; 16], OpenObject>> {
        loop {
            let open = self.open_objects();
            match open.get(&uuid) {
                Some(OpenObject::Reading(weak)) if weak.strong_count() == 0 => {
                    drop(open);
                    std::thread::yield_now();
                }
                _ => return open,
            }
        }
    }

    /// The entry of a name.
    pub(super) fn find(&self, name: &str) -> Result<Found> {
        catalog::check_name(name)?;
        self.catalog().look(|catalog, _| catalog.find(name))?.ok_or_else(|| self.not_found(name))
    }

    pub(super) fn not_found(&self, name: &str) -> Error {
        Error::NotFound { store: self.directory.clone(), object: name.to_string() }
    }

    fn exists(&self, name: &str) -> Error {
        Error::AlreadyExists { store: self.directory.clone(), object: name.to_string() }
    }

    /// Fails early when a new object's name is bad or taken.
    pub(super) fn check_new(&self, name: &str, replace: bool) -> Result<()> {
        catalog::check_name(name)?;
        let taken = self.catalog().look(|catalog, _| catalog.find(name).is_some())?;
        if taken && !replace { Err(self.exists(name)) } else { Ok(()) }
    }

    pub(super) fn path_in(&self, folder: &str, uuid: [u8; 16]) -> PathBuf {
        self.directory.join(folder).join(hex(&uuid))
    }

    /// Where the files of an object are.
    pub(super) fn place(&self, name: &str, uuid: [u8; 16]) -> Place {
        let path = self.path_in(OBJECTS, uuid);
        Place {
            log_path: path.with_extension("log"),
            path,
            identity: Identity {
                store_uuid: Some(self.uuid),
                object_uuid: Some(uuid),
                kind: KIND_OBJECT,
            },
            called: format!("object `{name}` of store {}", self.directory.display()),
        }
    }

    /// Opens an object by whichever of its two homes its file is in: its maker may have died
    /// between naming it in the catalog and moving it.
    pub(super) fn with_place<R>(
        &self,
        name: &str,
        uuid: [u8; 16],
        open: impl Fn(&Place) -> Result<R>,
    ) -> Result<R> {
        let place = self.place(name, uuid);
        let missing = match open(&place) {
            Err(e) if e.is_missing_file() => e,
            other => return other,
        };
        match open(&Place { path: self.path_in(BUILDING, uuid), ..place }) {
            Err(e) if e.is_missing_file() => Err(missing),
            other => other,
        }
    }

    /// Finds an object and opens it. Between the two it may be replaced, and its old file be gone:
    /// then the name leads to another one.
    pub(super) fn find_and_open<R>(
        &self,
        name: &str,
        open: impl Fn(&Found) -> Result<R>,
    ) -> Result<R> {
        for _ in 0..3 {
            match open(&self.find(name)?) {
                Err(e) if e.is_missing_file() => {}
                other => return other,
            }
        }
        let found = self.find(name)?;
        Err(Error::Damaged {
            path: self.place(name, found.uuid).path,
            what: "the object's file",
            found: "no such file".to_string(),
            expected: format!("the file of object `{name}`"),
        })
    }

    /// Takes addresses for an object: from an arena of the store, or from a new one.
    pub(super) fn lease(&self, bytes: u64) -> Result<u64> {
        let book = &self.book;
        let taken = self.catalog().look(|catalog, reader| {
            let arenas: Vec<Arena> = catalog.arenas.iter().copied().collect();
            if let Some(base) = book.take_above(&arenas, bytes)? {
                return Ok(Some(base));
            }
            let mut used = catalog.used();
            used.extend(own_leases(reader));
            used.sort_unstable_by_key(|lease| lease.base);
            book.take_gap(&arenas, &used, bytes)
        })??;
        match taken {
            Some(base) => Ok(base),
            None => self.lease_from_new_arena(bytes),
        }
    }

    fn lease_from_new_arena(&self, bytes: u64) -> Result<u64> {
        let length = self.options.arena_bytes.max(bytes.next_power_of_two());
        let base = self.reserve_arena(length)?;
        debug!(base, length, "new arena");
        self.catalog().change(|mut catalog| {
            catalog.fields().arenas.push(Arena { base, length, high_water: base }).map(drop)
        })?;
        let arenas = [Arena { base, length, high_water: base }];
        self.book.take_above(&arenas, bytes)?.ok_or_else(|| Error::OutOfAddresses {
            what: "an object".to_string(),
            bytes,
            why: "other processes took the new arena at once".to_string(),
        })
    }

    fn reserve_arena(&self, length: u64) -> Result<u64> {
        reserve_somewhere(&self.space, &self.options, length)
    }

    /// Names finished objects, whose files are durable, in the catalog: all of them at once.
    pub(super) fn publish(&self, finished: &[Finished]) -> Result<()> {
        let replaced = self.catalog().change(|mut catalog| {
            let mut replaced = Vec::new();
            for object in finished {
                if let Some(old) = catalog.find(&object.name) {
                    if !object.replace {
                        return Err(self.exists(&object.name));
                    }
                    replaced.push(self.lock_for_removal(&object.name, old.uuid)?);
                    catalog::remove(catalog.reborrow(), &object.name, old.uuid)?;
                }
                let entry = Found {
                    uuid: object.uuid,
                    created_ns: object.created_ns,
                    leases: object.leases.clone(),
                };
                catalog::insert(catalog.reborrow(), &object.name, &entry)?;
            }
            Ok(replaced)
        })?;
        for object in finished {
            self.book.give_up(&object.leases);
            let from = self.path_in(BUILDING, object.uuid);
            if let Err(error) = self.storage.rename(&from, &self.path_in(OBJECTS, object.uuid)) {
                warn!(%error, "a new object stays in its first place");
            }
        }
        for (uuid, _lock) in &replaced {
            self.remove_files(*uuid);
        }
        self.sweep();
        Ok(())
    }

    /// Takes an object out of the catalog and removes its files.
    pub(super) fn remove(&self, name: &str) -> Result<()> {
        catalog::check_name(name)?;
        let (uuid, _lock) = self.catalog().change(|catalog| {
            let found = catalog.find(name).ok_or_else(|| self.not_found(name))?;
            let locked = self.lock_for_removal(name, found.uuid)?;
            catalog::remove(catalog, name, found.uuid)?;
            Ok(locked)
        })?;
        self.remove_files(uuid);
        self.sweep();
        Ok(())
    }

    /// Gives an object another name, in the catalog and (as far as nobody else is in the way) in
    /// its own superblock.
    pub(super) fn rename(self: &Arc<Self>, from: &str, to: &str) -> Result<()> {
        catalog::check_name(from)?;
        catalog::check_name(to)?;
        let uuid = self.catalog().change(|catalog| {
            let Some(found) = catalog.find(from) else {
                return Err(self.not_found(from));
            };
            if from != to && catalog.find(to).is_some() {
                return Err(self.exists(to));
            }
            if from != to {
                catalog::rename(catalog, from, to)?;
            }
            Ok(found.uuid)
        })?;
        // The name in the object file matters only should the catalog be lost. An object that is
        // in use keeps the old one there until its next commit.
        if let Err(error) = self.rename_inside(to, uuid) {
            debug!(%error, "the object file learns its new name later");
        }
        Ok(())
    }

    fn rename_inside(self: &Arc<Self>, name: &str, uuid: [u8; 16]) -> Result<()> {
        if self.open_objects().contains_key(&uuid) {
            return Ok(());
        }
        let environment = self.environment();
        let mut writer = self.with_place(name, uuid, |place| {
            Writer::open(&environment, place, LogPolicy::WhileOpen, Duration::ZERO)
        })?;
        writer.head_mut().set_name(name);
        writer.commit_head()?;
        writer.close()
    }

    /// Makes sure that nobody writes an object that is about to go. Readers may stay: they keep
    /// the file's pages, and its addresses, until they close it.
    fn lock_for_removal(&self, name: &str, uuid: [u8; 16]) -> Result<Doomed> {
        let opened = self.with_place(name, uuid, |place| {
            let file = self.storage.open(&place.path, OpenMode::ReadWrite)?;
            let patience = self.options.busy_timeout;
            lock_byte(&*file, LockKind::Exclusive, WRITER_BYTE, patience, &place.called)?;
            Ok(file)
        });
        match opened {
            Ok(file) => Ok((uuid, Some(file))),
            // A file that is gone already is no reason to keep its name.
            Err(e) if e.is_missing_file() => Ok((uuid, None)),
            Err(Error::Foreign { .. }) => Ok((uuid, None)),
            Err(e) => Err(e),
        }
    }

    fn remove_files(&self, uuid: [u8; 16]) {
        let path = self.path_in(OBJECTS, uuid);
        for path in [path.with_extension("log"), self.path_in(BUILDING, uuid), path] {
            match self.storage.remove(&path) {
                Err(error) if !error.is_missing_file() => warn!(%error, "a file is left behind"),
                _ => {}
            }
        }
    }

    /// Once a process: finishes what killed processes left half-done. Failures wait for the next.
    pub(super) fn sweep(&self) {
        if std::mem::replace(&mut *lock(&self.swept), true) {
            return;
        }
        if let Err(error) = self.sweep_building().and_then(|()| self.sweep_doomed()) {
            warn!(%error, "leftovers of other processes stay for now");
        }
    }

    fn sweep_building(&self) -> Result<()> {
        for name in self.storage.list(&self.directory.join(BUILDING))? {
            let Some(uuid) = parse_uuid(&name) else {
                continue;
            };
            let path = self.path_in(BUILDING, uuid);
            let named = self.catalog().look(|catalog, _| catalog.has_uuid(uuid))?;
            if named {
                self.storage.rename(&path, &self.path_in(OBJECTS, uuid))?;
                continue;
            }
            // Its maker may have published it and ended in between: look again.
            if !self.maker_lives(uuid)?
                && !self.catalog().look(|catalog, _| catalog.has_uuid(uuid))?
            {
                debug!(path = %path.display(), "removing an object that was never finished");
                self.storage.remove(&path)?;
            }
        }
        Ok(())
    }

    fn sweep_doomed(&self) -> Result<()> {
        let doomed: Vec<[u8; 16]> =
            self.catalog().look(|catalog, _| catalog.doomed.iter().copied().collect())?;
        if doomed.is_empty() {
            return Ok(());
        }
        for uuid in &doomed {
            self.remove_files(*uuid);
        }
        self.storage.sync_directory(&self.directory.join(OBJECTS))?;
        self.catalog().change(|mut catalog| {
            catalog.fields().doomed.retain(|uuid| !doomed.contains(uuid));
            Ok(())
        })
    }

    /// An id for a new object: our token, then random bits.
    pub(super) fn new_uuid(&self) -> Result<[u8; 16]> {
        let mut own = lock(&self.token);
        let mut uuid = random_uuid()?;
        let token = match *own {
            Some(token) => token,
            None => loop {
                let token = token_of(random_uuid()?);
                if self.book.lock_token(token)? {
                    break *own.insert(token);
                }
            },
        };
        uuid[..TOKEN_BYTES].copy_from_slice(&token.to_be_bytes()[8 - TOKEN_BYTES..]);
        Ok(uuid)
    }

    fn maker_lives(&self, uuid: [u8; 16]) -> Result<bool> {
        let token = token_of(uuid);
        Ok(*lock(&self.token) == Some(token) || self.book.token_is_locked(token)?)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let catalog = self.catalog.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !catalog.changed {
            return;
        }
        match catalog.checkpoint() {
            Ok(()) | Err(Error::Busy { .. }) => {}
            Err(error) => warn!(%error, "the catalog's log is left for the next user"),
        }
    }
}

/// Reserves an arena at a random place in the window; a place that is taken is tried elsewhere.
pub(super) fn reserve_somewhere(
    space: &AddressSpace,
    options: &Options,
    length: u64,
) -> Result<u64> {
    let mut last = None;
    for _ in 0..16 {
        let base = options.window.random_base(length)?;
        match space.reserve(base, length) {
            Ok(()) => return Ok(base),
            Err(e) => last = Some(e),
        }
    }
    Err(last.unwrap_or(Error::OutOfAddresses {
        what: "an arena".to_string(),
        bytes: length,
        why: "no place was tried".to_string(),
    }))
}

/// The file whose byte locks are address leases; who may not write it reads it.
fn open_lock_file(storage: &dyn Storage, path: &Path) -> Result<Arc<dyn File>> {
    match storage.open(path, OpenMode::ReadWrite) {
        Err(Error::NotPermitted { .. }) => storage.open(path, OpenMode::Read),
        Err(e) if e.is_missing_file() => storage.open(path, OpenMode::OpenOrCreate),
        other => other,
    }
}

fn token_of(uuid: [u8; 16]) -> u64 {
    uuid[..TOKEN_BYTES].iter().fold(0, |token, byte| token << 8 | u64::from(*byte))
}

fn parse_uuid(name: &str) -> Option<[u8; 16]> {
    let value = u128::from_str_radix(name, 16).ok()?;
    (name.len() == 32).then_some(value.to_be_bytes())
}
