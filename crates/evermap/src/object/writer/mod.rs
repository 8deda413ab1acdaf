//! One writer's session with an object: maps the last commit privately and makes the next one.
//!
//! A [`Writer`] owns the writer lock, the engine, the heap and the region set, and keeps them in
//! step. The superblock in memory is the one that the next commit writes. Protected memory is
//! stored to only between [`opened`] and the drop of its result. `space` reserves and returns disk
//! space.

mod space;

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::acquire::{Acquired, acquire, cut_dead_growth};
use super::code::{Code, Loaded as LoadedCode};
use super::foreign::{ForeignCheck, ForeignPointer};
use super::inherit::{Inherited, MemoryInChild};
use super::map::{ObjectMap, RegionMap};
use super::protector::{ActiveProtection, Opened, Protection, Protector};
use super::region_set::RegionSet;
use super::superblock::hex;
use super::verification::{BackgroundVerification, FileChanges, verify_now};
use super::{Environment, ObjectPaths};
use crate::address::{AccessKey, AddressSpace};
use crate::alloc::{Heap, HeapStatistics};
use crate::at_fork;
use crate::commit::{
    Engine, ForeignPointers, Growth, LogPolicy, LogPosition, Overlay, Suspects, Target,
    WriteOptions, WriterKind,
};
use crate::error::{Error, Result};
use crate::format::{FEATURE_HOLES, PAGE_BYTES, ROOT_AREA_OFFSET, Superblock};
use crate::mutate::{Mutant, mutated};
use crate::storage::File;

/// An object open for writing. Holds the writer lock while it lives; dropping it discards
/// uncommitted changes.
pub(crate) struct Writer {
    heap: Heap,
    region_set: Arc<RegionSet>,
    /// Gives forked children the memory as of the fork.
    in_children: Option<Inherited>,
    /// Write-protects the memory except while a scope is open.
    protector: Option<Arc<Protector>>,
    /// Superblock as the next commit will write it, except for lengths and sequence.
    superblock: Box<Superblock>,
    grew: bool,
    /// Room was reserved, so closing keeps it.
    reserved: bool,
    /// Minimum length of the file since the session was opened, for background verifications.
    length_min: Arc<AtomicU64>,
    /// Number of the last commit when the session was opened.
    opened_at: u64,
    /// Treatment of foreign pointers, if commits look for them.
    foreign: Option<ForeignCheck>,
    /// Dropped last, so that it unmaps the memory before it ends the watch over it. The kernel
    /// would walk all pages of mapped memory: 50 ms a GiB.
    engine: Engine,
}

impl Writer {
    /// Opens the object, recovers it if its last writer did not close it, and maps it.
    pub(crate) fn open(
        environment: &Environment,
        paths: &ObjectPaths,
        policy: LogPolicy,
        settings: &WriteOptions,
        timeout: Duration,
    ) -> Result<Writer> {
        let acquired = acquire(environment, paths, policy, settings, timeout)?;
        let Acquired { file, superblock, log, overlay, applied_elsewhere } = acquired;
        let mut region_set = RegionSet::open(
            Arc::clone(&file),
            Arc::clone(&environment.space),
            Arc::clone(&environment.addresses),
            environment.region_plan(),
            superblock.regions(),
        )?;
        match policy {
            LogPolicy::WhileOpen => region_set.defer_large_growth(settings.deferral),
            _ => region_set.note_locked(),
        }
        let region_set = Arc::new(region_set);
        if superblock.features_incompatible & FEATURE_HOLES != 0 {
            region_set.unreserve_data();
        }
        let beside_readers = log.is_some() && policy == LogPolicy::WhileOpen;
        cut_dead_growth(&region_set, &*file, superblock.file_length, beside_readers)?;
        let engine = Engine::new(Target {
            settings: settings.clone(),
            overlay,
            applied_elsewhere,
            regions: superblock.regions().to_vec(),
            file_length: superblock.file_length,
            storage: Arc::clone(&environment.storage),
            object_uuid: superblock.object_uuid,
            log_path: paths.log_path.clone(),
            policy,
            log,
            mapped: region_set.mapped(),
            committed: region_set.committed(),
            writer_kind: WriterKind::Host,
            sequence: superblock.commit_sequence,
        });
        let source = Arc::clone(&region_set);
        // SAFETY: the region set maps the regions writable and is owned by the heap itself; the
        // writer lock keeps other processes away from the metadata.
        let heap = unsafe { Heap::new(source, superblock.regions()) };
        // Sessions of the catalog are short, and no program reads their memory.
        let in_children = (policy == LogPolicy::WhileOpen)
            .then(|| Inherited::new(&region_set, heap.shared_lock(), settings.in_children));
        let opened_at = superblock.commit_sequence;
        // The object was created with room that is still unused, so the room must stay.
        let reserved = opened_at == 1
            && superblock.root_address == 0
            && superblock.regions().iter().any(|region| region.length > region.meta_length);
        Ok(Writer {
            engine,
            heap,
            region_set,
            in_children,
            protector: None,
            superblock,
            grew: false,
            reserved,
            length_min: Arc::new(AtomicU64::new(u64::MAX)),
            opened_at,
            foreign: None,
        })
    }

    /// Returns the flag that tells a forked child whether it has the memory.
    pub(crate) fn memory_in_child(&self) -> MemoryInChild {
        self.in_children.as_ref().map(Inherited::memory).unwrap_or_default()
    }

    /// Write-protects the object's memory from now on, except in scopes of the returned protector.
    pub(crate) fn protect(&mut self, protection: Protection) -> Result<Option<Arc<Protector>>> {
        let embedder = self.protector.as_ref().and_then(|protector| protector.embedder());
        self.protector = Protector::new(protection, &self.region_set, embedder)?;
        Ok(self.protector.clone())
    }

    /// Puts the object's memory under an embedder's key. Call it before
    /// [`protect`](Writer::protect).
    pub(crate) fn set_protection_key(&mut self, key: &AccessKey) -> Result<()> {
        self.protector = Protector::of_embedder(key, &self.region_set)?;
        Ok(())
    }

    /// Returns the protector, for callers that store through the heap.
    pub(crate) fn protector(&self) -> Option<Arc<Protector>> {
        self.protector.clone()
    }

    /// Returns the write protection in effect.
    pub(crate) fn protection(&self) -> ActiveProtection {
        self.protector.as_ref().map_or(ActiveProtection::Nothing, |protector| protector.active())
    }

    /// The allocator.
    pub(crate) fn heap(&self) -> &Heap {
        &self.heap
    }

    /// The object file.
    pub(crate) fn file(&self) -> &Arc<dyn File> {
        self.engine.object()
    }

    /// The superblock as of the last commit, with changes that the next commit will write.
    pub(crate) fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Gives access to the superblock; changes take effect with the next commit.
    pub(crate) fn superblock_mut(&mut self) -> &mut Superblock {
        &mut self.superblock
    }

    /// Number of the last commit.
    pub(crate) fn sequence(&self) -> u64 {
        self.engine.sequence()
    }

    /// Returns true if the object file has every commit, in the page cache at least. False after a
    /// disk refused an apply.
    pub(crate) fn is_applied(&self) -> bool {
        self.engine.overlay().is_empty()
    }

    /// Fails if an error has ended the session, and in a forked child.
    pub(crate) fn check_usable(&self) -> Result<()> {
        self.engine.check_usable()
    }

    /// Number of the last commit, and the log's position.
    pub(crate) fn position(&self) -> (u64, LogPosition) {
        (self.engine.sequence(), self.engine.log_position())
    }

    /// Bytes of records in the log.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.engine.log_bytes()
    }

    /// Leases of regions that the next commit adds: they must be in the catalog before that commit.
    pub(crate) fn new_leases(&self) -> Vec<(u64, u64)> {
        self.region_set.new_leases()
    }

    /// Address ranges that the file backs, including uncommitted growth: base and bytes.
    pub(crate) fn regions(&self) -> Vec<(u64, u64)> {
        self.region_set.records().iter().map(|r| (r.base, r.length)).collect()
    }

    /// Returns the allocator's statistics.
    pub(crate) fn statistics(&self) -> HeapStatistics {
        let _open = self.protector.as_deref().map(Protector::open_for_reading);
        self.heap.statistics()
    }

    /// Returns the object's layout, including uncommitted changes. No other thread may change the
    /// object during the call.
    pub(crate) fn map(&mut self) -> Result<ObjectMap> {
        let protector = self.protector.clone();
        // Only the committing process may flush: the memory of a forked child is not its own.
        let _open = match self.engine.check_usable() {
            Ok(()) => {
                let open = opened(protector.as_deref())?;
                self.heap.flush_thread_caches();
                open
            }
            Err(_) => match protector.as_deref() {
                Some(protector) => protector.open_for_reading(),
                None => Opened::always(),
            },
        };
        let records = self.region_set.records();
        let mut read = |address: u64, bytes: &mut [u8]| {
            let end = address + bytes.len() as u64;
            let inside = records.iter().any(|r| address >= r.base && end <= r.base + r.length);
            if inside {
                // SAFETY: the range lies in a region, which is mapped for as long as the writer
                // lives, and the caller has stopped every thread that might change it.
                let mapped =
                    unsafe { std::slice::from_raw_parts(address as *const u8, bytes.len()) };
                bytes.copy_from_slice(mapped);
            }
            Ok(inside)
        };
        let regions: Result<Vec<RegionMap>> = records
            .iter()
            .enumerate()
            .map(|(index, record)| RegionMap::read(record, index == 0, &mut read))
            .collect();
        let mut map = ObjectMap {
            name: self.superblock.name(),
            uuid: hex(&self.superblock.object_uuid),
            sequence: self.sequence(),
            uncommitted: true,
            file_bytes: self.file().length()?,
            log_bytes: self.log_bytes(),
            written: true,
            read: None,
            regions: regions?,
        };
        let file = Arc::clone(self.file());
        map.mark_stored_pages(&*file)?;
        self.engine.for_each_changed_page(|address| {
            map.mark_dirty(address, PAGE_BYTES);
            true
        })?;
        for span in self.region_set.growth().fresh {
            let end = span.file_offset + span.length;
            let mut at = span.file_offset;
            while let Some((start, stop)) = file.next_data(at)?.filter(|d| d.0 < end) {
                let (start, stop) = (start.max(at), stop.min(end));
                map.mark_dirty(span.address + (start - span.file_offset), stop - start);
                at = stop;
            }
        }
        for (address, bytes) in self.region_set.stored_deferred() {
            map.mark_dirty(address, bytes);
        }
        Ok(map)
    }

    /// Returns true if a commit would change the object. Costs a page-table scan and, up to the
    /// first change, a comparison of the pages that were stored to.
    pub(crate) fn has_changes(&mut self) -> Result<bool> {
        self.engine.check_usable()?;
        if !self.region_set.growth().fresh.is_empty() {
            return Ok(true);
        }
        let protector = self.protector.clone();
        let _open = opened(protector.as_deref())?;
        // Blocks that were allocated and freed change the metadata only when the caches are
        // flushed.
        self.heap.flush_thread_caches();
        let mut changed = false;
        self.engine.for_each_changed_page(|_| {
            changed = true;
            false
        })?;
        Ok(changed)
    }

    /// Commits. Returns false if nothing had changed. See [`Engine::commit`].
    pub(crate) fn commit(&mut self) -> Result<bool> {
        let protector = self.protector.clone();
        let _open = opened(protector.as_deref())?;
        self.commit_growth(self.region_set.growth())
    }

    fn commit_growth(&mut self, growth: Growth) -> Result<bool> {
        // Checked first: a forked child must not touch the memory that flushing the thread caches
        // reads.
        self.engine.check_usable()?;
        self.heap.flush_thread_caches();
        if self.region_set.write_gained()? && !mutated(Mutant::DeferredIsNoHole) {
            // Earlier builds, which do not know holes, must not meet a full disk in the middle of a
            // store.
            self.superblock.features_incompatible |= FEATURE_HOLES;
        }
        let grew = !growth.fresh.is_empty();
        let file_length = growth.file_length;
        let superblock = RefCell::new(&mut self.superblock);
        let records = self.region_set.records();
        let file = Arc::clone(self.engine.object());
        let (heap, path, base) = (&self.heap, file.path(), self.region_set.base());
        let foreign = &mut self.foreign;
        let approve = |suspects| {
            let (Some(foreign), mut superblock) = (&mut *foreign, superblock.borrow_mut()) else {
                return Ok(());
            };
            if foreign.judge(suspects, heap, &mut superblock, path)? {
                // SAFETY: the region set maps page 0 writable, and a raw object's root is not in
                // it.
                unsafe { lay_root_area(&superblock, base) };
            }
            Ok(())
        };
        let seal = |number, page: &mut _| {
            superblock.borrow_mut().seal_commit(number, page, &records, file_length);
        };
        let committed = self.engine.commit(growth, approve, seal)?;
        if committed {
            self.region_set.mark_committed();
            self.grew |= grew;
        }
        if !Arc::ptr_eq(&file, self.file()) {
            self.region_set.file_replaced();
        }
        Ok(committed)
    }

    /// Makes commits look for foreign pointers.
    ///
    /// # Errors
    /// `Damaged` for a record of code that cannot be read.
    pub(crate) fn search_for_foreign(
        &mut self,
        action: ForeignPointers,
        space: Arc<AddressSpace>,
    ) -> Result<()> {
        if action == ForeignPointers::Allow {
            return Ok(());
        }
        self.engine.search_for_suspects(Suspects::new(space.arenas()));
        self.foreign = Some(ForeignCheck::new(action, space));
        self.allow_registered_code()
    }

    /// Makes pointers legal that lead into the code registered in the superblock, and no others.
    fn allow_registered_code(&mut self) -> Result<()> {
        if self.foreign.is_none() {
            return Ok(());
        }
        let code = self.code()?;
        if let Some(suspects) = self.engine.suspects() {
            suspects.set_registered(code.iter().flat_map(Code::registered).collect());
        }
        Ok(())
    }

    /// Returns the treatment of foreign pointers.
    pub(crate) fn foreign(&mut self) -> Option<&mut ForeignCheck> {
        self.foreign.as_mut()
    }

    /// Returns the foreign pointers reported since the last call.
    pub(crate) fn foreign_pointers(&mut self) -> Vec<ForeignPointer> {
        self.foreign.as_mut().map(ForeignCheck::take).unwrap_or_default()
    }

    /// Returns the record of the program builds that the object's pointers lead into.
    ///
    /// # Errors
    /// `Damaged`, `NewerFormat`.
    pub(crate) fn code(&self) -> Result<Option<Code>> {
        Code::of(self.file().path(), &self.superblock)
    }

    /// Makes pointers into this program legal and records its build with the next commit. The
    /// program must have a fixed address. With `register` false, removes the record of all builds.
    ///
    /// # Errors
    /// `Unsupported` for a position-independent program, and for an object whose root leaves no
    /// room for the record. `Damaged` and `NewerFormat` for a record that cannot be read.
    pub(crate) fn register_code(&mut self, register: bool) -> Result<()> {
        // In a forked child page 0 is not writable.
        self.engine.check_usable()?;
        if register {
            let loaded = LoadedCode::now();
            let program = loaded.program().filter(|program| program.bias == 0);
            let code = match self.code()? {
                Some(code) => Some(code),
                None => Code::new(&self.superblock),
            };
            let (Some(program), Some(mut code)) = (program, code) else {
                return Err(Error::Unsupported {
                    why: "addresses of code in this program mean nothing in the next process: it \
                          is position-independent, or the object's root leaves no room for the \
                          record; link with -no-pie, and use a raw object"
                        .to_string(),
                });
            };
            code.register(*program);
            code.put(&mut self.superblock);
        } else if self.code()?.is_some() {
            Code::forget(&mut self.superblock);
        } else {
            return Ok(());
        }
        let protector = self.protector.clone();
        let _open = opened(protector.as_deref())?;
        // SAFETY: as in `commit_growth`.
        unsafe { lay_root_area(&self.superblock, self.region_set.base()) };
        self.allow_registered_code()
    }

    /// Makes everything committed so far durable, at any level.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.engine.sync()
    }

    /// Commits even if only the superblock's own fields changed.
    pub(crate) fn commit_superblock(&mut self) -> Result<bool> {
        let protector = self.protector.clone();
        let _open = opened(protector.as_deref())?;
        let file_length = self.superblock.file_length;
        self.superblock.seal(&self.region_set.records(), file_length);
        // SAFETY: the region set maps page 0 writable, and its superblock is not referenced
        // elsewhere.
        unsafe { self.superblock.lay_at(self.region_set.base()) };
        self.commit()
    }

    /// Returns to the last commit. Fails after a failed flush: the last commit is unknown then, and
    /// its record, which may be in the log, needs the memory that undoing growth would cut off.
    pub(crate) fn rollback(&mut self) -> Result<()> {
        self.engine.check_usable()?;
        let protector = self.protector.clone();
        let _open = opened(protector.as_deref())?;
        self.engine.rollback()?;
        self.region_set.rollback()?;
        let page = read_head(self.region_set.base());
        *self.superblock = page;
        // SAFETY: as in `open`: the regions are mapped as the last commit has them.
        unsafe { self.heap.reload(&self.region_set.records()) };
        self.allow_registered_code()
    }

    /// Makes the object file durable and empties the log. Returns false while readers are in the
    /// way.
    pub(crate) fn checkpoint(&mut self) -> Result<bool> {
        let protector = self.protector.clone();
        let _open = opened(protector.as_deref())?;
        self.engine.checkpoint()
    }

    /// Compares every page of the last commit with its checksum.
    pub(crate) fn verify(&self) -> Result<()> {
        verify_now(&**self.file(), self.superblock.regions(), self.engine.overlay())
    }

    /// Starts [`verify`](Writer::verify) in a thread. A writer that could not apply its
    /// predecessor's commits verifies at once, because the file alone is not a commit.
    pub(crate) fn verify_in_background(&self) -> Result<Option<BackgroundVerification>> {
        if !self.engine.overlay().is_empty() {
            return self.verify().map(|()| None);
        }
        let (file, regions) = (Arc::clone(self.file()), self.superblock.regions().to_vec());
        let changes = FileChanges {
            applies: Arc::clone(self.engine.applies()),
            length_min: Arc::clone(&self.length_min),
        };
        BackgroundVerification::start(file, regions, Overlay::default(), Some(changes)).map(Some)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(protector) = &self.protector
            && !at_fork::is_child()
        {
            protector.retire();
        }
    }
}

/// Opens a protected object for the library's own stores.
fn opened(protector: Option<&Protector>) -> Result<Opened<'_>> {
    protector.map_or_else(|| Ok(Opened::always()), Protector::open_for_library)
}

/// Copies the root area of a superblock into the mapped page 0.
///
/// # Safety
/// Page 0 is mapped writable at `base`, and its root area is not referenced elsewhere.
unsafe fn lay_root_area(superblock: &Superblock, base: u64) {
    let to = (base + ROOT_AREA_OFFSET as u64) as *mut u8;
    // SAFETY: as the caller promises; the area ends with the page.
    unsafe {
        to.copy_from_nonoverlapping(superblock.root_area.as_ptr(), superblock.root_area.len())
    };
}

/// Reads page 0 from memory.
fn read_head(base: u64) -> Superblock {
    // SAFETY: `base` is the mapped page 0 and any bytes are a superblock.
    unsafe { (base as *const Superblock).read() }
}
