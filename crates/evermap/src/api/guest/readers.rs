//! Cache of open guest objects, for hosts that start many guests.
//!
//! Such a host opens the same objects again and again. This module keeps the result of the first
//! look-up, opening and check. Each further snapshot only checks that the catalog, the file and its
//! page 0 are unchanged. If one of them has changed, the object is looked up, opened and checked
//! again. The cache holds no data and no locks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::memory::GuestMemory;
use super::snapshot::{GuestReading, GuestSnapshot, check_window, read_guest_of};
use crate::api::application::ApplicationKey;
use crate::api::catalog::access::{CatalogVersion, CatalogWatch};
use crate::api::home::Use;
use crate::api::inner::StoreInner;
use crate::api::options::Verify;
use crate::api::store::Store;
use crate::api::store_files::lock;
use crate::error::Result;
use crate::object::{Reader, ReadyObject};

/// Maximum number of open objects. Each takes a file descriptor and some 5 KiB.
const OPEN_MAX: usize = 64;

/// Guest objects of one store, kept open for reading.
///
/// Keeps at most 64 objects open, which take 64 file descriptors and 320 KiB until this value is
/// dropped. A removed object keeps its disk space until it is requested again, another object is
/// opened, or this value is dropped.
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
    cache: Mutex<Cache>,
    reused: AtomicU64,
}

#[derive(Default)]
struct Cache {
    /// Store of the objects, and a handle that checks whether its catalog has changed.
    store: Option<(Weak<StoreInner>, Arc<CatalogWatch>)>,
    /// Open objects by name.
    objects: HashMap<String, CachedObject>,
    /// Number of requests so far.
    clock: u64,
}

#[derive(Clone)]
struct CachedObject {
    object: Arc<ReadyObject>,
    /// Catalog version in which the name led to this object.
    version: CatalogVersion,
    /// Value of `clock` at the last request.
    used: u64,
}

impl Cache {
    /// Returns a handle that checks whether the catalog has changed. Drops the objects of another
    /// store.
    fn watch(&mut self, inner: &Arc<StoreInner>) -> Arc<CatalogWatch> {
        if let Some((store, watch)) = &self.store
            && std::ptr::eq(store.as_ptr(), Arc::as_ptr(inner))
        {
            return Arc::clone(watch);
        }
        self.objects.clear();
        let watch = Arc::new(inner.watch_catalog());
        self.store = Some((Arc::downgrade(inner), Arc::clone(&watch)));
        watch
    }
}

impl GuestReaders {
    /// Creates an empty cache for a store.
    pub fn new(store: &Store) -> GuestReaders {
        let (cache, reused) = Default::default();
        GuestReaders { store: store.clone(), cache, reused }
    }

    /// Returns the number of objects that are open now.
    pub fn open_count(&self) -> usize {
        lock(&self.cache).objects.len()
    }

    /// Returns the number of snapshots made without opening an object.
    pub fn reused_count(&self) -> u64 {
        self.reused.load(Ordering::Relaxed)
    }

    /// Like [`Store::read_guest`](crate::Store::read_guest) of a store for this application. For an
    /// object that was read before and has not changed since, this costs eight system calls and a
    /// mapping.
    ///
    /// # Errors
    /// Same errors as [`Store::read_guest`](crate::Store::read_guest).
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
        inner: &Arc<StoreInner>,
        name: &str,
        application: Option<ApplicationKey>,
        memory: &GuestMemory,
        reading: GuestReading,
    ) -> Result<GuestSnapshot> {
        // Any other setting verifies pages at every opening, so open the object each time.
        let uses_cache = inner.options.verify == Verify::Superblock;
        let cached = if uses_cache { self.ready(inner, name) } else { None };
        if let Some(cached) = cached {
            let superblock = cached.superblock();
            inner.check_application(name, superblock, application)?;
            check_window(name, &superblock.guest, memory.window())?;
            if let Some(snapshot) = memory.map_ready(&cached, reading)? {
                self.reused.fetch_add(1, Ordering::Relaxed);
                return Ok(snapshot);
            }
            self.remove(name);
        }
        // Read the catalog first. If the name leads elsewhere by the time the object is opened,
        // this version is no longer the last one.
        let version = if uses_cache { look_up(inner, name)? } else { None };
        let reader = read_guest_of(inner, name, application, memory, reading)?;
        let uuid = reader.superblock().object_uuid;
        if let Some((_, version)) = version.filter(|(found, _)| *found == uuid) {
            self.insert(inner, name, &reader, version);
        }
        Ok(GuestSnapshot::of(reader))
    }

    /// Returns the open object of this name, if the name still leads to it.
    fn ready(&self, inner: &Arc<StoreInner>, name: &str) -> Option<Arc<ReadyObject>> {
        let (cached, watch) = {
            let mut cache = lock(&self.cache);
            let watch = cache.watch(inner);
            cache.clock += 1;
            let now = cache.clock;
            let cached = cache.objects.get_mut(name)?;
            cached.used = now;
            (cached.clone(), watch)
        };
        if watch.is_last(cached.version) {
            return Some(cached.object);
        }
        // The change may concern another name.
        let found = look_up(inner, name).ok().flatten();
        let same = found.filter(|(uuid, _)| *uuid == cached.object.superblock().object_uuid);
        let Some((_, version)) = same else {
            self.remove(name);
            return None;
        };
        // Another thread may have stored another object since.
        if let Some(known) = lock(&self.cache).objects.get_mut(name)
            && Arc::ptr_eq(&known.object, &cached.object)
        {
            known.version = version;
        }
        Some(cached.object)
    }

    fn remove(&self, name: &str) {
        // Dropped at the end of the function, so the file is closed after the list is unlocked.
        let _removed = lock(&self.cache).objects.remove(name);
    }

    /// Adds an opened object to the cache. Ignores errors, because the cache only saves time.
    fn insert(
        &self,
        inner: &Arc<StoreInner>,
        name: &str,
        reader: &Reader,
        version: CatalogVersion,
    ) {
        let opened = ReadyObject::open(&*inner.storage, reader.file().path(), reader.superblock());
        let Ok(Some(object)) = opened else { return };
        let mut cache = lock(&self.cache);
        cache.watch(inner);
        // Unlinked files still take disk space.
        cache.objects.retain(|_, cached| cached.object.has_a_name());
        if cache.objects.len() >= OPEN_MAX {
            let oldest = cache.objects.iter().min_by_key(|(_, cached)| cached.used);
            if let Some(name) = oldest.map(|(name, _)| name.clone()) {
                cache.objects.remove(&name);
            }
        }
        let used = cache.clock;
        cache
            .objects
            .insert(name.to_string(), CachedObject { object: Arc::new(object), version, used });
    }
}

/// Returns the id that a name leads to, with the version of the catalog.
fn look_up(inner: &StoreInner, name: &str) -> Result<Option<([u8; 16], CatalogVersion)>> {
    inner
        .catalog()?
        .find(name, |found, reader| Ok(found.map(|found| (found.uuid, CatalogVersion::of(reader)))))
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

    /// Enough changes to empty the catalog's log more than twice, after which its headers are at
    /// their first positions again.
    const CHANGES: usize = 300;

    #[test]
    fn every_catalog_change_is_seen_however_often_its_log_was_emptied() {
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let store = Store::create_new(directory.path().join("store")).unwrap();
        store.create::<u64, _>("number", 7).unwrap();
        let version_of = |_: &Catalog, reader: &Reader| CatalogVersion::of(reader);
        let run =
            |call: fn(&Arc<StoreInner>) -> Result<Arc<StoreInner>>| store.home.run(Use::Read, call);
        let inner = run(|inner| Ok(Arc::clone(inner))).unwrap();
        let watch = inner.watch_catalog();
        let version = || inner.catalog().unwrap().read(version_of).unwrap();
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
