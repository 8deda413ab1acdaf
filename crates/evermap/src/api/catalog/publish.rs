//! Changes of names in the catalog: publishing, removing and renaming objects. Each is one catalog
//! commit.
//!
//! The files of a new object are durable before the commit that names it. The files of a removed
//! object are deleted after the commit that removes its name. A crash in between can leave unused
//! files, but never a name without its file.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::{debug, warn};

use crate::api::inner::{Current, OpenObject, StoreInner};
use crate::catalog::{self, Catalog, Found, Lease};
use crate::commit::{LogPolicy, WriteOptions};
use crate::error::{Error, Result};
use crate::layout::{BUILDING, OBJECTS};
use crate::mutate::{Mutant, mutated};
use crate::object::{WRITER_BYTE, Writer, lock_byte};
use crate::persist::Mut;
use crate::storage::{File, LockKind, OpenMode};

/// An object that is complete and durable, and not yet in the catalog.
#[derive(Debug)]
pub(in crate::api) struct Finished {
    pub(in crate::api) name: String,
    pub(in crate::api) uuid: [u8; 16],
    pub(in crate::api) created_ns: u64,
    pub(in crate::api) leases: Vec<Lease>,
    /// If true, replaces an existing object of this name.
    pub(in crate::api) replace: bool,
}

/// Returns true if the catalog has the objects after [`publish`](StoreInner::publish), or may have
/// them because a flush failed. Their files must stay then. A sweep removes those that the catalog
/// does not name.
pub(in crate::api) fn is_settled(published: &Result<()>) -> bool {
    matches!(published, Ok(()) | Err(Error::DurabilityUnknown { .. }))
}

/// An object whose files will be deleted, and the lock that excludes writers until then.
type Doomed = ([u8; 16], Option<Arc<dyn File>>);

impl StoreInner {
    /// Names finished objects in the catalog, all of them in one commit. Their files are durable.
    ///
    /// `made` are the files, which the creator holds locked. They are unlocked within the catalog
    /// change, so that a process that finds an object there can write or replace it. The leases are
    /// released if the result [is settled](is_settled).
    pub(in crate::api) fn publish(
        &self,
        finished: &[Finished],
        made: Vec<Arc<dyn File>>,
    ) -> Result<()> {
        let mut made = Some(made);
        let names = || finished.iter().filter(|o| o.replace).map(|o| &*o.name);
        let changed = self.change_locked(names, |mut catalog, locked| {
            let mut replaced = Vec::new();
            made = None;
            for object in finished {
                // A process that finds the object in the catalog must be able to share its leases.
                self.lease_table.make_shared(&object.leases)?;
                if let Some(old) = catalog.find(&object.name) {
                    if !object.replace {
                        return Err(self.exists(&object.name));
                    }
                    replaced.push(self.lock_now(&object.name, old.uuid, locked)?);
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
        });
        if let Ok(_) | Err(Error::DurabilityUnknown { .. }) = &changed {
            finished.iter().for_each(|object| self.lease_table.release(&object.leases));
        }
        let replaced = changed?;
        for object in finished {
            let from = self.path_in(BUILDING, object.uuid);
            if let Err(error) = self.storage.rename(&from, &self.path_in(OBJECTS, object.uuid)) {
                warn!(%error, "cannot move a new object out of `building`");
            }
        }
        for (uuid, _lock) in &replaced {
            self.remove_files(*uuid);
        }
        self.sweep();
        Ok(())
    }

    /// Takes an object out of the catalog and removes its files.
    pub(in crate::api) fn remove(&self, name: &str) -> Result<()> {
        catalog::check_name(name)?;
        let names = || std::iter::once(name);
        let (uuid, _lock) = self.change_locked(names, |mut catalog, locked| {
            let found = catalog.find(name).ok_or_else(|| self.not_found(name))?;
            let locked = self.lock_now(name, found.uuid, locked)?;
            if mutated(Mutant::RemovalBeforeCommit) {
                self.remove_files(found.uuid);
            }
            // Growing the list takes disk space, which may have run out.
            let doomed = &catalog.doomed;
            if !doomed.is_empty() && doomed.len() == doomed.capacity() {
                self.finish_removals(catalog.reborrow())?;
            }
            catalog::remove(catalog, name, found.uuid)?;
            Ok(locked)
        })?;
        self.remove_files(uuid);
        self.sweep();
        Ok(())
    }

    /// Renames an object in the catalog and, unless the object is in use, in its own superblock.
    pub(in crate::api) fn rename(self: &Arc<Self>, from: &str, to: &str) -> Result<()> {
        catalog::check_name(from)?;
        catalog::check_name(to)?;
        let uuid = self.catalog()?.change(|catalog| {
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
        // The name in the object file is needed only if the catalog is lost. An object that is in
        // use keeps the old name there until a session that is opened later commits.
        if let Err(error) = self.rename_inside(to, uuid) {
            debug!(%error, "the object file keeps its old name until a later session commits");
        }
        Ok(())
    }

    fn rename_inside(self: &Arc<Self>, name: &str, uuid: [u8; 16]) -> Result<()> {
        {
            let (mut open, current) = self.open_object(uuid);
            if !matches!(current, Current::Closed) {
                // Unlock the list first, because dropping the last snapshot locks it.
                drop(open);
                return Ok(());
            }
            open.insert(uuid, OpenObject::Writing);
        }
        let renamed = self.commit_name(name, uuid);
        self.open_objects().remove(&uuid);
        renamed
    }

    fn commit_name(self: &Arc<Self>, name: &str, uuid: [u8; 16]) -> Result<()> {
        let environment = self.environment();
        let mut writer = self.with_paths(name, uuid, |paths| {
            let settings = WriteOptions::default();
            Writer::open(&environment, paths, LogPolicy::WhileOpen, &settings, Duration::ZERO)
        })?;
        writer.superblock_mut().set_name(name);
        writer.commit_superblock()?;
        writer.close()
    }

    /// Changes the catalog while the objects of some names are locked for removal. Waits for their
    /// writers up to the busy timeout.
    ///
    /// It waits before it locks the catalog, because readers need the catalog, and so does a writer
    /// whose object grows. `change` locks objects that were replaced in between, without waiting.
    fn change_locked<'a, R, N: Iterator<Item = &'a str>>(
        &self,
        names: impl Fn() -> N,
        mut change: impl FnMut(Mut<'_, Catalog>, &mut Vec<Doomed>) -> Result<R>,
    ) -> Result<R> {
        let (since, timeout) = (Instant::now(), self.options.busy_timeout);
        loop {
            let mut locked = Vec::new();
            let left = timeout.saturating_sub(since.elapsed());
            if !left.is_zero() {
                let found: Vec<_> = self.catalog()?.read(|catalog, _| {
                    names().filter_map(|name| Some((name, catalog.find(name)?.uuid))).collect()
                })?;
                for (name, uuid) in found {
                    let left = timeout.saturating_sub(since.elapsed());
                    match self.lock_for_removal(name, uuid, left) {
                        // Another process may be removing the object. The catalog change finds out.
                        Err(Error::Busy { .. }) => {}
                        result => locked.push(result?),
                    }
                }
            }
            let changed = self.catalog()?.change(|catalog| change(catalog, &mut locked));
            match changed {
                Err(Error::Busy { .. }) if since.elapsed() < timeout => {}
                other => return other,
            }
        }
    }

    /// Returns the lock of an object to be removed: one of `locked`, or a new one.
    fn lock_now(&self, name: &str, uuid: [u8; 16], locked: &mut Vec<Doomed>) -> Result<Doomed> {
        match locked.iter().position(|(known, _)| *known == uuid) {
            Some(at) => Ok(locked.swap_remove(at)),
            None => self.lock_for_removal(name, uuid, Duration::ZERO),
        }
    }

    /// Locks an object to be removed against writers. Readers may stay: they keep the file's pages
    /// and leases until they close it.
    fn lock_for_removal(&self, name: &str, uuid: [u8; 16], timeout: Duration) -> Result<Doomed> {
        let opened = self.with_paths(name, uuid, |paths| {
            let file = self.storage.open(&paths.path, OpenMode::ReadWrite)?;
            lock_byte(&*file, LockKind::Exclusive, WRITER_BYTE, timeout, &paths.display_name)?;
            Ok(file)
        });
        match opened {
            Ok(file) => Ok((uuid, Some(file))),
            // The name can be removed even if the file is gone.
            Err(e) if e.is_missing_file() => Ok((uuid, None)),
            Err(Error::Foreign { .. }) => Ok((uuid, None)),
            Err(e) => Err(e),
        }
    }

    pub(in crate::api) fn remove_files(&self, uuid: [u8; 16]) {
        let path = self.path_in(OBJECTS, uuid);
        for path in [path.with_extension("log"), self.path_in(BUILDING, uuid), path] {
            match self.storage.remove(&path) {
                Err(error) if !error.is_missing_file() => {
                    warn!(%error, "cannot remove a file of a removed object")
                }
                _ => {}
            }
        }
    }

    fn exists(&self, name: &str) -> Error {
        Error::AlreadyExists { store: self.directory.clone(), object: name.to_string() }
    }

    /// Fails early if a new object's name is invalid or taken.
    pub(in crate::api) fn check_new(&self, name: &str, replace: bool) -> Result<()> {
        catalog::check_name(name)?;
        let taken = self.catalog()?.find(name, |found, _| Ok(found.is_some()))?;
        if taken && !replace { Err(self.exists(name)) } else { Ok(()) }
    }
}
