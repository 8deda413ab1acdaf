//! Moves a store to other addresses by rewriting the pointers in its objects and its catalog.
//!
//! A new store is created next to the old one and takes its place in one step ([`swap`]); the old
//! files are kept in it. They are not changed, so an undo restores them byte for byte. Pointers are
//! recognised by type if the object's type is described, otherwise by value ([`relocate`]);
//! `docs/tools.md` describes the consequences.

mod relocate;
mod report;
mod swap;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::api::{
    NewCatalog, Options, arena_for_rebase, overlapping_arenas, record_arenas, write_catalog,
};
use crate::catalog::{Arena, Found, Lease};
use crate::error::{Error as StoreError, Result as StoreResult};
use crate::layout::{ADDRESSES, BUILDING, OBJECTS};
use crate::object::lock_byte;
use crate::storage::{LockKind, OpenMode, Storage};

use super::audit::{Neighbours, open_found, read_listing};
use super::backup::refuse_damage;
use super::backup_mark;
use super::check::{CheckOptions, Scan, catalog_image, check};
use super::error::{Error, Result};
use super::host_tables;
use super::listing::Listing;
use relocate::write_unmoved;
pub(super) use relocate::{Moves, SuperblockChanges, paths_in, plan, write};
pub use report::{Hit, HitKind, RebaseReport, Relocation, UndoReport};
pub(super) use swap::PREFIX as REBASE_PREFIX;
use swap::{Sibling, StoreLock, newest_kept, tidy};

/// Time that a rebase waits at its end for processes that have an object open. It is short, because
/// a process that creates an object may itself wait for the rebase.
const ADDRESS_LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// Options of a rebase.
///
/// ```
/// use evermap::{PVec, Store, tools};
/// # let directory = tempfile::tempdir()?;
/// let path = directory.path().join("store");
/// let store = Store::create_new(&path)?;
/// store.create::<PVec<u64>, _>("numbers", [1, 2, 3])?;
/// let before = store.info("numbers")?.base_address;
/// drop(store);
///
/// let plan = tools::rebase(&path, &tools::RebaseOptions::new().dry_run(true))?;
/// assert_eq!(plan.objects[0].count(tools::HitKind::Typed), 1);
/// let done = tools::rebase(&path, &tools::RebaseOptions::new())?;
/// assert!(done.kept_in.is_some());
///
/// let store = Store::open(&path)?;
/// assert_eq!(*store.read::<PVec<u64>>("numbers")?, [1, 2, 3]);
/// assert_ne!(store.info("numbers")?.base_address, before);
/// # drop(store);
/// # tools::undo_rebase(&path, false)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct RebaseOptions {
    to: Option<u64>,
    force: bool,
    dry_run: bool,
    samples: usize,
    check: CheckOptions,
    store: Options,
}

impl Default for RebaseOptions {
    fn default() -> Self {
        RebaseOptions {
            to: None,
            force: false,
            dry_run: false,
            samples: 5,
            check: CheckOptions::new().busy_timeout(Duration::ZERO),
            store: Options::default(),
        }
    }
}

impl RebaseOptions {
    /// Defaults: move the store to addresses that no other store of the user has.
    pub fn new() -> RebaseOptions {
        RebaseOptions::default()
    }

    /// Sets the store's new first address, a multiple of 1 GiB. The arenas follow each other from
    /// there. Default: addresses that no other store of the user has.
    pub fn to(mut self, base: u64) -> RebaseOptions {
        self.to = Some(base);
        self
    }

    /// Sets whether to use an address at which another store of the user has an arena. No process
    /// can open both stores then. Default: no.
    pub fn force(mut self, force: bool) -> RebaseOptions {
        self.force = force;
        self
    }

    /// Sets whether to only report which words would change. The store may be in use.
    pub fn dry_run(mut self, dry_run: bool) -> RebaseOptions {
        self.dry_run = dry_run;
        self
    }

    /// Sets how many words of each kind are reported with their path. Default: five.
    pub fn samples(mut self, samples: usize) -> RebaseOptions {
        self.samples = samples;
        self
    }

    fn storage(&self) -> &Arc<dyn Storage> {
        &self.check.storage
    }
}

/// Moves the store in a directory to other addresses.
///
/// Guest objects are not rewritten, because their addresses are in a guest's memory. Tables of a
/// sandbox's host in the store's directory are copied.
///
/// No process may have objects of the store open, and this process may not have the store open. The
/// old files are kept in `rebase-<time>` in the store's directory, so the store takes twice the
/// space until they are removed. A crash at any point leaves either the old or the rebased store.
/// The report lists the words that are rewritten by value only; make a dry run first to inspect
/// them.
///
/// # Errors
/// `Busy` if a process has objects of the store open or creates some, or if this process has the
/// store open; guest objects that are only read are not noticed. `Damaged` if the check finds
/// damage. `BadBase` if no store can be at the requested address, or this store is there.
/// `AddressTaken` if the requested addresses are in use in this process, or if another store has
/// them according to the arena registry; the latter only without `force`, and not in a dry run,
/// which reports it. `Unsupported` on a file system that cannot exchange directories. `DiskFull`,
/// `NotPermitted`, `NoStore`. On error the store is unchanged.
pub fn rebase(directory: impl AsRef<Path>, options: &RebaseOptions) -> Result<RebaseReport> {
    let directory = resolved(directory.as_ref());
    let storage = options.storage();
    // Fails if there is no store, before anything is locked.
    let scan = Scan::new(&directory, &options.check)?;
    let store_lock = match options.dry_run {
        true => None,
        false => Some(StoreLock::acquire(&**storage, &directory, options.check.timeout)?),
    };
    if !options.dry_run {
        tidy(&**storage, &directory)?;
    }
    refuse_damage(check(&directory, &options.check)?, "the store")?;
    let catalog = catalog_image(&**storage, &directory)?;
    let listing = read_listing(&catalog)?;
    let neighbours = Neighbours::of(&listing, &catalog);
    drop(catalog);
    let length = total_length(&listing)?;
    let mut met = Vec::new();
    if let Some(to) = options.to {
        check_base(to, length, &listing)?;
        met = overlapping_arenas(&**storage, &directory, to, length);
        if let Some((_, _, store)) = met.first().filter(|_| !options.force && !options.dry_run) {
            return Err(is_noted(&directory, to, length, store).into());
        }
    }
    let to = match options.dry_run {
        true => options.to,
        false => Some(choose(&directory, options, &listing, length)?),
    };
    let mut work = Work {
        scan: &scan,
        options,
        moves: moves(&listing, &neighbours, to.unwrap_or(listing.arenas[0].base)),
        listing,
        sequences: Vec::new(),
        report: RebaseReport { directory: directory.clone(), to, met, ..RebaseReport::default() },
    };
    work.report.from = work.listing.arenas.iter().map(|a| (a.base, a.length)).collect();
    if options.dry_run {
        work.objects(None)?;
        return Ok(work.report);
    }
    let sibling = Sibling::create(&**storage, &directory)?;
    let exchanged = work.fill(&sibling).and_then(|lock| {
        let address_lock = store_lock
            .as_ref()
            .map(|store_lock| store_lock.lock_addresses(&directory, ADDRESS_LOCK_TIMEOUT));
        let address_lock = address_lock.transpose()?;
        work.refuse_changes()?;
        sibling.exchange(&**storage, &directory)?;
        // Processes that wait for an object now find that the store was replaced.
        drop(address_lock);
        Ok(lock)
    });
    // The lock of the new store is held until the old one is in its place.
    let _lock = exchanged.inspect_err(|_| {
        // Tidy up, whichever of the two has the store's name now. The next rebase tries again.
        let _ = tidy(&**storage, &directory);
        record_arenas(&options.store, &directory, &work.report.from);
    })?;
    work.report.kept_in = Some(sibling.move_in(&**storage, &directory)?);
    work.note_places();
    Ok(work.report)
}

/// Resolves symbolic links, because a link cannot be exchanged with a directory.
fn resolved(directory: &Path) -> PathBuf {
    std::fs::canonicalize(directory).unwrap_or_else(|_| directory.to_path_buf())
}

/// Returns the total bytes of addresses that the arenas take.
fn total_length(listing: &Listing) -> StoreResult<u64> {
    let mut lengths = listing.arenas.iter().map(arena_bytes);
    let total = lengths.try_fold(0u64, |sum, length| sum.checked_add(length));
    match total {
        Some(total) if total > 0 => Ok(total),
        _ => Err(StoreError::OutOfAddresses {
            what: "the store".to_string(),
            bytes: 0,
            why: "its arenas do not fit one after the other".to_string(),
        }),
    }
}

fn arena_bytes(arena: &Arena) -> u64 {
    arena.length.next_multiple_of(crate::address::ARENA_ALIGN_BYTES)
}

/// Checks that a store can be at an address.
fn check_base(base: u64, length: u64, listing: &Listing) -> Result<()> {
    let end = base.checked_add(length).filter(|end| *end <= 1 << 47);
    let why = if !base.is_multiple_of(crate::address::ARENA_ALIGN_BYTES) {
        "it is not a multiple of 1 GiB (0x40000000)".to_string()
    } else if base == 0 || end.is_none() {
        format!("programs use addresses below 2^47, and {length} bytes are needed")
    } else if listing.arenas.first().is_some_and(|arena| arena.base == base) {
        "this store is already there".to_string()
    } else {
        return Ok(());
    };
    Err(Error::BadBase { base, why })
}

fn is_noted(directory: &Path, to: u64, length: u64, store: &Path) -> StoreError {
    StoreError::AddressTaken {
        what: format!("the new location of store {}", directory.display()),
        base: to,
        end: to + length,
        by: format!("store {}, according to your arena registry", store.display()),
        remedy: "name another address, or none; or use force, but then no process can have both \
                 stores open",
    }
}

/// Chooses the store's new first address: free in this process, and not registered by another
/// store.
fn choose(
    directory: &Path,
    options: &RebaseOptions,
    listing: &Listing,
    length: u64,
) -> StoreResult<u64> {
    let own: Vec<(u64, u64)> = listing.arenas.iter().map(|a| (a.base, a.length)).collect();
    arena_for_rebase(&options.store, directory, length, options.to, &own)
}

/// Maps each arena as a whole to its part of the new addresses, which preserves alignments.
fn moves(listing: &Listing, neighbours: &Neighbours, to: u64) -> Moves {
    let mut at = to;
    let mut ranges = Vec::new();
    for arena in &listing.arenas {
        ranges.push((arena.base, arena.base + arena.length, at));
        at += arena_bytes(arena);
    }
    let objects = neighbours.objects.iter().map(|(base, end, _)| (*base, *end)).collect();
    Moves::new(ranges, objects)
}

/// State of a running rebase.
struct Work<'a> {
    scan: &'a Scan<'a>,
    options: &'a RebaseOptions,
    listing: Listing,
    moves: Moves,
    /// Commit number of each object that was moved.
    sequences: Vec<u64>,
    report: RebaseReport,
}

impl Work<'_> {
    /// Plans the relocation of every object, and writes the objects to `folder` if given.
    fn objects(&mut self, folder: Option<&Path>) -> StoreResult<()> {
        let storage = self.options.storage();
        for (name, found) in &self.listing.objects {
            let image = open_found(self.scan, &self.listing, (name, found))?;
            let s = image.superblock();
            self.sequences.push(s.commit_sequence);
            let base = self.moves.of(s.arena_base).unwrap_or(s.arena_base);
            let changes = SuperblockChanges { arena: (base, s.arena_length), identity: None };
            let place = |folder| paths_in(folder, found.uuid, self.listing.store_uuid);
            // A guest object's addresses are in a guest's memory, so they do not change.
            if s.is_guest() {
                if let Some(folder) = folder {
                    write_unmoved(&**storage, &image, &changes, &place(folder))?;
                }
                self.report.guests.push(name.clone());
                continue;
            }
            let plan = plan(&image, name, &self.moves, self.options.samples)?;
            if let Some(folder) = folder {
                write(&**storage, &plan, &changes, &place(folder))?;
            }
            self.report.objects.push(plan.report);
        }
        Ok(())
    }

    /// Returns an error if an object was changed since it was moved. No process has a native object
    /// open now, or a guest object open for writing.
    fn refuse_changes(&self) -> StoreResult<()> {
        for ((name, found), moved) in self.listing.objects.iter().zip(&self.sequences) {
            let image = open_found(self.scan, &self.listing, (name, found))?;
            if image.superblock().commit_sequence != *moved {
                return Err(StoreError::Busy {
                    what: format!("store {}", self.report.directory.display()),
                    holder: format!("object `{name}` was changed while the store was moved"),
                });
            }
        }
        Ok(())
    }

    /// Creates the new store, which stays locked until the returned file is dropped.
    fn fill(&mut self, sibling: &Sibling) -> StoreResult<Arc<dyn crate::storage::File>> {
        let storage = Arc::clone(self.options.storage());
        let lock = storage.open(&sibling.path.join(ADDRESSES), OpenMode::CreateNew)?;
        lock_byte(&*lock, LockKind::Exclusive, 0, Duration::ZERO, "the new store")?;
        for folder in [OBJECTS, BUILDING, &sibling.name] {
            storage.create_directory(&sibling.path.join(folder))?;
        }
        let objects = sibling.path.join(OBJECTS);
        self.objects(Some(&objects))?;
        let moved = |address: u64| self.moves.of(address).unwrap_or(address);
        let arenas = self.listing.arenas.iter().map(|arena| Arena {
            base: moved(arena.base),
            length: arena.length,
            high_water: moved(arena.base) + (arena.high_water - arena.base),
        });
        let lease = |l: &Lease| Lease { base: moved(l.base), bytes: l.bytes };
        let named = self.listing.objects.iter().map(|(name, found)| {
            let leases = found.leases.iter().map(lease).collect();
            (name.clone(), Found { leases, ..found.clone() })
        });
        let contents = NewCatalog {
            store_uuid: Some(self.listing.store_uuid),
            arenas: arenas.collect(),
            objects: named.collect(),
        };
        // The arenas are registered later, with the store's final directory.
        let options = self.options.store.clone().arena_registry(None);
        write_catalog(&sibling.path, &options, contents)?;
        // Copy the tables last, so that a change by a running host is least likely to be missed.
        host_tables::copy(&*storage, &self.report.directory, &sibling.path)?;
        backup_mark::copy(&*storage, &self.report.directory, &sibling.path)?;
        for folder in [objects, sibling.path.clone()] {
            storage.sync_directory(&folder)?;
        }
        Ok(lock)
    }

    /// Registers the old and the new arenas. The old ones stay registered for an undo.
    fn note_places(&self) {
        let mut places = self.report.from.clone();
        places.extend(
            self.listing
                .arenas
                .iter()
                .filter_map(|arena| self.moves.of(arena.base).map(|base| (base, arena.length))),
        );
        record_arenas(&self.options.store, &self.report.directory, &places);
    }
}

/// Undoes the last rebase of a store: restores its old files byte for byte.
///
/// # Errors
/// `NothingKept` if there are no old files. `Busy` in the cases in which [`rebase`] returns it.
/// `ChangedSince` if the store was changed since the rebase and `force` is false; an undo loses
/// these changes. On error the store is unchanged.
///
/// ```
/// use evermap::{Store, tools};
/// # let directory = tempfile::tempdir()?;
/// let path = directory.path().join("store");
/// Store::create_new(&path)?.create::<u64, _>("answer", 42)?;
/// tools::rebase(&path, &tools::RebaseOptions::new())?;
/// tools::undo_rebase(&path, false)?;
/// assert_eq!(*Store::open(&path)?.read::<u64>("answer")?, 42);
/// assert!(matches!(tools::undo_rebase(&path, false), Err(tools::Error::NothingKept { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn undo_rebase(directory: impl AsRef<Path>, force: bool) -> Result<UndoReport> {
    undo(directory.as_ref(), force, &RebaseOptions::new())
}

fn undo(directory: &Path, force: bool, options: &RebaseOptions) -> Result<UndoReport> {
    let directory = resolved(directory);
    let storage = options.storage();
    Scan::new(&directory, &options.check)?;
    let _store_lock = StoreLock::acquire(&**storage, &directory, options.check.timeout)?;
    tidy(&**storage, &directory)?;
    let Some(name) = newest_kept(&**storage, &directory)? else {
        return Err(Error::NothingKept { path: directory });
    };
    let kept = directory.join(&name);
    Scan::new(&kept, &options.check)?;
    let listing = read_listing(&catalog_image(&**storage, &kept)?)?;
    if !force && let Some(what) = changed_since(&directory, &kept, &listing, options)? {
        return Err(Error::ChangedSince { path: directory, what });
    }
    let sibling = Sibling::of(&directory, &name);
    storage.create_directory(&sibling.path)?;
    let exchanged = go_back(&**storage, &directory, &sibling);
    exchanged.inspect_err(|_| {
        let _ = tidy(&**storage, &directory);
    })?;
    let arenas: Vec<(u64, u64)> = listing.arenas.iter().map(|a| (a.base, a.length)).collect();
    record_arenas(&options.store, &directory, &arenas);
    Ok(UndoReport { directory, undone: name, arenas })
}

/// Moves the old files out of the store, leaving an empty directory, and exchanges them with the
/// store. A crash leaves one of the states that a rebase passes through; see [`swap`].
fn go_back(storage: &dyn Storage, directory: &Path, sibling: &Sibling) -> StoreResult<()> {
    if !storage.exchange(&directory.join(&sibling.name), &sibling.path)? {
        let why = format!("the file system of {} cannot exchange directories", directory.display());
        return Err(StoreError::Unsupported { why });
    }
    storage.sync_directory(directory)?;
    sibling.exchange(storage, directory)?;
    sibling.remove(storage)
}

/// Describes the first change of the store since its rebase, if any.
fn changed_since(
    directory: &Path,
    kept: &Path,
    old: &Listing,
    options: &RebaseOptions,
) -> StoreResult<Option<String>> {
    let storage = options.storage();
    let catalog = catalog_image(&**storage, directory)?;
    // A rebase creates the catalog with one commit.
    if catalog.superblock().commit_sequence > 1 {
        return Ok(Some("objects were created, removed, renamed or grown".to_string()));
    }
    if let Some(name) = host_tables::differing(&**storage, directory, kept)? {
        return Ok(Some(format!("a sandbox's host changed {name}")));
    }
    let now = read_listing(&catalog)?;
    let (scan, old_scan) =
        (Scan::new(directory, &options.check)?, Scan::new(kept, &options.check)?);
    for (name, found) in &now.objects {
        let Some((_, before)) = old.objects.iter().find(|(_, f)| f.uuid == found.uuid) else {
            return Ok(Some(format!("object `{name}` was created")));
        };
        let sequence = |scan, listing, found| -> StoreResult<u64> {
            Ok(open_found(scan, listing, (name, found))?.superblock().commit_sequence)
        };
        if sequence(&scan, &now, found)? != sequence(&old_scan, old, before)? {
            return Ok(Some(format!("object `{name}` was changed")));
        }
    }
    Ok(None)
}
