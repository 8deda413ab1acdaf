//! Addresses for objects: from the store's arenas, or from a new one when they are used up.

use std::path::{Path, PathBuf};
use std::sync::Weak;

use tracing::debug;

use super::catalog_access::own_leases;
use super::inner::Inner;
use super::options::Options;
use super::registry::{ArenaRegistry, is_gone};
use crate::address::{AddressSpace, given_back_here, reserved_here};
use crate::catalog::{Arena, Lease};
use crate::error::{Error, Result};
use crate::object::Addresses;
use crate::storage::Storage;

/// Leases addresses for objects of a store.
pub(super) struct StoreAddresses(pub(super) Weak<Inner>);

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
    /// Takes addresses for an object: from an arena of the store, or from a new one.
    pub(super) fn lease(&self, bytes: u64) -> Result<u64> {
        let book = &self.book;
        let taken = self.catalog()?.look(|catalog, reader| {
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
        let purpose = TakenFor::FullStore;
        let base = take_arena(&self.space, &self.options, &self.directory, length, purpose)?;
        debug!(base, length, "new arena");
        self.catalog()?.change(|mut catalog| {
            catalog.fields().arenas.push(Arena { base, length, high_water: base }).map(drop)
        })?;
        let taken = self.catalog()?.look(|catalog, _| {
            let arenas: Vec<Arena> = catalog.arenas.iter().copied().collect();
            self.book.take_above(&arenas, bytes)
        })??;
        taken.ok_or_else(|| Error::OutOfAddresses {
            what: "an object".to_string(),
            bytes,
            why: "other processes took the new arena at once".to_string(),
        })
    }
}

/// What a store takes an arena for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TakenFor {
    /// It is being made: whatever had its directory before is gone.
    NewStore,
    /// It has used up those it has.
    FullStore,
}

/// Reserves an arena at a random place in the window where no other store has one, as far as is
/// known here and by the arena registry, and notes it there. When there is no such place it is one
/// that a store may have that is not open here.
///
/// The registry costs 40 us, and 0.3 us for each arena that is noted there (a virtual machine with
/// two shared processors, files in memory), of 0.2 ms for a store in memory and 2 to 20 on a disk.
pub(super) fn take_arena(
    space: &AddressSpace,
    options: &Options,
    directory: &Path,
    length: u64,
    purpose: TakenFor,
) -> Result<u64> {
    // A directory without an absolute name cannot be found by others.
    let store = std::path::absolute(directory).ok();
    let mut registry = store.as_ref().and_then(|_| ArenaRegistry::lock(options));
    if let (Some(registry), Some(store), TakenFor::NewStore) = (&mut registry, &store, purpose) {
        registry.forget(store);
    }
    let noted = |registry: &Option<ArenaRegistry>| {
        registry.as_ref().map_or_else(Vec::new, ArenaRegistry::arenas)
    };
    let known = [noted(&registry), given_back_here()].concat();
    let mut place = reserve_apart_from(space, options, length, known)?;
    if place.is_none() {
        if let Some(registry) = &mut registry {
            registry.sweep();
        }
        let known = [noted(&registry), given_back_here()].concat();
        place = reserve_apart_from(space, options, length, known)?;
    }
    if place.is_none() {
        place = reserve_apart_from(space, options, length, noted(&registry))?;
    }
    if place.is_none() {
        debug!(length, "no addresses left that no store has: taking some of another store");
        place = reserve_apart_from(space, options, length, Vec::new())?;
    }
    let Some(base) = place else {
        return Err(Error::OutOfAddresses {
            what: "an arena".to_string(),
            bytes: length,
            why: "what this process has open leaves no room for it in the window".to_string(),
        });
    };
    if let (Some(registry), Some(store)) = (registry, &store) {
        registry.note(&[(base, length)], store);
    }
    Ok(base)
}

/// Notes arenas that a store has from elsewhere: a copy that was restored has those of its model.
pub(crate) fn note_arenas(options: &Options, directory: &Path, arenas: &[(u64, u64)]) {
    if let Ok(store) = std::path::absolute(directory)
        && let Some(mut registry) = ArenaRegistry::lock(options)
    {
        registry.forget(&store);
        registry.note(arenas, &store);
    }
}

/// A place for a store that has arenas already and is to move: free in this process, at `at` or else
/// where no store of the user has one.
pub(crate) fn arena_to_move_to(
    options: &Options,
    directory: &Path,
    length: u64,
    at: Option<u64>,
    own: &[(u64, u64)],
) -> Result<u64> {
    let space = AddressSpace::new(&format!("store {}", directory.display()));
    if let Some(base) = at {
        return space.reserve(base, length).map(|()| base);
    }
    // Without a registry chance may lead to where the store is.
    for &(base, bytes) in own {
        let _ = space.reserve(base, bytes);
    }
    take_arena(&space, options, directory, length, TakenFor::FullStore)
}

/// Base, bytes and directory of the arenas of other stores of this user that a place for the store
/// in a directory would meet: as their notes have it, but for stores that are certainly gone.
pub(crate) fn arenas_met(
    storage: &dyn Storage,
    directory: &Path,
    base: u64,
    length: u64,
) -> Vec<(u64, u64, PathBuf)> {
    let is_own = |store: &Path| {
        let same = |path: std::io::Result<PathBuf>| path.is_ok_and(|path| path == store);
        let identity = |path| storage.directory_identity(path).ok();
        same(std::path::absolute(directory))
            || identity(store).is_some_and(|own| identity(directory) == Some(own))
    };
    known_arenas(storage)
        .into_iter()
        .filter(|(other, end, _)| *other < base.saturating_add(length) && base < *end)
        .filter(|(.., store)| !is_own(store) && !is_gone(storage, store))
        .map(|(other, end, store)| (other, end - other, store))
        .collect()
}

/// Base, end and directory of the arenas that stores of this user have noted: read as they are,
/// without a lock; nothing where there is no registry.
pub(crate) fn known_arenas(storage: &dyn Storage) -> Vec<(u64, u64, PathBuf)> {
    ArenaRegistry::peek(storage)
        .into_iter()
        .map(|entry| (entry.base, entry.base + entry.length, entry.store))
        .collect()
}

/// Reserves an arena that meets nothing that is `known`, nor what this process has open; `None`
/// when there is no place. Something that is no store may lie anywhere in the window: the kernel
/// has the last word, and another place is tried.
fn reserve_apart_from(
    space: &AddressSpace,
    options: &Options,
    length: u64,
    known: Vec<(u64, u64)>,
) -> Result<Option<u64>> {
    let mut taken = known;
    taken.extend(reserved_here());
    for _ in 0..PLACES_TRIED_MAX {
        let Some(base) = options.window.free_base(length, &taken)? else { return Ok(None) };
        match space.reserve(base, length) {
            Ok(()) => return Ok(Some(base)),
            Err(error) => debug!(%error, "another place for the arena"),
        }
        taken.push((base, length));
    }
    Ok(None)
}

const PLACES_TRIED_MAX: usize = 16;
