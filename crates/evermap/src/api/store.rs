//! Stores: the public handle for a directory of named objects. Also creates new stores. The catalog
//! of a new store gets its name last, so a directory without a catalog is not a store.

use std::path::Path;
use std::sync::Arc;

use tracing::debug;

use super::application::ApplicationKey;
use super::batch::Batch;
use super::catalog::creation::{NewCatalog, write_catalog};
use super::guest::info as guest_info;
use super::home::{Home, Use};
use super::info::ObjectInfo;
use super::options::Options;
use super::session::Session;
use super::session::raw::RawSession;
use super::snapshot::Snapshot;
use super::snapshot::raw::RawSnapshot;
use crate::catalog::Catalog;
use crate::commit::WriteOptions;
use crate::error::{Error, Result, STORE_THERE};
use crate::layout::{ADDRESSES, BUILDING, CATALOG, CATALOG_LOG, NEW_CATALOG, OBJECTS};
use crate::object::{Reader, lock_byte};
use crate::persist::{Build, Persist};
use crate::storage::{LockKind, OpenMode, Storage};

/// A directory of named objects. Cheap to clone. A process has one mapping of each object, however
/// often it opens the store.
///
/// ```
/// use evermap::{PVec, PString, Store};
/// # let directory = tempfile::tempdir()?;
/// let store = Store::open_or_create(directory.path().join("store"))?;
/// store.create::<PVec<PString>, _>("todo", ["write", "read"])?;
/// assert_eq!(*store.read::<PVec<PString>>("todo")?, ["write", "read"]);
/// store.rename("todo", "done")?;
/// assert_eq!(store.list()?, ["done"]);
/// store.remove("done")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Store {
    pub(super) home: Arc<Home>,
    pub(super) application: Option<ApplicationKey>,
}

impl Store {
    /// Opens the store in a directory.
    ///
    /// Reserves the store's addresses, maps only the catalog and verifies its checksums. Takes some
    /// 80 us the first time in a small process. If the store has not changed since its creation,
    /// also flushes its directory, because the creator may have been killed before it did so.
    ///
    /// # Errors
    /// `NoStore`. `AddressTaken` if something else is mapped at the store's addresses, for example
    /// an open copy of the store. `Foreign`, `Damaged`, `NewerFormat`.
    pub fn open(directory: impl AsRef<Path>) -> Result<Store> {
        Options::new().open(directory)
    }

    /// Creates a store in a directory, which must be empty or not exist.
    ///
    /// # Errors
    /// `StoreExists`, `NotPermitted`, `DiskFull`.
    pub fn create_new(directory: impl AsRef<Path>) -> Result<Store> {
        Options::new().create_new(directory)
    }

    /// Opens the store in a directory. Creates a store if there is none.
    ///
    /// # Errors
    /// Same errors as [`open`](Store::open) and [`create_new`](Store::create_new).
    pub fn open_or_create(directory: impl AsRef<Path>) -> Result<Store> {
        Options::new().open_or_create(directory)
    }

    /// Returns the storage of the store's files.
    pub(crate) fn storage(&self) -> Arc<dyn Storage> {
        Arc::clone(&self.home.options.storage)
    }

    /// Returns the store's directory.
    pub fn path(&self) -> &Path {
        self.home.path()
    }

    /// Returns a handle for an application. It can open objects that belong to the application, and
    /// objects created through it belong to the application. See [`ApplicationKey`].
    pub fn for_application(&self, key: ApplicationKey) -> Store {
        Store { home: Arc::clone(&self.home), application: Some(key) }
    }

    /// Creates an object and builds its root from `source`, in place. Durable on return.
    ///
    /// # Errors
    /// `AlreadyExists`, `InvalidName`, `DiskFull`, and the errors of building the root. The store
    /// is unchanged after an error, except perhaps after `DurabilityUnknown`.
    pub fn create<T, S>(&self, name: &str, source: S) -> Result<()>
    where
        T: Persist + Build<S>,
    {
        let mut batch = self.batch()?;
        batch.create::<T, S>(name, source)?;
        batch.commit()
    }

    /// Creates an object, and replaces an existing object of the same name. Readers of the old
    /// object keep it open.
    ///
    /// # Errors
    /// Same errors as [`create`](Store::create); and `Busy` if the old object is open for writing.
    pub fn replace<T, S>(&self, name: &str, source: S) -> Result<()>
    where
        T: Persist + Build<S>,
    {
        let mut batch = self.batch()?;
        batch.replace::<T, S>(name, source)?;
        batch.commit()
    }

    /// Begins a batch: many objects created or replaced in one durable commit.
    ///
    /// # Errors
    /// When the directory cannot be opened.
    pub fn batch(&self) -> Result<Batch> {
        Batch::new(&self.home, self.application)
    }

    /// Opens the last commit of an object for reading. Does not wait for a session of another
    /// process that writes the object.
    ///
    /// # Errors
    /// `NotFound`, `SchemaMismatch` if the root is not a `T`, `Busy` while this process has the
    /// object open for writing, `OtherApplication`, `OtherKind` for a guest object, `Damaged`,
    /// `LogMissing`, `AddressTaken`.
    pub fn read<T: Persist>(&self, name: &str) -> Result<Snapshot<T>> {
        self.home.run(Use::Read, |inner| Snapshot::open(inner, name, self.application))
    }

    /// Opens an object for writing. There is one writer at a time. Other processes may read the
    /// object.
    ///
    /// If the last writer was killed, recovers the object first, to its last durable commit.
    ///
    /// # Errors
    /// Same errors as [`read`](Store::read). `Busy` also while another process has it open for
    /// writing, and `NotPermitted`.
    pub fn write<T: Persist>(&self, name: &str) -> Result<Session<T>> {
        self.write_with(name, &self.home.options.write)
    }

    /// Like [`write`](Store::write), with options for this session.
    ///
    /// # Errors
    /// Same errors as [`write`](Store::write).
    pub fn write_with<T: Persist>(&self, name: &str, options: &WriteOptions) -> Result<Session<T>> {
        let application = self.application;
        self.home.run(Use::Open, |inner| Session::open(inner, name, options, application))
    }

    /// Creates an object without a root, for [`write_raw`](Store::write_raw). Durable on return.
    ///
    /// # Errors
    /// `AlreadyExists`, `InvalidName`, `DiskFull`. The store is unchanged after an error, except
    /// perhaps after `DurabilityUnknown`.
    pub fn create_raw(&self, name: &str) -> Result<()> {
        let mut batch = self.batch()?;
        batch.create_raw(name)?;
        batch.commit()
    }

    /// Like [`create_raw`](Store::create_raw), and reserves room for a block of `bytes`, or many
    /// smaller ones: allocated disk space, and addresses for twice as much. Costs the same three
    /// flushes. A later [`RawSession::reserve`](crate::RawSession::reserve) would cost up to five
    /// more. The object's first session keeps the room, used or not. Closing a later session may
    /// release what is still free, as after [`reserve`](crate::RawSession::reserve).
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// let store = evermap::Store::create_new(directory.path().join("store"))?;
    /// store.create_raw_sized("film", 4 << 20)?;
    /// let film = store.write_raw("film")?;
    /// assert!(film.info()?.file_bytes > 4 << 20);
    /// film.heap().allocate(4 << 20, 16)?; // meets no full disk
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Same errors as [`create_raw`](Store::create_raw), and `OutOfAddresses`.
    pub fn create_raw_sized(&self, name: &str, bytes: u64) -> Result<()> {
        let mut batch = self.batch()?;
        batch.create_raw_sized(name, bytes)?;
        batch.commit()
    }

    /// Like [`read`](Store::read), independent of the root's type.
    ///
    /// # Errors
    /// Same errors as [`read`](Store::read), without `SchemaMismatch`.
    pub fn read_raw(&self, name: &str) -> Result<RawSnapshot> {
        self.home.run(Use::Read, |inner| RawSnapshot::open(inner, name, self.application))
    }

    /// Like [`write`](Store::write), independent of the root's type.
    ///
    /// # Errors
    /// Same errors as [`write`](Store::write), without `SchemaMismatch`.
    pub fn write_raw(&self, name: &str) -> Result<RawSession> {
        self.write_raw_with(name, &self.home.options.write)
    }

    /// Like [`write_raw`](Store::write_raw), with options for this session.
    ///
    /// # Errors
    /// Same errors as [`write_raw`](Store::write_raw).
    pub fn write_raw_with(&self, name: &str, options: &WriteOptions) -> Result<RawSession> {
        let application = self.application;
        self.home.run(Use::Open, |inner| RawSession::open(inner, name, options, application))
    }

    /// Returns the object that has `address`, according to the catalog. The object need not be
    /// open. Returns `None` if no object has it. Scans the entries of all objects.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// let store = evermap::Store::create_new(directory.path().join("store"))?;
    /// store.create::<u64, _>("number", 7)?;
    /// let number = store.read::<u64>("number")?;
    /// assert_eq!(store.object_at(&raw const *number as usize)?, Some("number".to_string()));
    /// assert_eq!(store.object_at(&raw const store as usize)?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Errors of reading the catalog.
    pub fn object_at(&self, address: usize) -> Result<Option<String>> {
        let holder = |catalog: &Catalog, _: &Reader| catalog.holder(address as u64);
        self.home.run(Use::Read, |inner| inner.catalog()?.read(holder))
    }

    /// Returns true if there is an object of this name.
    ///
    /// # Errors
    /// `InvalidName`, and errors of reading the catalog.
    pub fn contains(&self, name: &str) -> Result<bool> {
        match self.home.run(Use::Read, |inner| inner.find(name)) {
            Ok(_) => Ok(true),
            Err(Error::NotFound { .. }) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Returns the names of the objects, in the order of their creation.
    ///
    /// # Errors
    /// Errors of reading the catalog.
    pub fn list(&self) -> Result<Vec<String>> {
        let list = |catalog: &Catalog, _: &Reader| catalog.list();
        let entries = self.home.run(Use::Read, |inner| inner.catalog()?.read(list))?;
        Ok(entries.into_iter().map(|(name, _)| name).collect())
    }

    /// Renames an object, durably. Sessions and snapshots of it stay valid.
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists`, `InvalidName`.
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.home.run(Use::Change, |inner| inner.rename(from, to))
    }

    /// Removes an object, durably. Snapshots of it stay valid.
    ///
    /// # Errors
    /// `NotFound`, `InvalidName`, `Busy` if the object is open for writing.
    pub fn remove(&self, name: &str) -> Result<()> {
        self.home.run(Use::Change, |inner| inner.remove(name))
    }

    /// Returns information about an object, independent of its type.
    ///
    /// # Errors
    /// Same errors as [`read`](Store::read).
    pub fn info(&self, name: &str) -> Result<ObjectInfo> {
        self.home.run(Use::Read, |inner| match inner.read_object(name) {
            Err(Error::OtherKind { .. }) => guest_info(inner, name),
            opened => opened?.info(),
        })
    }
}

impl Options {
    /// Like [`Store::open`], with these options.
    ///
    /// # Errors
    /// Same errors as [`Store::open`].
    pub fn open(&self, directory: impl AsRef<Path>) -> Result<Store> {
        self.open_named(directory.as_ref(), false)
    }

    fn open_named(&self, directory: &Path, named: bool) -> Result<Store> {
        Ok(Store { home: Home::open(directory, self, named)?, application: None })
    }

    /// Like [`Store::create_new`], with these options.
    ///
    /// # Errors
    /// Same errors as [`Store::create_new`].
    pub fn create_new(&self, directory: impl AsRef<Path>) -> Result<Store> {
        create_store(directory.as_ref(), self)?;
        self.open_named(directory.as_ref(), true)
    }

    /// Like [`Store::open_or_create`], with these options.
    ///
    /// # Errors
    /// Same errors as [`Store::open_or_create`].
    pub fn open_or_create(&self, directory: impl AsRef<Path>) -> Result<Store> {
        match self.open(&directory) {
            Err(Error::NoStore { .. }) => {}
            other => return other,
        }
        match create_store(directory.as_ref(), self) {
            Ok(()) => self.open_named(directory.as_ref(), true),
            // Another process may have created the store first.
            Err(exists @ Error::StoreExists { .. }) => self.open(directory).map_err(|e| match e {
                Error::NoStore { .. } => exists,
                other => other,
            }),
            Err(e) => Err(e),
        }
    }
}

/// Creates the files of an empty store. The catalog comes last and gets its name when it is
/// durable.
fn create_store(directory: &Path, options: &Options) -> Result<()> {
    crate::address::check_page_size()?;
    let storage = Arc::clone(&options.storage);
    let exists =
        |why: &str| Err(Error::StoreExists { path: directory.to_path_buf(), why: why.to_string() });
    if let Some(parent) = directory.parent().filter(|p| !p.as_os_str().is_empty()) {
        storage.create_directories(parent)?;
    }
    match storage.create_directory(directory) {
        Ok(()) => {}
        Err(e) if already_there(&e) => {
            let known = [ADDRESSES, BUILDING, OBJECTS, CATALOG_LOG, NEW_CATALOG];
            let names = storage.list(directory).map_err(|e| match e {
                Error::Io { path, source, .. } => {
                    Error::StoreExists { path, why: source.to_string() }
                }
                other => other,
            })?;
            if names.iter().any(|name| name == CATALOG) {
                return exists(STORE_THERE);
            }
            // Files that a killed creation left can be reused.
            if let Some(other) = names.iter().find(|name| !known.contains(&name.as_str())) {
                return exists(&format!("the directory holds `{other}`"));
            }
        }
        Err(e) => return Err(e),
    }
    let locks = storage.open(&directory.join(ADDRESSES), OpenMode::OpenOrCreate)?;
    let display_name = format!("the new store {}", directory.display());
    lock_byte(&*locks, LockKind::Exclusive, 0, options.catalog_timeout, &display_name)?;
    if storage.list(directory)?.iter().any(|name| name == CATALOG) {
        return exists(STORE_THERE);
    }
    for folder in [OBJECTS, BUILDING] {
        match storage.create_directory(&directory.join(folder)) {
            Err(e) if !already_there(&e) => return Err(e),
            _ => {}
        }
    }
    write_catalog(directory, options, NewCatalog::default())?;
    debug!(directory = %directory.display(), "created a store");
    Ok(())
}

fn already_there(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::AlreadyExists)
}
