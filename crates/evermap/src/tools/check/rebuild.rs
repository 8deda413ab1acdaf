//! Rebuilds the catalog from the object files. Each superblock has the object's name, store and
//! addresses.
//!
//! Files in `building` are left where they are: the lost catalog may not have named them, and an
//! object whose creation was never acknowledged must not appear. The store is locked during the
//! rebuild, because a process with an open object would keep using the old catalog.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

use crate::address::ARENA_ALIGN_BYTES;
use crate::api::{NewCatalog, Options, refuse_open_here, write_catalog};
use crate::catalog::{Arena, Found, Lease, check_name};
use crate::error::{Error, Result};
use crate::format::CHUNK_BYTES;
use crate::layout::{ADDRESSES, CATALOG, CATALOG_LOG, OBJECTS, parse_uuid};
use crate::object::{WRITER_BYTE, hex, lock_byte, peek};
use crate::storage::{LockKind, OpenMode};
use crate::tools::address_lock::{FIRST, wait_for_users};
use crate::tools::image::Image;
use crate::tools::listing::Listing;
use crate::tools::quarantine::Quarantine;
use crate::tools::report::quantity;

use super::leases::leases_of;
use super::options::CheckOptions;
use super::scan::Scan;

/// Bytes reserved at the beginning of the arena for the catalog's first region.
const CATALOG_BYTES: u64 = 17 * CHUNK_BYTES;

/// Object file with the information that the catalog needs.
struct Candidate {
    found: Found,
    name: String,
    store_uuid: [u8; 16],
    arena: (u64, u64),
}

/// Rebuilds the catalog. `known` is what could be read of the old one. Its names take precedence,
/// because a file gets a new name only with its next commit. Returns the actions taken.
pub(super) fn catalog(
    directory: &Path,
    options: &CheckOptions,
    quarantine: &mut Quarantine<'_>,
    known: Option<&Listing>,
) -> Result<Vec<String>> {
    let storage = &options.storage;
    refuse_open_here(&**storage, directory)?;
    let locks = storage.open(&directory.join(ADDRESSES), OpenMode::OpenOrCreate)?;
    let display_name = format!("store {}", directory.display());
    lock_byte(&*locks, LockKind::Exclusive, 0, options.timeout, &display_name)?;
    // A process with an open object would keep using the old catalog.
    wait_for_users(&*locks, FIRST, directory, options.timeout)?;
    let old = match storage.open(&directory.join(CATALOG), OpenMode::ReadWrite) {
        Ok(old) => Some(old),
        Err(error) if error.is_missing_file() => None,
        Err(Error::Foreign { .. }) => None,
        Err(error) => return Err(error),
    };
    if let Some(old) = &old {
        lock_byte(&**old, LockKind::Exclusive, WRITER_BYTE, Duration::ZERO, &display_name)?;
    }
    let superblock = old.as_ref().and_then(|old| peek(&**old).ok());
    quarantine.copy(Path::new(CATALOG))?;
    quarantine.copy(Path::new(CATALOG_LOG))?;
    let mut actions = Vec::new();
    let candidates = candidates(directory, options, known, quarantine, &mut actions)?;
    let sound = candidates.iter().filter(|candidate| is_sound(candidate.arena));
    let majority = most_frequent(sound.map(|candidate| (candidate.store_uuid, candidate.arena)));
    let superblock = superblock.map(|superblock| {
        (superblock.store_uuid, (superblock.arena_base, superblock.arena_length))
    });
    // The files outvote a catalog that is damaged.
    let contents = match majority.or(superblock.filter(|(_, arena)| is_sound(*arena))) {
        Some((store_uuid, arena)) => {
            let objects = choose(candidates, store_uuid, arena, known, &mut actions);
            let arenas = arenas(arena, &objects, known);
            NewCatalog { store_uuid: Some(store_uuid), arenas, objects }
        }
        None if candidates.is_empty() => NewCatalog::default(),
        None => {
            return Err(Error::Damaged {
                path: directory.join(OBJECTS),
                what: "every object's arena",
                found: "impossible addresses".to_string(),
                expected: "the arena of this store".to_string(),
            });
        }
    };
    let names = contents.objects.len() as u64;
    let store_options = Options { storage: storage.clone(), ..Options::default() };
    write_catalog(directory, &store_options, contents)?;
    actions.insert(0, format!("rebuilt the catalog with {}", quantity(names, "object")));
    Ok(actions)
}

/// Returns the object files whose superblock can be read.
fn candidates(
    directory: &Path,
    options: &CheckOptions,
    known: Option<&Listing>,
    quarantine: &mut Quarantine<'_>,
    actions: &mut Vec<String>,
) -> Result<Vec<Candidate>> {
    let scan = Scan::new(directory, options)?;
    let mut names = match options.storage.list(&directory.join(OBJECTS)) {
        Err(e) if e.is_missing_file() => Vec::new(),
        other => other?,
    };
    names.sort_unstable();
    let entries: HashMap<[u8; 16], (&str, u64)> = known
        .iter()
        .flat_map(|listing| &listing.objects)
        .map(|(name, found)| (found.uuid, (name.as_str(), found.created_ns)))
        .collect();
    let doomed: HashSet<[u8; 16]> = known.iter().flat_map(|l| &l.doomed).copied().collect();
    let mut candidates = Vec::new();
    for uuid in names.iter().filter_map(|name| parse_uuid(name)) {
        if doomed.contains(&uuid) {
            // The new catalog does not list doomed objects, so the file would count as lost.
            let file = Path::new(OBJECTS).join(hex(&uuid));
            quarantine.take(&file)?;
            quarantine.take(&file.with_extension("log"))?;
            actions.push(format!("moved {}, a removed object, out of the store", file.display()));
            continue;
        }
        let paths = scan.subject(OBJECTS, uuid, None, None).paths;
        let image = match Image::open(&*options.storage, &paths) {
            Ok(image) => image,
            // The object would lose its name. So an unreadable file is only left out on request.
            Err(error) if !is_damage(&error) && !options.quarantine => {
                return Err(Error::Damaged {
                    path: paths.path,
                    what: "an object's file, which the new catalog must name",
                    found: error.to_string(),
                    expected: "a readable file: repeat the repair, or leave the object out with \
                               `--quarantine`"
                        .to_string(),
                });
            }
            Err(error) => {
                actions.push(format!("left {OBJECTS}/{} without a name: {error}", hex(&uuid)));
                continue;
            }
        };
        let s = image.superblock();
        let (name, created_ns) = match entries.get(&uuid) {
            Some((name, created_ns)) => (name.to_string(), *created_ns),
            None => (s.name(), s.created_ns),
        };
        let found = Found { uuid, created_ns, leases: leases_of(&image) };
        let arena = (s.arena_base, s.arena_length);
        candidates.push(Candidate { found, name, store_uuid: s.store_uuid, arena });
    }
    Ok(candidates)
}

/// Returns true if the error means that the file is damaged, not that it cannot be read now.
fn is_damage(error: &Error) -> bool {
    matches!(
        error,
        Error::Damaged { .. }
            | Error::Foreign { .. }
            | Error::NewerFormat { .. }
            | Error::LogMissing { .. }
    )
}

fn most_frequent<T: Copy + Eq + std::hash::Hash>(items: impl Iterator<Item = T>) -> Option<T> {
    let mut counts: HashMap<T, usize> = HashMap::new();
    items.for_each(|item| *counts.entry(item).or_default() += 1);
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(item, _)| item)
}

fn is_sound((base, length): (u64, u64)) -> bool {
    base.is_multiple_of(ARENA_ALIGN_BYTES)
        && length >= CATALOG_BYTES
        && base > 0
        && base.checked_add(length).is_some_and(|end| end < 1 << 47)
}

/// Chooses the files of this store and their names. Of files with the same name, the one that the
/// old catalog named or else the newest gets it.
fn choose(
    mut candidates: Vec<Candidate>,
    store_uuid: [u8; 16],
    arena: (u64, u64),
    known: Option<&Listing>,
    actions: &mut Vec<String>,
) -> Vec<(String, Found)> {
    let from_catalog: HashSet<[u8; 16]> =
        known.iter().flat_map(|l| &l.objects).map(|(_, found)| found.uuid).collect();
    candidates.sort_by_key(|candidate| {
        let named = from_catalog.contains(&candidate.found.uuid);
        (std::cmp::Reverse(named), std::cmp::Reverse(candidate.found.created_ns))
    });
    let mut names = HashSet::new();
    let mut taken = vec![Lease { base: arena.0, bytes: CATALOG_BYTES }];
    let mut objects = Vec::new();
    for Candidate { found, name, store_uuid: own_store, .. } in candidates {
        let file = format!("{OBJECTS}/{}", hex(&found.uuid));
        if own_store != store_uuid {
            actions.push(format!("left {file} without a name: it belongs to another store"));
            continue;
        }
        let meets = |a: &Lease, b: &Lease| a.base < b.base + b.bytes && b.base < a.base + a.bytes;
        if found.leases.iter().any(|lease| taken.iter().any(|other| meets(other, lease))) {
            actions.push(format!("left {file} without a name: another object has its addresses"));
            continue;
        }
        let free = check_name(&name).is_ok() && !names.contains(&name);
        let name = match free {
            true => name,
            false => {
                let new_name = format!("recovered-{}", hex(&found.uuid));
                actions.push(format!("named {file} `{new_name}`: `{name}` is taken or invalid"));
                new_name
            }
        };
        taken.extend(found.leases.iter().copied());
        names.insert(name.clone());
        objects.push((name, found));
    }
    objects.sort_by_key(|(_, found)| found.created_ns);
    objects
}

/// Returns the store's arenas: the first one, those in the old catalog, and further ones so that
/// every object's addresses are in an arena.
fn arenas(first: (u64, u64), objects: &[(String, Found)], known: Option<&Listing>) -> Vec<Arena> {
    let mut arenas = vec![Arena { base: first.0, length: first.1, high_water: first.0 }];
    let apart = |arenas: &[Arena], base: u64, length: u64| {
        is_sound((base, length))
            && arenas.iter().all(|a| base >= a.base + a.length || base + length <= a.base)
    };
    for arena in known.iter().flat_map(|listing| &listing.arenas) {
        if apart(&arenas, arena.base, arena.length) {
            arenas.push(Arena { high_water: arena.base, ..*arena });
        }
    }
    for lease in objects.iter().flat_map(|(_, found)| &found.leases) {
        let end = lease.base + lease.bytes;
        if arenas.iter().any(|a| lease.base >= a.base && end <= a.base + a.length) {
            continue;
        }
        let base = lease.base / ARENA_ALIGN_BYTES * ARENA_ALIGN_BYTES;
        let length = (end - base).next_multiple_of(ARENA_ALIGN_BYTES);
        if apart(&arenas, base, length) {
            arenas.push(Arena { base, length, high_water: base });
        } else if let Some(last) = arenas.iter().rposition(|a| a.base <= base) {
            // Extend an arena of which only the beginning was known so far.
            let longer = (end - arenas[last].base).next_multiple_of(ARENA_ALIGN_BYTES);
            let rest: Vec<Arena> = arenas.iter().filter(|a| a.base > base).copied().collect();
            if rest.iter().all(|a| a.base >= arenas[last].base + longer) {
                arenas[last].length = arenas[last].length.max(longer);
            }
        }
    }
    arenas
}
