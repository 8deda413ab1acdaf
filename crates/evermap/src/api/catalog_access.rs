//! Reading and changing the catalog while other processes do the same.
//!
//! Readers hold the catalog's content lock for the moment of a look-up and copy out what they need;
//! their mapping stays between look-ups and is renewed when the catalog has moved on. Changes are
//! short sessions under the exclusive lock, each one commit. The catalog's log is permanent, so
//! such a session costs one flush; it is emptied now and then, and when a store is closed.

use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use super::leases::LeaseBook;
use crate::address::AddressSpace;
use crate::catalog::{self, Arena, Catalog, Lease};
use crate::commit::{Log, LogPolicy, LogPosition, WriteOptions};
use crate::error::{Error, Result};
use crate::format::{COMMIT_SEQUENCE_OFFSET, KIND_CATALOG};
use crate::object::{
    Addresses, CONTENT_BYTE, Environment, Identity, LogSource, ObjectPaths, Reader, Writer,
    lease_of, lock_byte, read_superblock,
};
use crate::persist::{Mut, type_description};
use crate::storage::{File, LockKind, OpenMode, Storage};
use std::time::Duration;

/// Bytes of log after which a catalog change is followed by a checkpoint. Who opens the store reads
/// the log: a hundred records cost it 300 us, a checkpoint costs two flushes.
const CHECKPOINT_AFTER_BYTES: u64 = 32 * 1024;

/// The catalog of one open store, as this process knows it.
pub(super) struct CatalogAccess {
    environment: Environment,
    paths: ObjectPaths,
    /// For locks and for finding out whether anything changed.
    file: Arc<dyn File>,
    log_file: Arc<dyn File>,
    reader: Option<Reader>,
    timeout: Duration,
    own_addresses: Arc<CatalogAddresses>,
    book: Arc<LeaseBook>,
    /// The commit whose pages this process has compared with their checksums, or has made of one
    /// that it had, and where the log stood then: no page has changed as long as that is the last.
    verified: Option<(u64, LogPosition)>,
    /// This process has had the log replayed once.
    replayed: bool,
    /// This process changed the catalog and may owe it a checkpoint.
    pub(super) changed: bool,
}

/// A commit of the catalog, as it was looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct CatalogVersion {
    sequence: u64,
    pub(super) position: LogPosition,
}

impl CatalogVersion {
    pub(super) fn of(reader: &Reader) -> CatalogVersion {
        let sequence = reader.superblock().commit_sequence;
        CatalogVersion { sequence, position: reader.log_position() }
    }
}

/// Tells whether the catalog has changed, without locking it and without waiting for who does.
#[derive(Debug)]
pub(super) struct CatalogWatch {
    log_file: Arc<dyn File>,
}

impl CatalogWatch {
    /// Was this the last commit when it was asked? Every change is a record of the log before it
    /// is seen anywhere else. Two small reads; false also when nobody knows.
    pub(super) fn is_last(&self, version: CatalogVersion) -> bool {
        let CatalogVersion { sequence, position } = version;
        Log::stands_at(&*self.log_file, position, sequence).unwrap_or(false)
    }
}

/// Where the catalog itself gets addresses from when it outgrows its region.
struct CatalogAddresses {
    book: Arc<LeaseBook>,
    arenas: Mutex<Vec<Arena>>,
}

impl Addresses for CatalogAddresses {
    fn lease(&self, bytes: u64) -> Result<u64> {
        let arenas = self.arenas.lock().unwrap_or_else(PoisonError::into_inner);
        self.book.take_above(&arenas, bytes)?.ok_or_else(|| Error::OutOfAddresses {
            what: "the catalog".to_string(),
            bytes,
            why: "every arena is used up to its end".to_string(),
        })
    }

    fn give_up(&self, base: u64, bytes: u64) {
        self.book.give_up(&[Lease { base, bytes }]);
    }
}

/// Unlocks the catalog's content when a look-up ends, however it ends.
struct ContentLock<'a>(&'a dyn File);

impl Drop for ContentLock<'_> {
    fn drop(&mut self) {
        let _ = self.0.unlock(CONTENT_BYTE, 1);
    }
}

/// What the file of every catalog says of itself.
const IDENTITY: Identity = Identity { store_uuid: None, object_uuid: None, kind: KIND_CATALOG };

impl CatalogAccess {
    /// Opens the catalog's files; the first look-up maps it.
    pub(super) fn open(
        storage: Arc<dyn Storage>,
        space: Arc<AddressSpace>,
        book: Arc<LeaseBook>,
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
        let own_addresses =
            Arc::new(CatalogAddresses { book: Arc::clone(&book), arenas: Mutex::default() });
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
            book,
            verified: None,
            replayed: false,
            changed: false,
        })
    }

    /// For asking whether it has changed.
    pub(super) fn watch(&self) -> CatalogWatch {
        CatalogWatch { log_file: Arc::clone(&self.log_file) }
    }

    /// Checks page 0 as of the last commit, without mapping anything.
    ///
    /// # Errors
    /// `Damaged`, and other errors of opening a catalog.
    pub(super) fn check_page_0(&self) -> Result<()> {
        lock_byte(
            &*self.file,
            LockKind::Shared,
            CONTENT_BYTE,
            self.timeout,
            &self.paths.display_name,
        )?;
        let _lock = ContentLock(&*self.file);
        read_superblock(&*self.file, LogSource::File(&self.log_file), &IDENTITY).map(drop)
    }

    /// Calls `look` with the catalog as of its last commit.
    ///
    /// Costs two system calls for the lock and three small reads when nothing changed.
    pub(super) fn look<R>(&mut self, look: impl FnOnce(&Catalog, &Reader) -> R) -> Result<R> {
        let file = Arc::clone(&self.file);
        let timeout = self.timeout;
        lock_byte(&*file, LockKind::Shared, CONTENT_BYTE, timeout, &self.paths.display_name)?;
        let _lock = ContentLock(&*file);
        if !self.is_current()? {
            self.reader = None;
        }
        let reader = match self.reader.take() {
            Some(reader) => reader,
            None => {
                let file = Arc::clone(&self.file);
                let log = LogSource::File(&self.log_file);
                let reader = Reader::from_locked(&self.environment, &self.paths, file, log)?;
                let seen = (reader.superblock().commit_sequence, reader.log_position());
                // Its pointers are about to be followed, whoever opens the store: a damaged page has
                // to be found before. The catalog is small (some 20 us for a few objects).
                if self.verified != Some(seen) {
                    reader.verify_mapped()?;
                    check_type(&reader, &self.paths)?;
                    self.verified = Some(seen);
                }
                reader
            }
        };
        // SAFETY: the type id was checked, so the root is a `Catalog`; the mapping lives in
        // `reader` and its pages do not change while the content lock is held.
        let catalog = unsafe { &*(reader.superblock().root_address as *const Catalog) };
        for arena in catalog.arenas.iter() {
            self.environment.space.reserve(arena.base, arena.length)?;
        }
        let result = look(catalog, &reader);
        self.reader = Some(reader);
        Ok(result)
    }

    /// Changes the catalog in one durable commit; nothing is changed when `change` fails.
    pub(super) fn change<R>(
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
            // SAFETY: the type id was checked when the catalog was first looked at, and the
            // identity of the file since; the writer has the object to itself.
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
        // After a flush that failed the kernel takes pages for clean that never reached the disk:
        // the next change writes them anew from the log.
        writer.commit().inspect_err(|_| self.replayed = false)?;
        // A disk that was full half-way through page 0 may have left its sequence number and not
        // the rest: the log has it.
        self.replayed &= writer.is_applied();
        self.book.give_up(&own);
        if writer.log_bytes() > CHECKPOINT_AFTER_BYTES {
            writer.checkpoint().inspect_err(|_| self.replayed = false)?;
        }
        self.verified = Some(writer.position());
        Ok(result)
    }

    /// Empties the log if nobody else is using the catalog right now.
    pub(super) fn checkpoint(&mut self) -> Result<()> {
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

    /// Does the mapping show the last commit?
    fn is_current(&self) -> Result<bool> {
        let Some(reader) = &self.reader else {
            return Ok(false);
        };
        let superblock = reader.superblock();
        let mut stored = [0; 8];
        self.file.read_at(&mut stored, COMMIT_SEQUENCE_OFFSET)?;
        let sequence = superblock.commit_sequence;
        Ok(u64::from_le_bytes(stored) <= sequence
            && !Log::moved_since(
                &*self.log_file,
                superblock.object_uuid,
                reader.log_position(),
                sequence,
            )?)
    }
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

/// The addresses of the catalog's own regions.
pub(super) fn own_leases(reader: &Reader) -> Vec<Lease> {
    let regions = reader.superblock().regions().iter();
    regions.map(lease_of).map(|(base, bytes)| Lease { base, bytes }).collect()
}
