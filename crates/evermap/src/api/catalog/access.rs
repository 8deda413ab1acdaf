//! Reading and changing the catalog while other processes do the same.
//!
//! Readers hold the catalog's content lock only during a look-up and copy out what they need. Their
//! mapping stays between look-ups and is renewed after the catalog has changed. Each change is a
//! short session of one commit, under the exclusive lock. A session neither creates nor removes the
//! catalog's log ([`LogPolicy::Permanent`]), so it costs one flush. A checkpoint empties the log
//! when it has become long, and when a store is closed.

use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::warn;

use crate::address::AddressSpace;
use crate::api::addresses::leases::LeaseTable;
use crate::catalog::{self, Arena, Catalog, Found, Lease};
use crate::commit::{Log, LogPolicy, LogPosition, WriteOptions};
use crate::error::{Error, Result};
use crate::format::{KIND_CATALOG, RegionRecord, Superblock};
use crate::object::{
    Addresses, CONTENT_BYTE, Environment, Identity, LogSource, ObjectPaths, Reader, Writer,
    check_arena, lease_of, lock_byte, read_superblock,
};
use crate::persist::{Mut, type_description};
use crate::storage::{File, LockKind, OpenMode, Storage};
use std::time::Duration;

/// Log size above which a catalog change is followed by a checkpoint. Opening a store reads the
/// log: a hundred records cost 300 us. A checkpoint costs two flushes.
const CHECKPOINT_AFTER_BYTES: u64 = 32 * 1024;

/// The catalog of one open store, as this process knows it.
pub(in crate::api) struct CatalogAccess {
    environment: Environment,
    paths: ObjectPaths,
    /// Used for locks, and to check whether the catalog changed.
    file: Arc<dyn File>,
    log_file: Arc<dyn File>,
    reader: Option<Reader>,
    timeout: Duration,
    own_addresses: Arc<CatalogAddresses>,
    lease_table: Arc<LeaseTable>,
    /// Last commit of which this process verified every page, and the log position after it. A
    /// commit that it made itself on top of a verified one counts as verified. While no other
    /// commit follows, no page has changed, so none is verified again.
    verified: Option<(u64, LogPosition)>,
    /// True if this process has replayed the log. Cleared when a commit is not applied, or when a
    /// commit or checkpoint fails.
    replayed: bool,
    /// True if this process changed the catalog. It then checkpoints the log at the end.
    pub(in crate::api) changed: bool,
}

/// Commit of the catalog that a look-up used.
#[derive(Clone, Copy, Debug)]
pub(in crate::api) struct CatalogVersion {
    sequence: u64,
    pub(in crate::api) position: LogPosition,
}

impl CatalogVersion {
    pub(in crate::api) fn of(reader: &Reader) -> CatalogVersion {
        let sequence = reader.superblock().commit_sequence;
        CatalogVersion { sequence, position: reader.log_position() }
    }
}

/// Checks whether the catalog has changed, without taking or waiting for its lock.
#[derive(Debug)]
pub(in crate::api) struct CatalogWatch {
    log_file: Arc<dyn File>,
}

impl CatalogWatch {
    /// Returns true if `version` is still the last commit. Every change is written to the log
    /// before it is visible elsewhere. Costs two small reads. Returns false if the reads fail.
    pub(in crate::api) fn is_last(&self, version: CatalogVersion) -> bool {
        let CatalogVersion { sequence, position } = version;
        Log::stands_at(&*self.log_file, position, sequence).unwrap_or(false)
    }
}

/// Source of addresses for the catalog itself when it outgrows its region.
struct CatalogAddresses {
    lease_table: Arc<LeaseTable>,
    arenas: Mutex<Vec<Arena>>,
}

impl Addresses for CatalogAddresses {
    fn lease(&self, bytes: u64) -> Result<u64> {
        let arenas = self.arenas.lock().unwrap_or_else(PoisonError::into_inner);
        self.lease_table.take_above(&arenas, bytes)?.ok_or_else(|| Error::OutOfAddresses {
            what: "the catalog".to_string(),
            bytes,
            why: "every arena is used up to its end".to_string(),
        })
    }

    fn release(&self, base: u64, bytes: u64) {
        self.lease_table.release(&[Lease { base, bytes }]);
    }
}

/// Guard that unlocks the catalog's content at the end of a look-up.
struct ContentLock<'a>(&'a dyn File);

impl Drop for ContentLock<'_> {
    fn drop(&mut self) {
        let _ = self.0.unlock(CONTENT_BYTE, 1);
    }
}

/// Identity stored in the file of every catalog.
const IDENTITY: Identity = Identity { store_uuid: None, object_uuid: None, kind: KIND_CATALOG };

impl CatalogAccess {
    /// Opens the catalog's log. The first look-up maps the catalog.
    pub(in crate::api) fn open(
        storage: Arc<dyn Storage>,
        space: Arc<AddressSpace>,
        lease_table: Arc<LeaseTable>,
        file: Arc<dyn File>,
        log_path: PathBuf,
        timeout: Duration,
    ) -> Result<CatalogAccess> {
        let path = file.path().to_path_buf();
        let log_file = storage.open(&log_path, OpenMode::Read).map_err(|e| {
            if !e.is_missing_file() {
                return e;
            }
            Error::LogMissing { path: path.clone(), log: log_path.clone() }
        })?;
        let own_addresses = Arc::new(CatalogAddresses {
            lease_table: Arc::clone(&lease_table),
            arenas: Mutex::default(),
        });
        let addresses: Arc<dyn Addresses> = own_addresses.clone();
        Ok(CatalogAccess {
            environment: Environment { storage, space, addresses, guest: None },
            paths: ObjectPaths {
                path,
                log_path,
                identity: IDENTITY,
                display_name: "the catalog".to_string(),
            },
            file,
            log_file,
            reader: None,
            timeout,
            own_addresses,
            lease_table,
            verified: None,
            replayed: false,
            changed: false,
        })
    }

    /// Returns a handle that checks whether the catalog has changed.
    pub(in crate::api) fn watch(&self) -> CatalogWatch {
        CatalogWatch { log_file: Arc::clone(&self.log_file) }
    }

    /// Calls `read` with the catalog as of its last commit, after comparing all of its pages with
    /// their checksums, once for each commit.
    ///
    /// Costs two system calls for the lock and a small read if nothing changed.
    pub(in crate::api) fn read<R>(
        &mut self,
        read: impl FnOnce(&Catalog, &Reader) -> R,
    ) -> Result<R> {
        self.with_reader(|reader, verified| {
            let seen = (reader.superblock().commit_sequence, reader.log_position());
            if *verified != Some(seen) {
                reader.verify_mapped()?;
                *verified = Some(seen);
            }
            Ok(read(root(reader), reader))
        })
    }

    /// Calls `read` with the entry of a name as of the catalog's last commit. Compares only the
    /// pages that this reads with their checksums, so the cost does not depend on the number of
    /// objects.
    pub(in crate::api) fn find<R>(
        &mut self,
        name: &str,
        read: impl FnOnce(Option<Found>, &Reader) -> Result<R>,
    ) -> Result<R> {
        self.with_reader(|reader, _| {
            verify_root(reader)?;
            let found = root(reader)
                .find_verified(name, |address, bytes| verify(reader, address, bytes))?;
            read(found, reader)
        })
    }

    /// Returns the superblock of the catalog's last commit.
    pub(in crate::api) fn superblock(&mut self) -> Result<Box<Superblock>> {
        self.with_reader(|reader, _| Ok(Box::new(*reader.superblock())))
    }

    /// Maps the last commit, if the mapped one is older, and calls `read` while it is locked.
    fn with_reader<R>(
        &mut self,
        read: impl FnOnce(&Reader, &mut Option<(u64, LogPosition)>) -> Result<R>,
    ) -> Result<R> {
        let file = Arc::clone(&self.file);
        let timeout = self.timeout;
        lock_byte(&*file, LockKind::Shared, CONTENT_BYTE, timeout, &self.paths.display_name)?;
        let _lock = ContentLock(&*file);
        if !self.is_current()? {
            self.reader = None;
        }
        let reader = match self.reader.take() {
            Some(reader) => reader,
            None => self.map()?,
        };
        let result = read(&reader, &mut self.verified);
        self.reader = Some(reader);
        result
    }

    /// Maps the last commit and reserves the store's arenas. The caller holds the content lock.
    fn map(&self) -> Result<Reader> {
        let file = Arc::clone(&self.file);
        let loaded = read_superblock(&*file, LogSource::File(&self.log_file), &IDENTITY)?;
        let first = &loaded.superblock;
        check_arena(file.path(), first)?;
        self.environment.space.reserve(first.arena_base, first.arena_length)?;
        let reader = Reader::from_locked(&self.environment, &self.paths, file, loaded)?;
        check_type(&reader, &self.paths)?;
        verify_root(&reader)?;
        let arenas = root(&reader).arenas.as_slice();
        verify(&reader, arenas.as_ptr().addr() as u64, size_of_val(arenas))?;
        for arena in arenas {
            self.environment.space.reserve(arena.base, arena.length)?;
        }
        Ok(reader)
    }

    /// Changes the catalog in one durable commit. Changes nothing if `change` fails.
    ///
    /// # Errors
    /// After `DurabilityUnknown`, the catalog may have the change. After any other error it does
    /// not.
    pub(in crate::api) fn change<R>(
        &mut self,
        change: impl FnOnce(Mut<'_, Catalog>) -> Result<R>,
    ) -> Result<R> {
        self.reader = None;
        let mut writer = self.write()?;
        if self.verified.take() != Some(writer.position()) {
            writer.verify()?;
        }
        let before = writer.position();
        let root = root_of(&writer)?;
        {
            // SAFETY: the first look-up checked the type id, and opening the writer checked the
            // file's identity. The writer has exclusive access to the object.
            let mut catalog = unsafe { Mut::from_raw(writer.heap(), root) };
            let arenas: Vec<Arena> = catalog.fields().arenas.iter().copied().collect();
            *self.own_addresses.arenas.lock().unwrap_or_else(PoisonError::into_inner) = arenas;
        }
        // SAFETY: as above.
        let changed = change(unsafe { Mut::from_raw(writer.heap(), root) });
        let result = changed.inspect_err(|_| self.verified = Some(before))?;
        let own: Vec<Lease> =
            writer.new_leases().iter().map(|&(base, bytes)| Lease { base, bytes }).collect();
        for lease in &own {
            // SAFETY: as above.
            catalog::raise_high_water(unsafe { Mut::from_raw(writer.heap(), root) }, lease);
        }
        self.changed = true;
        // After a failed flush, the kernel marks pages clean that never reached the disk. The next
        // change writes them again from the log.
        writer.commit().inspect_err(|_| self.replayed = false)?;
        // If the disk filled up in the middle of page 0, the page may have the new sequence number
        // but not the rest. The log has the whole page, so the next change replays it.
        self.replayed &= writer.is_applied();
        self.lease_table.release(&own);
        if writer.log_bytes() > CHECKPOINT_AFTER_BYTES
            && let Err(error) = writer.checkpoint()
        {
            // The commit is complete, so an error would make the caller undo what the catalog has.
            warn!(%error, "cannot checkpoint the catalog after a change");
            self.replayed = false;
            return Ok(result);
        }
        self.verified = Some(writer.position());
        Ok(result)
    }

    /// Empties the log. Fails with `Busy`, without waiting, if another process uses the catalog.
    pub(in crate::api) fn checkpoint(&mut self) -> Result<()> {
        self.reader = None;
        self.timeout = Duration::ZERO;
        self.write()?.checkpoint().map(drop)
    }

    fn write(&mut self) -> Result<Writer> {
        let policy = LogPolicy::Permanent { applied: self.replayed };
        let settings = WriteOptions::default();
        let writer = Writer::open(&self.environment, &self.paths, policy, &settings, self.timeout)?;
        self.replayed = true;
        Ok(writer)
    }

    /// Returns true if the mapping shows the last commit.
    fn is_current(&self) -> Result<bool> {
        let Some(reader) = &self.reader else {
            return Ok(false);
        };
        let sequence = reader.superblock().commit_sequence;
        Log::stands_at(&*self.log_file, reader.log_position(), sequence)
    }
}

/// Returns the root. Its pages must have been verified before a field is read.
fn root(reader: &Reader) -> &Catalog {
    // SAFETY: the type id was checked when `reader` was mapped, so the root is a `Catalog`, whose
    // place the superblock's check found to be inside a region. The mapping lives in `reader`, and
    // its pages do not change while the content lock is held.
    unsafe { &*(reader.superblock().root_address as *const Catalog) }
}

fn verify_root(reader: &Reader) -> Result<()> {
    verify(reader, reader.superblock().root_address, size_of::<Catalog>())
}

/// Compares the pages of a range that is about to be read with their checksums, whatever `Verify`
/// says: a look-up follows pointers. A catalog of an early build has no checksums.
fn verify(reader: &Reader, address: u64, bytes: usize) -> Result<()> {
    let bytes = bytes as u64;
    if reader.verify_range(address, bytes)? {
        return Ok(());
    }
    let holds = |region: &RegionRecord| {
        address >= region.base
            && address.checked_add(bytes).is_some_and(|end| end <= region.base + region.length)
    };
    if reader.regions().iter().any(holds) {
        return Ok(());
    }
    Err(Error::Damaged {
        path: reader.file().path().to_path_buf(),
        what: "a pointer",
        found: format!("{address:#x} and {bytes} bytes"),
        expected: "an address inside the catalog".to_string(),
    })
}

fn root_of(writer: &Writer) -> Result<NonNull<Catalog>> {
    NonNull::new(writer.superblock().root_address as *mut Catalog).ok_or_else(|| Error::Damaged {
        path: writer.file().path().to_path_buf(),
        what: "the root",
        found: "no root".to_string(),
        expected: "the catalog".to_string(),
    })
}

fn check_type(reader: &Reader, paths: &ObjectPaths) -> Result<()> {
    let superblock = reader.superblock();
    if superblock.root_type_id == Catalog::TYPE_ID {
        return Ok(());
    }
    Err(Error::NewerFormat {
        path: paths.path.clone(),
        found: format!("a catalog of type {}", superblock.schema()),
        known: type_description::<Catalog>().to_string(),
    })
}

/// Returns the addresses of the catalog's own regions.
pub(in crate::api) fn own_leases(reader: &Reader) -> Vec<Lease> {
    let regions = reader.superblock().regions().iter();
    regions.map(lease_of).map(|(base, bytes)| Lease { base, bytes }).collect()
}
