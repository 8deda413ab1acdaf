//! The harness's only interface to the engine: creates, opens, commits and closes an object.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::disk::SimulatedDisk;
use super::model::Stamp;
use super::state;
use crate::address::AddressSpace;
use crate::alloc::{Heap, statistics_of};
use crate::commit::{LogPolicy, WriteOptions, locks};
use crate::error::{Error, Result};
use crate::format::{KIND_OBJECT, PAGE_BYTES, Superblock};
use crate::object::{
    Addresses, Draft, DraftOptions, Environment, Identity, Loaded, LogSource, ObjectPaths, Reader,
    RootType, Writer, lease_of, read_superblock,
};
use crate::storage::{File, LockKind, OpenMode};

pub(super) const BUILDING: &str = "/store/building";
pub(super) const OBJECTS: &str = "/store/objects";
const NEW_OBJECT: &str = "/store/building/object";
pub(super) const OBJECT: &str = "/store/objects/object";
pub(super) const LOG: &str = "/store/objects/object.log";

/// Below every store's window, split among the workers.
const ARENAS_BASE: u64 = 0x1000_0000_0000;
const ARENA_BYTES: u64 = 1 << 30;

/// Number of arenas taken so far. Tests run in threads of one process.
static ARENAS: AtomicU64 = AtomicU64::new(0);

/// Addresses for one object at a time, reused by one thread.
pub(super) struct Worker {
    space: Arc<AddressSpace>,
    leases: Arc<Leases>,
    base: u64,
    /// UUID of the objects that this worker creates.
    pub(super) uuid: [u8; 16],
}

/// Hands out addresses after those that the object uses.
struct Leases {
    next: AtomicU64,
}

impl Addresses for Leases {
    fn lease(&self, bytes: u64) -> Result<u64> {
        Ok(self.next.fetch_add(bytes, Ordering::Relaxed))
    }

    fn release(&self, _base: u64, _bytes: u64) {}
}

impl Worker {
    pub(super) fn new() -> Worker {
        let base = ARENAS_BASE + ARENAS.fetch_add(1, Ordering::Relaxed) * ARENA_BYTES;
        let space = AddressSpace::new("the simulation");
        space.reserve(base, ARENA_BYTES).unwrap();
        Worker {
            space,
            leases: Arc::new(Leases { next: AtomicU64::new(base) }),
            base,
            uuid: [7; 16],
        }
    }

    fn environment(&self, disk: &SimulatedDisk) -> Environment {
        let addresses: Arc<dyn Addresses> = self.leases.clone();
        Environment {
            storage: disk.storage(),
            space: Arc::clone(&self.space),
            addresses,
            guest: None,
        }
    }
}

/// Opens the object from whichever of its two directories contains the file, as a store does. The
/// rename from one to the other is not flushed.
fn with_paths<R>(open: impl Fn(&ObjectPaths) -> Result<R>) -> Result<R> {
    let paths = ObjectPaths {
        path: PathBuf::from(OBJECT),
        log_path: PathBuf::from(LOG),
        identity: Identity { store_uuid: None, object_uuid: None, kind: KIND_OBJECT },
        display_name: "the simulated object".to_string(),
    };
    match open(&paths) {
        Err(e) if e.is_missing_file() => {
            open(&ObjectPaths { path: PathBuf::from(NEW_OBJECT), ..paths })
        }
        other => other,
    }
}

/// Creates the object as a store does: builds and flushes it in another directory, calls `named`
/// where a store would add it to its catalog, and then moves it into place.
pub(super) fn make(
    worker: &Worker,
    disk: &SimulatedDisk,
    (expected_bytes, permanent_log): (u64, bool),
    build: impl FnOnce(&Heap, u64) -> Result<()>,
    named: impl FnOnce(),
) -> Result<()> {
    worker.leases.next.store(worker.base, Ordering::Relaxed);
    let environment = worker.environment(disk);
    let path = Path::new(NEW_OBJECT);
    let options = DraftOptions {
        name: "object".to_string(),
        object_uuid: worker.uuid,
        kind: KIND_OBJECT,
        arena: (worker.base, ARENA_BYTES),
        expected_bytes: Some(expected_bytes),
        ..DraftOptions::default()
    };
    let mut draft = Draft::create(&environment, path, &options)?;
    let root = draft.place_root(RootType {
        bytes: state::ROOT_BYTES,
        align: 8,
        type_id: [3; 16],
        schema: "simulated state",
    })?;
    build(draft.heap(), root.as_ptr() as u64)?;
    draft.finish(&environment, permanent_log.then_some(Path::new(LOG)))?;
    draft.published();
    draft.file().sync_data()?;
    let storage = &environment.storage;
    storage.sync_directory(Path::new(BUILDING))?;
    named();
    storage.rename(path, Path::new(OBJECT))
}

/// The object, open for writing.
pub(super) struct Session(Writer);

impl Session {
    pub(super) fn open(
        worker: &Worker,
        disk: &SimulatedDisk,
        options: &WriteOptions,
        policy: LogPolicy,
    ) -> Result<Session> {
        let environment = worker.environment(disk);
        let writer =
            with_paths(|paths| Writer::open(&environment, paths, policy, options, Duration::ZERO))?;
        let ends =
            writer.superblock().regions().iter().map(lease_of).map(|(base, bytes)| base + bytes);
        worker.leases.next.store(ends.max().unwrap_or(worker.base), Ordering::Relaxed);
        Ok(Session(writer))
    }

    pub(super) fn root(&self) -> u64 {
        self.0.superblock().root_address
    }

    pub(super) fn heap(&self) -> &Heap {
        self.0.heap()
    }

    /// Verifies the state. Nothing may have changed since the last commit.
    pub(super) fn verify(&self) -> Result<Stamp, String> {
        // SAFETY: the session has its regions mapped and exclusive access to them.
        let bytes = unsafe { state::mapped(self.0.superblock().regions()) };
        state::verify(self.root(), Some(self.0.statistics().blocks), bytes)
    }

    pub(super) fn commit(&mut self) -> Result<bool> {
        self.0.commit()
    }

    /// Returns true if the object file contains every commit.
    pub(super) fn is_applied(&self) -> bool {
        self.0.is_applied()
    }

    pub(super) fn rollback(&mut self) -> Result<()> {
        self.0.rollback()
    }

    /// Returns false if readers prevent the checkpoint.
    pub(super) fn checkpoint(&mut self) -> Result<bool> {
        self.0.checkpoint()
    }

    pub(super) fn shrink(&mut self) -> Result<()> {
        self.0.shrink().map(drop)
    }

    pub(super) fn release(&mut self) -> Result<()> {
        self.0.release(u64::MAX).map(drop)
    }

    pub(super) fn sync(&mut self) -> Result<()> {
        self.0.sync()
    }

    pub(super) fn close(&mut self) -> Result<()> {
        self.0.close()
    }
}

/// The object, open for reading.
pub(super) struct ReadSession(Reader);

impl ReadSession {
    /// Opens the object and verifies it.
    pub(super) fn verify(worker: &Worker, disk: &SimulatedDisk) -> Result<Result<Stamp, String>> {
        let look = ReadSession::open(worker, disk)?;
        match look.pages() {
            Err(damage @ Error::Damaged { .. }) => Ok(Err(damage.to_string())),
            other => other.map(|()| look.state()),
        }
    }

    /// Verifies all pages against their checksums.
    pub(super) fn pages(&self) -> Result<()> {
        self.0.verify()
    }

    /// Verifies the state and returns its stamp.
    pub(super) fn state(&self) -> Result<Stamp, String> {
        let superblock = self.0.superblock();
        let (root, regions) = (superblock.root_address, superblock.regions());
        // SAFETY: the reader has the regions of its superblock mapped, and no thread writes there.
        let (blocks, bytes) = unsafe { (statistics_of(regions).blocks, state::mapped(regions)) };
        state::verify(root, Some(blocks), bytes)
    }

    pub(super) fn open(worker: &Worker, disk: &SimulatedDisk) -> Result<ReadSession> {
        let environment = worker.environment(disk);
        with_paths(|paths| Reader::open(&environment, paths)).map(ReadSession)
    }
}

/// Simulates a reader in another process: it holds the locks, keeps copies of the pages that the
/// log changed, and reads the other pages from the file at each check.
pub(super) struct SimulatedReader {
    file: Arc<dyn File>,
    superblock: Box<Superblock>,
    patched: BTreeMap<u64, Page>,
}

type Page = [u8; PAGE_BYTES as usize];

impl SimulatedReader {
    /// Opens the object as a reader does. Returns `None` while the log is being reset; a real
    /// reader waits.
    pub(super) fn open(disk: &SimulatedDisk) -> Result<Option<SimulatedReader>> {
        let storage = disk.storage();
        with_paths(|paths| {
            let file = storage.open(&paths.path, OpenMode::Read)?;
            locks::begin_reading(&*file, &paths.display_name)?;
            if !file.try_lock(LockKind::Shared, locks::LOG_BYTE, 1)? {
                return Ok(None);
            }
            let source = LogSource::Path(&*storage, &paths.log_path, OpenMode::Read);
            let Loaded { superblock, overlay, .. } =
                read_superblock(&*file, source, &paths.identity)?;
            let mut patched = BTreeMap::new();
            for number in overlay.page_numbers() {
                let mut page = [0; PAGE_BYTES as usize];
                file.read_at(&mut page, number * PAGE_BYTES)?;
                overlay.patch(number, &mut page);
                patched.insert(number, page);
            }
            file.unlock(locks::LOG_BYTE, 1)?;
            Ok(Some(SimulatedReader { file, superblock, patched }))
        })
    }

    /// Verifies the state that this reader sees now.
    pub(super) fn look(&self) -> Result<Result<Stamp, String>> {
        let regions = self.superblock.regions();
        let mut contents = Vec::new();
        for region in regions {
            let mut bytes = vec![0; region.length as usize];
            self.file.read_at(&mut bytes, region.file_offset)?;
            let first = region.file_offset / PAGE_BYTES;
            for (number, page) in self.patched.range(first..first + region.length / PAGE_BYTES) {
                let at = ((number - first) * PAGE_BYTES) as usize;
                bytes[at..at + page.len()].copy_from_slice(page);
            }
            contents.push(bytes);
        }
        Ok(state::verify(self.superblock.root_address, None, |address, length| {
            let (region, at) = state::find(regions, address, length)?;
            contents[region].get(at..at + length)
        }))
    }
}
