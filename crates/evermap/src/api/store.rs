//! The store: a directory of named objects.

use std::path::Path;
use std::sync::Arc;

use tracing::debug;

use super::application::ApplicationKey;
use super::batch::Batch;
use super::guest;
use super::home::{Home, Use};
use super::info::ObjectInfo;
use super::inner::{ADDRESSES, BUILDING, CATALOG, CATALOG_LOG, OBJECTS};
use super::new_catalog::{NewCatalog, write_catalog};
use super::options::Options;
use super::raw::{RawSession, RawSnapshot};
use super::session::Session;
use super::snapshot::{Shared, Snapshot};
use crate::catalog::Catalog;
use crate::commit::WriteOptions;
use crate::error::{Error, Result, STORE_THERE};
use crate::layout::NEW_CATALOG;
use crate::object::{Reader, lock_byte};
use crate::persist::{Build, Persist};
use crate::storage::{LockKind, OpenMode, Storage};

/// A directory of named objects. Cheap to clone; one process has one mapping of each object,
/// however often its store is opened.
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
    /// Reserves its addresses; maps nothing but the catalog, and compares that with its checksums:
    /// some 80 us the first time in a small process. A store that nobody has changed since it was
    /// made has its directory flushed, should its maker have been killed before that.
    ///
    /// # Errors
    /// `NoStore`; `AddressTaken` when something else lies at the store's addresses (a copy of the
    /// store that is open already, for example); `Foreign`, `Damaged`, `NewerFormat`.
    pub fn open(directory: impl AsRef<Path>) -> Result<Store> {
        Options::new().open(directory)
    }

    /// Makes a store in a directory, which must be empty or not exist.
    ///
    /// # Errors
    /// `StoreExists`, `NotPermitted`, `DiskFull`.
    pub fn create_new(directory: impl AsRef<Path>) -> Result<Store> {
        Options::new().create_new(directory)
    }

    /// Opens the store in a directory; makes one if there is none.
    ///
    /// # Errors
    /// As [`open`](Store::open) and [`create_new`](Store::create_new).
    pub fn open_or_create(directory: impl AsRef<Path>) -> Result<Store> {
        Options::new().open_or_create(directory)
    }

    /// Where its files are.
    pub(crate) fn storage(&self) -> Arc<dyn Storage> {
        Arc::clone(&self.home.options.storage)
    }

    /// The store's directory.
    pub fn path(&self) -> &Path {
        self.home.path()
    }

    /// This store for an application: what is made through the handle belongs to it, and what
    /// belongs to it can be opened. See [`ApplicationKey`].
    pub fn for_application(&self, key: ApplicationKey) -> Store {
        Store { home: Arc::clone(&self.home), application: Some(key) }
    }

    /// Makes an object; its root is built from `source`, in place. Durable on return.
    ///
    /// # Errors
    /// `AlreadyExists`, `InvalidName`, `DiskFull`, and what building returns. The store is as it
    /// was then.
    pub fn create<T, S>(&self, name: &str, source: S) -> Result<()>
    where
        T: Persist + Build<S>,
    {
        let mut batch = self.batch()?;
        batch.create::<T, S>(name, source)?;
        batch.commit()
    }

    /// Makes an object that takes the place of one of the same name, if there is one. Readers
    /// keep what they have open.
    ///
    /// # Errors
    /// As [`create`](Store::create); `Busy` when the old one is being written.
    pub fn replace<T, S>(&self, name: &str, source: S) -> Result<()>
    where
        T: Persist + Build<S>,
    {
        let mut batch = self.batch()?;
        batch.replace::<T, S>(name, source)?;
        batch.commit()
    }

    /// Begins a batch: many objects made or replaced at one durable point.
    ///
    /// # Errors
    /// When the directory cannot be opened.
    pub fn batch(&self) -> Result<Batch> {
        Batch::new(&self.home, self.application)
    }

    /// Opens an object for reading: its last commit. Works beside a writer in another process, and
    /// waits for nobody.
    ///
    /// # Errors
    /// `NotFound`, `SchemaMismatch` when its root is not a `T`, `Busy` while this process is writing
    /// it, `Damaged`, `LogMissing`, `AddressTaken`.
    pub fn read<T: Persist>(&self, name: &str) -> Result<Snapshot<T>> {
        self.home.run(Use::Read, |inner| Snapshot::open(inner, name, self.application))
    }

    /// Opens an object for writing. There is one writer at a time; readers in other processes may
    /// stay and come.
    ///
    /// An object whose last writer was killed is recovered first: what was committed is there.
    ///
    /// # Errors
    /// As [`read`](Store::read), `Busy` also while another process is writing it, and `NotPermitted`.
    pub fn write<T: Persist>(&self, name: &str) -> Result<Session<T>> {
        self.write_with(name, &self.home.options.write)
    }

    /// As [`write`](Store::write), with choices of its own.
    ///
    /// # Errors
    /// As there.
    pub fn write_with<T: Persist>(&self, name: &str, options: &WriteOptions) -> Result<Session<T>> {
        let application = self.application;
        self.home.run(Use::Open, |inner| Session::open(inner, name, options, application))
    }

    /// Makes an object without a root, for [`write_raw`](Store::write_raw). Durable on return.
    ///
    /// # Errors
    /// `AlreadyExists`, `InvalidName`, `DiskFull`. The store is as it was then.
    pub fn create_raw(&self, name: &str) -> Result<()> {
        let mut batch = self.batch()?;
        batch.create_raw(name)?;
        batch.commit()
    }

    /// As [`create_raw`](Store::create_raw), with room for a block of `bytes`, or many that are
    /// smaller: disk space that nobody else can take, and addresses for as much again. Costs the
    /// same three flushes; [`RawSession::reserve`](crate::RawSession::reserve) afterwards costs up
    /// to five more. The object's first session leaves the room with it, used or not; later ones
    /// give back what is free, as [`reserve`](crate::RawSession::reserve) says.
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
    /// As there, and `OutOfAddresses`.
    pub fn create_raw_sized(&self, name: &str, bytes: u64) -> Result<()> {
        let mut batch = self.batch()?;
        batch.create_raw_sized(name, bytes)?;
        batch.commit()
    }

    /// Opens an object for reading, whatever its root is. As [`read`](Store::read) otherwise.
    ///
    /// # Errors
    /// As [`read`](Store::read), without `SchemaMismatch`.
    pub fn read_raw(&self, name: &str) -> Result<RawSnapshot> {
        self.home.run(Use::Read, |inner| RawSnapshot::open(inner, name, self.application))
    }

    /// Opens an object for writing, whatever its root is. As [`write`](Store::write) otherwise.
    ///
    /// # Errors
    /// As [`write`](Store::write), without `SchemaMismatch`.
    pub fn write_raw(&self, name: &str) -> Result<RawSession> {
        self.write_raw_with(name, &self.home.options.write)
    }

    /// As [`write_raw`](Store::write_raw), with choices of its own.
    ///
    /// # Errors
    /// As there.
    pub fn write_raw_with(&self, name: &str, options: &WriteOptions) -> Result<RawSession> {
        let application = self.application;
        self.home.run(Use::Open, |inner| RawSession::open(inner, name, options, application))
    }

    /// The object of this store that `address` belongs to, by the catalog, whether it is open or
    /// not; `None` when none does. Costs a look at every object's entry.
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
    /// What reading the catalog returns.
    pub fn object_at(&self, address: usize) -> Result<Option<String>> {
        let holder = |catalog: &Catalog, _: &Reader| catalog.holder(address as u64);
        self.home.run(Use::Read, |inner| inner.catalog()?.look(holder))
    }

    /// Is there an object of this name?
    ///
    /// # Errors
    /// `InvalidName`, and what reading the catalog returns.
    pub fn contains(&self, name: &str) -> Result<bool> {
        match self.home.run(Use::Read, |inner| inner.find(name)) {
            Ok(_) => Ok(true),
            Err(Error::NotFound { .. }) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Names of the objects, in the order they were made.
    ///
    /// # Errors
    /// What reading the catalog returns.
    pub fn list(&self) -> Result<Vec<String>> {
        let list = |catalog: &Catalog, _: &Reader| catalog.list();
        let entries = self.home.run(Use::Read, |inner| inner.catalog()?.look(list))?;
        Ok(entries.into_iter().map(|(name, _)| name).collect())
    }

    /// Gives an object another name, durably. Sessions and snapshots of it go on.
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists`, `InvalidName`.
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.home.run(Use::Change, |inner| inner.rename(from, to))
    }

    /// Removes an object, durably. Snapshots of it stay valid.
    ///
    /// # Errors
    /// `NotFound`, `Busy` when it is being written.
    pub fn remove(&self, name: &str) -> Result<()> {
        self.home.run(Use::Change, |inner| inner.remove(name))
    }

    /// What is known about an object, whatever its type.
    ///
    /// # Errors
    /// As [`read`](Store::read).
    pub fn info(&self, name: &str) -> Result<ObjectInfo> {
        self.home.run(Use::Read, |inner| match Shared::open(inner, name) {
            Err(Error::OtherKind { .. }) => guest::info(inner, name),
            opened => opened?.info(),
        })
    }
}

impl Options {
    /// As [`Store::open`], with these options.
    ///
    /// # Errors
    /// As there.
    pub fn open(&self, directory: impl AsRef<Path>) -> Result<Store> {
        self.open_named(directory.as_ref(), false)
    }

    fn open_named(&self, directory: &Path, named: bool) -> Result<Store> {
        Ok(Store { home: Home::open(directory, self, named)?, application: None })
    }

    /// As [`Store::create_new`], with these options.
    ///
    /// # Errors
    /// As there.
    pub fn create_new(&self, directory: impl AsRef<Path>) -> Result<Store> {
        create_store(directory.as_ref(), self)?;
        self.open_named(directory.as_ref(), true)
    }

    /// As [`Store::open_or_create`], with these options.
    ///
    /// # Errors
    /// As there.
    pub fn open_or_create(&self, directory: impl AsRef<Path>) -> Result<Store> {
        match self.open(&directory) {
            Err(Error::NoStore { .. }) => {}
            other => return other,
        }
        match create_store(directory.as_ref(), self) {
            Ok(()) => self.open_named(directory.as_ref(), true),
            // Perhaps somebody else was quicker.
            Err(exists @ Error::StoreExists { .. }) => self.open(directory).map_err(|e| match e {
                Error::NoStore { .. } => exists,
                other => other,
            }),
            Err(e) => Err(e),
        }
    }
}

/// Makes the files of an empty store. The catalog comes last and gets its name when it is
/// durable: a directory without it is no store.
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
            // What a creation that was killed left behind may be used again.
            if let Some(stranger) = names.iter().find(|name| !known.contains(&name.as_str())) {
                return exists(&format!("the directory holds `{stranger}`"));
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
    debug!(directory = %directory.display(), "made a store");
    Ok(())
}

fn already_there(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::AlreadyExists)
}
