//! Batches: many objects created or replaced in one durable catalog commit. A batch owns its
//! unfinished files and their leases until [`commit`](Batch::commit). The files must be durable
//! before the catalog names them.

use std::collections::HashSet;
use std::ptr::NonNull;
use std::sync::Arc;

use super::addresses::leases::MakerToken;
use super::application::ApplicationKey;
use super::catalog::publish::{Finished, is_settled};
use super::home::{Home, Use};
use super::inner::StoreInner;
use crate::at_fork;
use crate::catalog::Lease;
use crate::error::{Error, Result};
use crate::format::KIND_OBJECT;
use crate::layout::{BUILDING, OBJECTS};
use crate::mutate::{Mutant, mutated};
use crate::object::{Draft, DraftOptions, Environment, GuestDraft, RootType, now_ns};
use crate::persist::{Build, Persist, build_root, type_description, type_id};
use crate::storage::{File, FileSystem};

/// Largest batch whose files are flushed one by one. For more objects, one flush of the file system
/// is cheaper and needs no open file per object.
const FLUSHED_SINGLY_MAX: usize = 64;

/// Objects that appear in the store together, or not at all.
///
/// Each object is built and written when it is added; [`commit`](Batch::commit) flushes them and
/// names all of them in one catalog commit. Dropping a batch removes what it built.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// let store = evermap::Store::create_new(directory.path().join("store"))?;
/// let mut batch = store.batch()?;
/// for n in 0..10 {
///     batch.create::<u64, _>(&format!("n{n}"), n)?;
/// }
/// assert!(store.list()?.is_empty());
/// batch.commit()?;
/// assert_eq!(store.list()?.len(), 10);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a batch that is dropped without a commit is discarded"]
#[derive(Debug)]
pub struct Batch {
    home: Arc<Home>,
    inner: Arc<StoreInner>,
    application: Option<ApplicationKey>,
    finished: Vec<Finished>,
    /// Locked with the first object.
    token: Option<MakerToken>,
    names: HashSet<String>,
    files: Vec<Arc<dyn File>>,
    file_system: Box<dyn FileSystem>,
}

/// Expected size of a new object.
#[derive(Default)]
struct Size {
    expected_bytes: Option<u64>,
    room_bytes: u64,
    /// Set for a guest object.
    guest: Option<GuestDraft>,
}

impl Batch {
    pub(super) fn new(home: &Arc<Home>, application: Option<ApplicationKey>) -> Result<Batch> {
        let (inner, file_system) = home.run(Use::Open, |inner| {
            let objects = inner.directory.join(OBJECTS);
            match inner.storage.directory_identity(&objects) {
                Err(error) if error.is_no_directory() => Err(Error::not_a_directory(&objects)),
                _ => Ok((Arc::clone(inner), inner.storage.file_system(&inner.directory)?)),
            }
        })?;
        Ok(Batch {
            home: Arc::clone(home),
            inner,
            application,
            finished: Vec::new(),
            token: None,
            names: HashSet::new(),
            files: Vec::new(),
            file_system,
        })
    }

    pub(super) fn inner(&self) -> &Arc<StoreInner> {
        &self.inner
    }

    /// Adds a new object; its root is built from `source`.
    ///
    /// # Errors
    /// `AlreadyExists`, `InvalidName`, `DiskFull`, and the errors of building the root. The batch
    /// is unchanged after an error.
    pub fn create<T, S>(&mut self, name: &str, source: S) -> Result<()>
    where
        T: Persist + Build<S>,
    {
        self.add::<T, S>(name, source, None, false)
    }

    /// Adds an object that replaces an existing object of the same name.
    ///
    /// # Errors
    /// Same errors as [`create`](Batch::create), without `AlreadyExists`.
    pub fn replace<T, S>(&mut self, name: &str, source: S) -> Result<()>
    where
        T: Persist + Build<S>,
    {
        self.add::<T, S>(name, source, None, true)
    }

    /// Like [`replace`](Batch::replace), for an object whose data will take about `expected_bytes`.
    /// Its file is allocated at once, with that size.
    ///
    /// # Errors
    /// Same errors as [`replace`](Batch::replace).
    pub fn replace_sized<T, S>(&mut self, name: &str, source: S, expected_bytes: u64) -> Result<()>
    where
        T: Persist + Build<S>,
    {
        self.add::<T, S>(name, source, Some(expected_bytes), true)
    }

    pub(super) fn add<T, S>(
        &mut self,
        name: &str,
        source: S,
        expected_bytes: Option<u64>,
        replace: bool,
    ) -> Result<()>
    where
        T: Persist + Build<S>,
    {
        let expected_bytes = expected_bytes.or_else(|| T::expected_bytes(&source));
        let size = Size { expected_bytes, ..Size::default() };
        let environment = self.inner.environment();
        self.add_built(name, &environment, size, replace, |draft| {
            let root = draft.place_root(RootType {
                bytes: size_of::<T>(),
                align: align_of::<T>(),
                type_id: type_id::<T>().0,
                schema: type_description::<T>(),
            })?;
            let root: NonNull<T> = root.cast();
            // SAFETY: the draft's root place has the size and alignment of a `T`, lies in the
            // draft's object, and no other reference to it exists.
            unsafe { build_root(draft.heap(), root, source)? };
            Ok(())
        })
    }

    /// Adds an object without a root.
    ///
    /// # Errors
    /// Same errors as [`create`](Batch::create).
    pub fn create_raw(&mut self, name: &str) -> Result<()> {
        self.create_raw_sized(name, 0)
    }

    /// Adds an object without a root that has room for `bytes`, as
    /// [`Store::create_raw_sized`](crate::Store::create_raw_sized) makes it.
    ///
    /// # Errors
    /// Same errors as [`create`](Batch::create).
    pub fn create_raw_sized(&mut self, name: &str, bytes: u64) -> Result<()> {
        let size = Size { room_bytes: bytes, ..Size::default() };
        let environment = self.inner.environment();
        self.add_built(name, &environment, size, false, |_| Ok(()))
    }

    /// Adds a guest object without a root.
    pub(super) fn add_guest(
        &mut self,
        name: &str,
        environment: &Environment,
        guest: GuestDraft,
    ) -> Result<()> {
        let size = Size { guest: Some(guest), ..Size::default() };
        self.add_built(name, environment, size, false, |_| Ok(()))
    }

    fn add_built(
        &mut self,
        name: &str,
        environment: &Environment,
        size: Size,
        replace: bool,
        build: impl FnOnce(&mut Draft) -> Result<()>,
    ) -> Result<()> {
        self.inner.check_new(name, replace)?;
        if self.names.contains(name) {
            return Err(crate::Error::AlreadyExists {
                store: self.inner.directory.clone(),
                object: name.to_string(),
            });
        }
        let inner = &self.inner;
        let token = match &mut self.token {
            Some(token) => token,
            none => none.insert(inner.lease_table.lock_token()?),
        };
        let uuid = token.new_uuid()?;
        let path = inner.path_in(BUILDING, uuid);
        let options = DraftOptions {
            name: name.to_string(),
            store_uuid: inner.uuid,
            object_uuid: uuid,
            kind: KIND_OBJECT,
            application_key: self.application.map_or([0; 16], |key| key.bytes()),
            arena: inner.arena,
            expected_bytes: size.expected_bytes,
            room_bytes: size.room_bytes,
            guest: size.guest,
        };
        let built = Draft::create(environment, &path, &options).and_then(|mut draft| {
            build(&mut draft)?;
            let leases = draft.finish(environment, None)?;
            draft.published();
            Ok((Arc::clone(draft.file()), leases))
        });
        let (file, leases) = built.inspect_err(|_| {
            // Best effort: a later sweep removes unfinished files.
            let _ = inner.storage.remove(&path);
        })?;
        self.names.insert(name.to_string());
        self.finished.push(Finished {
            name: name.to_string(),
            uuid,
            created_ns: now_ns(),
            leases: leases.into_iter().map(|(base, bytes)| Lease { base, bytes }).collect(),
            replace,
        });
        if self.finished.len() <= FLUSHED_SINGLY_MAX {
            self.files.push(file);
        } else {
            self.files.clear();
        }
        Ok(())
    }

    /// Returns the number of objects added.
    pub fn len(&self) -> usize {
        self.finished.len()
    }

    /// Returns true if the batch has no objects.
    pub fn is_empty(&self) -> bool {
        self.finished.is_empty()
    }

    /// Makes all objects durable and visible, all of them or none.
    ///
    /// # Errors
    /// `AlreadyExists` if another process took a name since, `Busy` if an object to be replaced is
    /// open for writing, `DiskFull`: no object was added or replaced. After `DurabilityUnknown`,
    /// which a failed flush causes, that is unknown, and the files of the objects stay.
    pub fn commit(mut self) -> Result<()> {
        let directory = &self.inner.directory;
        at_fork::refuse_in_child(|| format!("store {}", directory.display()))?;
        if self.finished.is_empty() {
            return Ok(());
        }
        if self.finished.len() <= FLUSHED_SINGLY_MAX {
            for file in self.files.iter().filter(|_| !mutated(Mutant::NamesBeforeFiles)) {
                file.sync_data()?;
            }
            if !mutated(Mutant::BuildingNotFlushed) {
                self.inner.storage.sync_directory(&self.inner.directory.join(BUILDING))?;
            }
        } else {
            self.file_system.sync()?;
        }
        let made = std::mem::take(&mut self.files);
        // The token is locked in the store's lock file, so the store cannot be replaced from here
        // on.
        self.home.check(&self.inner)?;
        let published = self.inner.publish(&self.finished, made);
        if is_settled(&published) {
            self.finished.clear();
        }
        published
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        // In a forked child the files and leases belong to the parent, so `storage` and
        // `lease_table` do nothing there.
        for object in &self.finished {
            let _ = self.inner.storage.remove(&self.inner.path_in(BUILDING, object.uuid));
            self.inner.lease_table.release(&object.leases);
        }
    }
}
