//! Moving a store to other addresses: all its objects and its catalog, by rewriting pointers.
//!
//! A new store is made beside the old one and takes its place in one step ([`swap`]); the old one
//! is kept in it. Nothing of the old files is changed, so an undo gives them back as they were.
//! Pointers are known by their types where an object has a described one, and by their values where
//! not ([`relocate`]); `docs/tools.md` says what that means.

mod relocate;
mod report;
mod swap;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::api::{NewCatalog, Options, arena_to_move_to, arenas_met, note_arenas, write_catalog};
use crate::catalog::{Arena, Found, Lease};
use crate::error::{Error, Result};
use crate::layout::{ADDRESSES, BUILDING, OBJECTS};
use crate::object::lock_byte;
use crate::storage::{LockKind, OpenMode, Storage};

use super::audit::{Neighbours, open_found, read_listing};
use super::backup::refuse_damage;
use super::check::{CheckOptions, Scan, catalog_image, check};
use super::host_tables;
use super::listing::Listing;
use relocate::write_unmoved;
pub(super) use relocate::{Moves, SuperblockChanges, paths_in, plan, write};
pub use report::{Hit, HitKind, RebaseReport, Relocation, UndoReport};
pub(super) use swap::PREFIX as REBASE_PREFIX;
use swap::{Sibling, StoreLock, newest_kept, tidy};

/// How long a rebase waits for those who have an object open when all else is done. Who makes an object
/// meanwhile waits for the rebase, and is not to be waited for.
const ADDRESS_LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// What a rebase is to do.
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
    /// To a place that no other store of the user has.
    pub fn new() -> RebaseOptions {
        RebaseOptions::default()
    }

    /// The first address that the store is to have: a multiple of 1 GiB. Its arenas are put there
    /// one after the other. Default: a place that no other store of the user has.
    pub fn to(mut self, base: u64) -> RebaseOptions {
        self.to = Some(base);
        self
    }

    /// Whether to go to an address although another store of the user has noted an arena there: no
    /// process can have both open then. Default: no.
    pub fn force(mut self, force: bool) -> RebaseOptions {
        self.force = force;
        self
    }

    /// Only find out which words would change; the store may be in use.
    pub fn dry_run(mut self, dry_run: bool) -> RebaseOptions {
        self.dry_run = dry_run;
        self
    }

    /// How many words of each kind are shown with their path. Default: five.
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
/// Guest objects stay as they are: their addresses are those of a guest's memory, wherever the store
/// is. What a sandbox's host keeps in the store's directory goes along.
///
/// Nobody may have it open. The old files are kept in `rebase-<time>` in the store's directory, so
/// it takes twice the room until that is removed. Dying at any point leaves the store as it was or
/// rebased. What of an object is rewritten by value only is in the report: look at a dry run first.
///
/// # Errors
/// `Busy` when somebody has the store open, `Damaged` when the check finds damage, `BadBase` for an
/// address at which no store can be or this one is, `AddressTaken` when something lies at the
/// address that was asked for, or (without `force`, and not in a dry run, which tells it) another
/// store has noted that it does; `DiskFull`, `NotPermitted`, `NoStore`, `Unsupported` on a file
/// system that cannot exchange directories. The store is as it was then.
pub fn rebase(directory: impl AsRef<Path>, options: &RebaseOptions) -> Result<RebaseReport> {
    let directory = resolved(directory.as_ref());
    let storage = options.storage();
    // Says whether there is a store before anything is locked.
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
        met = arenas_met(&**storage, &directory, to, length);
        if let Some((_, _, store)) = met.first().filter(|_| !options.force && !options.dry_run) {
            return Err(is_noted(&directory, to, length, store));
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
    let made = Sibling::create(&**storage, &directory)?;
    let exchanged = work.fill(&made).and_then(|lock| {
        let address_lock = store_lock
            .as_ref()
            .map(|store_lock| store_lock.lock_addresses(&directory, ADDRESS_LOCK_TIMEOUT));
        let address_lock = address_lock.transpose()?;
        work.refuse_changes()?;
        made.exchange(&**storage, &directory)?;
        // Those who wait for an object find that the store was replaced.
        drop(address_lock);
        Ok(lock)
    });
    // Until all is in its place nobody else can begin.
    let _lock = exchanged.inspect_err(|_| {
        // Whichever of the two has its name now; the next rebase tries again.
        let _ = tidy(&**storage, &directory);
        note_arenas(&options.store, &directory, &work.report.from);
    })?;
    work.report.kept_in = Some(made.move_in(&**storage, &directory)?);
    work.note_places();
    Ok(work.report)
}

/// A name that leads to the directory itself: a symbolic link cannot change places with one.
fn resolved(directory: &Path) -> PathBuf {
    std::fs::canonicalize(directory).unwrap_or_else(|_| directory.to_path_buf())
}

/// Bytes of addresses that all arenas take one after the other.
fn total_length(listing: &Listing) -> Result<u64> {
    let mut lengths = listing.arenas.iter().map(arena_bytes);
    let total = lengths.try_fold(0u64, |sum, length| sum.checked_add(length));
    match total {
        Some(total) if total > 0 => Ok(total),
        _ => Err(Error::OutOfAddresses {
            what: "the store".to_string(),
            bytes: 0,
            why: "its arenas cannot be put one after the other".to_string(),
        }),
    }
}

fn arena_bytes(arena: &Arena) -> u64 {
    arena.length.next_multiple_of(crate::address::ARENA_ALIGN_BYTES)
}

/// Can a store be there at all?
fn check_base(base: u64, length: u64, listing: &Listing) -> Result<()> {
    let end = base.checked_add(length).filter(|end| *end <= 1 << 47);
    let why = if !base.is_multiple_of(crate::address::ARENA_ALIGN_BYTES) {
        "it is no multiple of 1 GiB (0x40000000)".to_string()
    } else if base == 0 || end.is_none() {
        format!("programs have addresses below 2^47, and {length} bytes are needed")
    } else if listing.arenas.first().is_some_and(|arena| arena.base == base) {
        "this store is there already".to_string()
    } else {
        return Ok(());
    };
    Err(Error::BadBase { base, why })
}

fn is_noted(directory: &Path, to: u64, length: u64, store: &Path) -> Error {
    Error::AddressTaken {
        what: format!("the new place of store {}", directory.display()),
        base: to,
        end: to + length,
        by: format!("store {}, as your arena registry has it", store.display()),
        remedy: "name another address, or none; with force the store goes there all the same, and \
                 no process can have both open",
    }
}

/// Where the store goes: free here, and nobody else's as far as is known.
fn choose(
    directory: &Path,
    options: &RebaseOptions,
    listing: &Listing,
    length: u64,
) -> Result<u64> {
    let own: Vec<(u64, u64)> = listing.arenas.iter().map(|a| (a.base, a.length)).collect();
    arena_to_move_to(&options.store, directory, length, options.to, &own)
}

/// Each arena goes to its own part of the new place, as a whole: alignments stay.
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

struct Work<'a> {
    scan: &'a Scan<'a>,
    options: &'a RebaseOptions,
    listing: Listing,
    moves: Moves,
    /// Number of each object's commit that was moved.
    sequences: Vec<u64>,
    report: RebaseReport,
}

impl Work<'_> {
    /// Looks at every object, and writes it into a folder if there is one.
    fn objects(&mut self, folder: Option<&Path>) -> Result<()> {
        let storage = self.options.storage();
        for (name, found) in &self.listing.objects {
            let image = open_found(self.scan, &self.listing, (name, found))?;
            let s = image.superblock();
            self.sequences.push(s.commit_sequence);
            let base = self.moves.of(s.arena_base).unwrap_or(s.arena_base);
            let changes = SuperblockChanges { arena: (base, s.arena_length), identity: None };
            let place = |folder| paths_in(folder, found.uuid, self.listing.store_uuid);
            // At home in its guest's memory, wherever the store is.
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

    /// Refuses to go on if an object was committed to since it was moved. Nobody has one open now.
    fn refuse_changes(&self) -> Result<()> {
        for ((name, found), moved) in self.listing.objects.iter().zip(&self.sequences) {
            let image = open_found(self.scan, &self.listing, (name, found))?;
            if image.superblock().commit_sequence != *moved {
                return Err(Error::Busy {
                    what: format!("store {}", self.report.directory.display()),
                    holder: format!("object `{name}` was changed while the store was moved"),
                });
            }
        }
        Ok(())
    }

    /// Makes the new store; it stays locked for as long as what is given back lives.
    fn fill(&mut self, made: &Sibling) -> Result<Arc<dyn crate::storage::File>> {
        let storage = Arc::clone(self.options.storage());
        let lock = storage.open(&made.path.join(ADDRESSES), OpenMode::CreateNew)?;
        lock_byte(&*lock, LockKind::Exclusive, 0, Duration::ZERO, "the new store")?;
        for folder in [OBJECTS, BUILDING, &made.name] {
            storage.create_directory(&made.path.join(folder))?;
        }
        let objects = made.path.join(OBJECTS);
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
        // Noted for the store's own directory, when it is there.
        let options = self.options.store.clone().arena_registry(None);
        write_catalog(&made.path, &options, contents)?;
        // Last, so that what a host does meanwhile has the least time to be missed.
        host_tables::copy(&*storage, &self.report.directory, &made.path)?;
        for folder in [objects, made.path.clone()] {
            storage.sync_directory(&folder)?;
        }
        Ok(lock)
    }

    /// The old place stays the store's own, should it go back there.
    fn note_places(&self) {
        let mut places = self.report.from.clone();
        places.extend(
            self.listing
                .arenas
                .iter()
                .filter_map(|arena| self.moves.of(arena.base).map(|base| (base, arena.length))),
        );
        note_arenas(&self.options.store, &self.report.directory, &places);
    }
}

/// Takes the last rebase of a store back: its old files take their place again, byte for byte.
///
/// # Errors
/// `NothingKept` when there are no old files, `Busy` when somebody has the store open; without
/// `force`, `ChangedSince` when something was committed since the rebase, which would be lost. The
/// store is as it was then.
///
/// ```
/// use evermap::{Error, Store, tools};
/// # let directory = tempfile::tempdir()?;
/// let path = directory.path().join("store");
/// Store::create_new(&path)?.create::<u64, _>("answer", 42)?;
/// tools::rebase(&path, &tools::RebaseOptions::new())?;
/// tools::undo_rebase(&path, false)?;
/// assert_eq!(*Store::open(&path)?.read::<u64>("answer")?, 42);
/// assert!(matches!(tools::undo_rebase(&path, false), Err(Error::NothingKept { .. })));
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
    note_arenas(&options.store, &directory, &arenas);
    Ok(UndoReport { directory, undone: name, arenas })
}

/// The old files leave an empty directory in the store and change places with it: the same two
/// states as those of a rebase after its exchange and before it, in this order; see [`swap`].
fn go_back(storage: &dyn Storage, directory: &Path, sibling: &Sibling) -> Result<()> {
    if !storage.exchange(&directory.join(&sibling.name), &sibling.path)? {
        let why = format!("the file system of {} cannot exchange directories", directory.display());
        return Err(Error::Unsupported { why });
    }
    storage.sync_directory(directory)?;
    sibling.exchange(storage, directory)?;
    sibling.remove(storage)
}

/// What was committed to the store since its old files were put aside.
fn changed_since(
    directory: &Path,
    kept: &Path,
    old: &Listing,
    options: &RebaseOptions,
) -> Result<Option<String>> {
    let storage = options.storage();
    let catalog = catalog_image(&**storage, directory)?;
    // A catalog that was made anew is at its first commit.
    if catalog.superblock().commit_sequence > 1 {
        return Ok(Some("objects were made, removed, renamed or grown".to_string()));
    }
    if let Some(name) = host_tables::differing(&**storage, directory, kept)? {
        return Ok(Some(format!("a sandbox's host changed {name}")));
    }
    let now = read_listing(&catalog)?;
    let (scan, old_scan) =
        (Scan::new(directory, &options.check)?, Scan::new(kept, &options.check)?);
    for (name, found) in &now.objects {
        let Some((_, before)) = old.objects.iter().find(|(_, f)| f.uuid == found.uuid) else {
            return Ok(Some(format!("object `{name}` was made")));
        };
        let sequence = |scan, listing, found| -> Result<u64> {
            Ok(open_found(scan, listing, (name, found))?.superblock().commit_sequence)
        };
        if sequence(&scan, &now, found)? != sequence(&old_scan, old, before)? {
            return Ok(Some(format!("object `{name}` was changed")));
        }
    }
    Ok(None)
}
