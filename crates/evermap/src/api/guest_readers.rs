//! Guest objects that were read, kept open for the next guest that reads them.
//!
//! A host that starts many guests opens the same objects again and again. What it looks up, opens
//! and checks the first time is kept here, and each further snapshot costs only the questions whether
//! it is all still so: is the catalog as it was, are the file and its page 0? Whatever has changed is
//! looked up, opened and checked as ever. No data and no locks are kept.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::application::{ApplicationKey, check_application};
use super::catalog_access::{CatalogVersion, CatalogWatch};
use super::guest::{GuestMemory, GuestReading, GuestSnapshot, Mapped, check_window, read_guest_of};
use super::home::Use;
use super::inner::{Inner, lock};
use super::options::Verify;
use super::store::Store;
use crate::error::Result;
use crate::object::{Reader, ReadyObject};

/// Objects kept open: each has a descriptor, and some 5 KiB.
const OPEN_MAX: usize = 64;

/// Guest objects of one store, kept open for reading.
///
/// At most 64 are: 64 file descriptors and 320 KiB, given back with this value. An object that was
/// removed takes its space on the disk until it is asked for again, another one is opened, or
/// this value goes.
///
/// ```
/// let directory = tempfile::tempdir()?;
/// let store = evermap::Store::create_new(directory.path().join("store"))?;
/// let readers = evermap::guest::GuestReaders::new(&store);
/// // ... guests come and go: `readers.read("app:heap", key, &memory, GuestReading::Private)` ...
/// assert_eq!((readers.open_count(), readers.reused_count()), (0, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct GuestReaders {
    store: Store,
    open: Mutex<Open>,
    reused: AtomicU64,
}

#[derive(Default)]
struct Open {
    /// The store that the objects are of, and for asking whether its catalog has changed.
    of: Option<(Weak<Inner>, Arc<CatalogWatch>)>,
    /// By name.
    objects: HashMap<String, Kept>,
    /// Counts what is asked for.
    clock: u64,
}

#[derive(Clone)]
struct Kept {
    object: Arc<ReadyObject>,
    /// When the name led to it.
    seen: CatalogVersion,
    /// When it was asked for last.
    used: u64,
}

impl Open {
    /// For asking whether the catalog has changed. Forgets the objects of another store.
    fn watch(&mut self, inner: &Arc<Inner>) -> Arc<CatalogWatch> {
        if let Some((of, watch)) = &self.of
            && std::ptr::eq(of.as_ptr(), Arc::as_ptr(inner))
        {
            return Arc::clone(watch);
        }
        self.objects.clear();
        let watch = Arc::new(inner.watch_catalog());
        self.of = Some((Arc::downgrade(inner), Arc::clone(&watch)));
        watch
    }
}

impl GuestReaders {
    /// Keeps objects of this store open. None is yet.
    pub fn new(store: &Store) -> GuestReaders {
        let (open, reused) = Default::default();
        GuestReaders { store: store.clone(), open, reused }
    }

    /// Objects that are kept open now.
    pub fn open_count(&self) -> usize {
        lock(&self.open).objects.len()
    }

    /// Snapshots so far that took no opening.
    pub fn reused_count(&self) -> u64 {
        self.reused.load(Ordering::Relaxed)
    }

    /// As [`Store::read_guest`](crate::Store::read_guest) of a store for this application. An object
    /// that was read before, and has not changed since, costs eight system calls and a mapping.
    ///
    /// # Errors
    /// As there.
    pub fn read(
        &self,
        name: &str,
        application: Option<ApplicationKey>,
        memory: &GuestMemory,
        reading: GuestReading,
    ) -> Result<GuestSnapshot> {
        self.store
            .home
            .run(Use::Read, |inner| self.read_of(inner, name, application, memory, reading))
    }

    fn read_of(
        &self,
        inner: &Arc<Inner>,
        name: &str,
        application: Option<ApplicationKey>,
        memory: &GuestMemory,
        reading: GuestReading,
    ) -> Result<GuestSnapshot> {
        // Who wants each page compared at each opening has it opened.
        let keeps = inner.options.verify == Verify::Superblock;
        let kept = if keeps { self.ready(inner, name) } else { None };
        if let Some(kept) = kept {
            let superblock = kept.superblock();
            check_application(inner, name, superblock, application)?;
            check_window(name, &superblock.guest, memory.window())?;
            if let Some(snapshot) = memory.map_ready(&kept, reading)? {
                self.reused.fetch_add(1, Ordering::Relaxed);
                return Ok(snapshot);
            }
            self.forget(name);
        }
        // The catalog first: should the name lead elsewhere by the time that it is opened, then
        // this version is not the last one.
        let seen = if keeps { look_up(inner, name)? } else { None };
        let reader = read_guest_of(inner, name, application, memory, reading)?;
        let uuid = reader.superblock().object_uuid;
        if let Some((_, seen)) = seen.filter(|(found, _)| *found == uuid) {
            self.keep(inner, name, &reader, seen);
        }
        Ok(GuestSnapshot(Mapped::Opened(Box::new(reader))))
    }

    /// What is open under this name, if the name leads there still.
    fn ready(&self, inner: &Arc<Inner>, name: &str) -> Option<Arc<ReadyObject>> {
        let (kept, watch) = {
            let mut open = lock(&self.open);
            let watch = open.watch(inner);
            open.clock += 1;
            let now = open.clock;
            let kept = open.objects.get_mut(name)?;
            kept.used = now;
            (kept.clone(), watch)
        };
        if watch.is_last(kept.seen) {
            return Some(kept.object);
        }
        // Perhaps another name's entry has changed.
        let found = look_up(inner, name).ok().flatten();
        let same = found.filter(|(uuid, _)| *uuid == kept.object.superblock().object_uuid);
        let Some((_, seen)) = same else {
            self.forget(name);
            return None;
        };
        // Unless another thread has found another object meanwhile.
        if let Some(known) = lock(&self.open).objects.get_mut(name)
            && Arc::ptr_eq(&known.object, &kept.object)
        {
            known.seen = seen;
        }
        Some(kept.object)
    }

    fn forget(&self, name: &str) {
        // The file is closed after the list is unlocked.
        let _forgotten = lock(&self.open).objects.remove(name);
    }

    /// Keeps what was opened open. It is a matter of cost: what goes wrong is no error.
    fn keep(&self, inner: &Arc<Inner>, name: &str, reader: &Reader, seen: CatalogVersion) {
        let opened = ReadyObject::open(&*inner.storage, reader.file().path(), reader.superblock());
        let Ok(Some(object)) = opened else { return };
        let mut open = lock(&self.open);
        open.watch(inner);
        // Files without a name keep disk space from others.
        open.objects.retain(|_, kept| kept.object.has_a_name());
        if open.objects.len() >= OPEN_MAX {
            let oldest = open.objects.iter().min_by_key(|(_, kept)| kept.used);
            if let Some(name) = oldest.map(|(name, _)| name.clone()) {
                open.objects.remove(&name);
            }
        }
        let used = open.clock;
        open.objects.insert(name.to_string(), Kept { object: Arc::new(object), seen, used });
    }
}

/// Where a name leads, and when.
fn look_up(inner: &Inner, name: &str) -> Result<Option<([u8; 16], CatalogVersion)>> {
    inner.catalog()?.look(|catalog, reader| {
        catalog.find(name).map(|found| (found.uuid, CatalogVersion::of(reader)))
    })
}

impl std::fmt::Debug for GuestReaders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GuestReaders").field("open", &self.open_count()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;

    /// So many that the catalog's log is emptied more than twice, after which its headers are again
    /// where they were.
    const CHANGES: usize = 300;

    #[test]
    fn every_change_of_the_catalog_is_seen_however_often_its_log_was_emptied() {
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let store = Store::create_new(directory.path().join("store")).unwrap();
        store.create::<u64, _>("number", 7).unwrap();
        let look = |_: &Catalog, reader: &Reader| CatalogVersion::of(reader);
        let run = |call: fn(&Arc<Inner>) -> Result<Arc<Inner>>| store.home.run(Use::Read, call);
        let inner = run(|inner| Ok(Arc::clone(inner))).unwrap();
        let watch = inner.watch_catalog();
        let version = || inner.catalog().unwrap().look(look).unwrap();
        let mut versions = vec![version()];
        let (mut from, mut to) = ("number", "count");
        for _ in 0..CHANGES {
            store.rename(from, to).unwrap();
            (from, to) = (to, from);
            let latest = version();
            assert!(watch.is_last(latest));
            assert!(versions.iter().all(|earlier| !watch.is_last(*earlier)));
            versions.push(latest);
        }
        let mut generations: Vec<_> =
            versions.iter().map(|version| version.position.generation()).collect();
        generations.dedup();
        assert!(generations.len() > 3, "{generations:?}");
    }
}
