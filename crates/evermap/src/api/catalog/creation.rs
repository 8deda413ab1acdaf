//! Writes a whole catalog: an empty one for a new store, or a full one for a store whose catalog is
//! lost. The new catalog gets its name only when it is durable.

use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use crate::address::{AddressSpace, random_uuid};
use crate::api::addresses::arenas::{ArenaPurpose, record_arenas, take_arena};
use crate::api::options::Options;
use crate::catalog::{self, Arena, Catalog, CatalogInit, Found, Lease};
use crate::error::{Error, Result};
use crate::format::KIND_CATALOG;
use crate::layout::{CATALOG, CATALOG_LOG, NEW_CATALOG};
use crate::mutate::{Mutant, mutated};
use crate::object::{Addresses, Draft, DraftOptions, Environment, RootType};
use crate::persist::{Mut, PMap, PVec, build_root, type_description};

/// Contents of a new catalog.
#[derive(Debug, Default)]
pub(crate) struct NewCatalog {
    /// Id of the store. `None` to choose a new one.
    pub(crate) store_uuid: Option<[u8; 16]>,
    /// Arenas of the store. The catalog gets the first addresses of the first arena, which no
    /// object may have. If empty, a new arena is taken.
    pub(crate) arenas: Vec<Arena>,
    /// Names and entries, in order of creation.
    pub(crate) objects: Vec<(String, Found)>,
}

/// Address source for the new catalog: the first addresses of the first arena, then addresses above
/// an arena's high-water mark.
struct Leases(Mutex<State>);

struct State {
    arenas: Vec<Arena>,
    /// Base of the first lease of an object.
    first_used: u64,
    given: Vec<Lease>,
}

impl Leases {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Addresses for Leases {
    fn lease(&self, bytes: u64) -> Result<u64> {
        let mut state = self.state();
        let first = state.arenas.first().map_or(0, |arena| arena.base);
        let fits = first.checked_add(bytes).is_some_and(|end| end <= state.first_used);
        let base = if state.given.is_empty() && fits {
            Some(first)
        } else {
            let room = |arena: &&mut Arena| {
                let end = arena.high_water.checked_add(bytes);
                end.is_some_and(|end| end <= arena.base + arena.length)
            };
            state.arenas.iter_mut().find(room).map(|arena| arena.high_water)
        };
        let Some(base) = base else {
            return Err(Error::OutOfAddresses {
                what: "the catalog".to_string(),
                bytes,
                why: "every arena is used up to its end".to_string(),
            });
        };
        for arena in &mut state.arenas {
            if (arena.base..arena.base + arena.length).contains(&base) {
                arena.high_water = arena.high_water.max(base + bytes);
            }
        }
        state.given.push(Lease { base, bytes });
        Ok(base)
    }

    fn release(&self, _base: u64, _bytes: u64) {}
}

/// Writes a catalog and renames it into place, durably. Until the rename, the directory keeps its
/// old catalog file, or has none. The log of an old catalog is replaced before the rename.
pub(crate) fn write_catalog(
    directory: &Path,
    options: &Options,
    mut contents: NewCatalog,
) -> Result<()> {
    let storage = &options.storage;
    let path = directory.join(NEW_CATALOG);
    match storage.remove(&path) {
        Err(e) if !e.is_missing_file() => return Err(e),
        _ => {}
    }
    let space = AddressSpace::new(&format!("store {}", directory.display()));
    if contents.arenas.is_empty() {
        let length = options.arena_bytes;
        let base = take_arena(&space, options, directory, length, ArenaPurpose::NewStore)?;
        contents.arenas.push(Arena { base, length, high_water: base });
    } else {
        let arenas: Vec<(u64, u64)> = contents.arenas.iter().map(|a| (a.base, a.length)).collect();
        record_arenas(options, directory, &arenas);
    }
    for arena in &contents.arenas {
        space.reserve(arena.base, arena.length)?;
    }
    let first = contents.arenas[0];
    for lease in contents.objects.iter().flat_map(|(_, found)| &found.leases) {
        let end = lease.base.saturating_add(lease.bytes);
        for arena in &mut contents.arenas {
            if lease.base >= arena.base && end <= arena.base + arena.length {
                arena.high_water = arena.high_water.max(end);
            }
        }
    }
    let used = contents.objects.iter().flat_map(|(_, found)| &found.leases);
    let above = used.map(|lease| lease.base).filter(|base| *base >= first.base);
    let first_used = above.min().unwrap_or(u64::MAX).min(first.base + first.length);
    let state = State { arenas: contents.arenas.clone(), first_used, given: Vec::new() };
    let leases = Arc::new(Leases(Mutex::new(state)));
    let environment = Environment {
        storage: Arc::clone(storage),
        space,
        addresses: Arc::clone(&leases) as Arc<dyn Addresses>,
        guest: None,
    };
    let draft_options = DraftOptions {
        name: CATALOG.to_string(),
        store_uuid: contents.store_uuid.map_or_else(random_uuid, Ok)?,
        object_uuid: random_uuid()?,
        kind: KIND_CATALOG,
        arena: (first.base, first.length),
        ..DraftOptions::default()
    };
    let mut draft = Draft::create(&environment, &path, &draft_options)?;
    let root: NonNull<Catalog> = draft
        .place_root(RootType {
            bytes: size_of::<Catalog>(),
            align: align_of::<Catalog>(),
            type_id: Catalog::TYPE_ID,
            schema: type_description::<Catalog>(),
        })?
        .cast();
    let source = CatalogInit {
        arenas: contents.arenas.as_slice(),
        objects: PMap::new(),
        doomed: PVec::new(),
    };
    // SAFETY: the place has the root's size and alignment, and no other reference to it exists.
    unsafe { build_root(draft.heap(), root, source)? };
    for (name, found) in &contents.objects {
        // SAFETY: the root was built above, and no other reference to it exists.
        catalog::insert(unsafe { Mut::from_raw(draft.heap(), root) }, name, found)?;
    }
    for lease in &leases.state().given {
        // SAFETY: as above.
        catalog::raise_high_water(unsafe { Mut::from_raw(draft.heap(), root) }, lease);
    }
    draft.finish(&environment, Some(&directory.join(CATALOG_LOG)))?;
    draft.published();
    if !mutated(Mutant::CatalogNamedUnflushed) {
        draft.file().sync_data()?;
    }
    storage.rename(&path, &directory.join(CATALOG))?;
    storage.sync_directory(directory)?;
    storage.sync_directory(&crate::storage::parent_of(directory))
}
