//! One writer's session with an object: the last commit mapped privately, and the next one made.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use tracing::warn;

use super::acquire::{Acquired, acquire, cut_dead_growth};
use super::code::{Code, Loaded as LoadedCode};
use super::foreign::{ForeignCheck, ForeignPointer};
use super::inherit::{Inherited, MemoryInChild};
use super::map::{ObjectMap, RegionMap};
use super::protector::{ActiveProtection, Opened, Protection, Protector};
use super::region_set::RegionSet;
use super::superblock::hex;
use super::verification::{BackgroundVerification, verify_now};
use super::{Environment, ObjectPaths};
use crate::address::{AccessKey, AddressSpace};
use crate::alloc::{Heap, HeapStatistics};
use crate::at_fork;
use crate::commit::{
    Engine, ForeignPointers, Growth, LogPolicy, LogPosition, Overlay, Suspects, Target,
    WriteOptions, WriterKind, locks,
};
use crate::error::{Error, Result};
use crate::format::{FEATURE_HOLES, PAGE_BYTES, ROOT_AREA_OFFSET, Superblock};
use crate::mutate::{Mutant, mutated};
use crate::storage::File;

/// Disk space that an object does not need is given back at close when it is more than one part in
/// this many of the file: it costs a flush, or three where the log has lines for what goes.
const GIVE_BACK_BEYOND_PART: u64 = 8;
/// One part in so many of a file's end, where that is at least so many bytes: an object that was
/// built in one go is about as long as what is in it.
const TRIM_LARGE: (u64, u64) = (128, 2 << 20);

fn worth_cutting(spare: u64, file_length: u64) -> bool {
    let (part, bytes_min) = TRIM_LARGE;
    spare > file_length / GIVE_BACK_BEYOND_PART
        || (spare >= bytes_min && spare > file_length / part)
}

/// Free chunks are given back at close where at least this many (1 MiB) follow one another: fewer
/// cost more in extents than they give.
const HOLE_CHUNKS_MIN: usize = 16;

/// An object open for writing. Holds the writer lock while it lives; dropping it forgets
/// what was not committed.
pub(crate) struct Writer {
    file: Arc<dyn File>,
    engine: Engine,
    heap: Heap,
    region_set: Arc<RegionSet>,
    /// Children have the memory as of the fork.
    in_children: Option<Inherited>,
    /// Keeps the memory closed to stores, but for scopes.
    protector: Option<Arc<Protector>>,
    /// The head of page 0 as the next commit will write it, lengths and sequence aside.
    superblock: Box<Superblock>,
    grew: bool,
    /// Room was reserved: closing leaves it.
    reserved: bool,
    /// Number of the commit that the session began with.
    opened_at: u64,
    /// What becomes of words that lead out of the object, if commits look for them.
    foreign: Option<ForeignCheck>,
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
            _ => region_set.is_locked(),
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
            object: Arc::clone(&file),
            object_uuid: superblock.object_uuid,
            log_path: paths.log_path.clone(),
            policy,
            log,
            mapped: region_set.mapped(),
            committed: region_set.committed(),
            writer_kind: WriterKind::Host,
            sequence: superblock.commit_sequence,
        })?;
        let source = Arc::clone(&region_set);
        // SAFETY: the region_set maps the regions writable and is kept by the heap itself; the
        // writer lock keeps other processes away from the metadata.
        let heap = unsafe { Heap::new(source, superblock.regions()) };
        // A catalog's sessions are short, and no program looks at its memory.
        let in_children = (policy == LogPolicy::WhileOpen)
            .then(|| Inherited::new(&region_set, heap.shared_lock(), settings.in_children));
        let opened_at = superblock.commit_sequence;
        // Made with room, and nobody has used it yet: the room is to stay.
        let reserved = opened_at == 1
            && superblock.root_address == 0
            && superblock.regions().iter().any(|region| region.length > region.meta_length);
        Ok(Writer {
            file,
            engine,
            heap,
            region_set,
            in_children,
            protector: None,
            superblock,
            grew: false,
            reserved,
            opened_at,
            foreign: None,
        })
    }

    /// Tells a forked child whether it has the memory.
    pub(crate) fn memory_in_child(&self) -> MemoryInChild {
        self.in_children.as_ref().map(Inherited::memory).unwrap_or_default()
    }

    /// Closes the object's memory to stores from now on, except in scopes of the protector that is
    /// given back.
    pub(crate) fn protect(&mut self, protection: Protection) -> Result<Option<Arc<Protector>>> {
        let embedder = self.protector.as_ref().and_then(|protector| protector.embedder());
        self.protector = Protector::new(protection, &self.region_set, embedder)?;
        Ok(self.protector.clone())
    }

    /// Puts the object's memory under an embedder's key from now on; before it is protected.
    pub(crate) fn guard_by(&mut self, key: &AccessKey) -> Result<()> {
        self.protector = Protector::of_embedder(key, &self.region_set)?;
        Ok(())
    }

    /// What keeps the memory closed to stores, for who stores by way of the heap.
    pub(crate) fn protector(&self) -> Option<Arc<Protector>> {
        self.protector.clone()
    }

    /// How the memory is kept closed to stores.
    pub(crate) fn protection(&self) -> ActiveProtection {
        self.protector.as_ref().map_or(ActiveProtection::Nothing, |protector| protector.active())
    }

    /// The allocator.
    pub(crate) fn heap(&self) -> &Heap {
        &self.heap
    }

    /// The object file.
    pub(crate) fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// The superblock as of the last commit, with changes that the next commit will write.
    pub(crate) fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Changes fields of the superblock; they take effect with the next commit.
    pub(crate) fn superblock_mut(&mut self) -> &mut Superblock {
        &mut self.superblock
    }

    /// Number of the last commit.
    pub(crate) fn sequence(&self) -> u64 {
        self.engine.sequence()
    }

    /// Does the object file have every commit, in memory at least? Not when a disk refused it.
    pub(crate) fn is_applied(&self) -> bool {
        self.engine.overlay().is_empty()
    }

    /// Fails when nothing can be committed any more, or by this process.
    pub(crate) fn check_usable(&self) -> Result<()> {
        self.engine.check_usable()
    }

    /// The last commit, and where the log stands.
    pub(crate) fn position(&self) -> (u64, LogPosition) {
        (self.engine.sequence(), self.engine.log_position())
    }

    /// Bytes of records in the log.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.engine.log_bytes()
    }

    /// Addresses of regions that the next commit adds: they must be recorded before.
    pub(crate) fn new_leases(&self) -> Vec<(u64, u64)> {
        self.region_set.new_leases()
    }

    /// Address ranges that the file backs, uncommitted growth included: base and bytes.
    pub(crate) fn regions(&self) -> Vec<(u64, u64)> {
        self.region_set.records().iter().map(|r| (r.base, r.length)).collect()
    }

    /// What is allocated.
    pub(crate) fn statistics(&self) -> HeapStatistics {
        let _open = self.protector.as_deref().map(Protector::open_for_reading);
        self.heap.statistics()
    }

    /// What lies where, uncommitted changes included. Nobody may change the object meanwhile.
    pub(crate) fn map(&mut self) -> Result<ObjectMap> {
        let protector = self.protector.clone();
        let _open = protector.as_deref().map(Protector::open_for_reading);
        let records = self.region_set.records();
        let mut read = |address: u64, bytes: &mut [u8]| {
            let end = address + bytes.len() as u64;
            let inside = records.iter().any(|r| address >= r.base && end <= r.base + r.length);
            if inside {
                // SAFETY: the range lies in a region, mapped for as long as the writer lives, and
                // the caller has stopped everybody who might change it.
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
            file_bytes: self.file.length()?,
            log_bytes: self.log_bytes(),
            written: true,
            read: None,
            regions: regions?,
        };
        map.look_at_file(&*self.file)?;
        self.engine.look_at_changes(|address| {
            map.mark_dirty(address, PAGE_BYTES);
            true
        })?;
        for span in self.region_set.growth().fresh {
            let end = span.file_offset + span.length;
            let mut at = span.file_offset;
            while let Some((start, stop)) = self.file.next_data(at)?.filter(|d| d.0 < end) {
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

    /// Would a commit have something to say? Costs a page-table scan and, up to the first change, a
    /// comparison of the pages that were stored to.
    pub(crate) fn has_changes(&mut self) -> Result<bool> {
        self.engine.check_usable()?;
        if !self.region_set.growth().fresh.is_empty() {
            return Ok(true);
        }
        let protector = self.protector.clone();
        let _open = protector.as_deref().map(Protector::open_for_reading);
        let mut changed = false;
        self.engine.look_at_changes(|_| {
            changed = true;
            false
        })?;
        Ok(changed)
    }

    /// Commits; false when nothing had changed. See [`Engine::commit`].
    pub(crate) fn commit(&mut self) -> Result<bool> {
        let protector = self.protector.clone();
        let _open = opened(protector.as_deref())?;
        self.commit_growth(self.region_set.growth())
    }

    fn commit_growth(&mut self, growth: Growth) -> Result<bool> {
        // A forked child has no part in the memory that settling looks at.
        self.engine.check_usable()?;
        self.heap.flush_thread_caches();
        self.region_set.write_private()?;
        if self.region_set.write_deferred()? && !mutated(Mutant::DeferredIsNoHole) {
            // Builds that do not know of holes would be surprised by a full disk.
            self.superblock.features_incompatible |= FEATURE_HOLES;
        }
        let grew = !growth.fresh.is_empty();
        let file_length = growth.file_length;
        let superblock = RefCell::new(&mut self.superblock);
        let records = self.region_set.records();
        let (heap, path, base) = (&self.heap, self.file.path(), self.region_set.base());
        let foreign = &mut self.foreign;
        let approve = |suspects| {
            let (Some(foreign), mut superblock) = (&mut *foreign, superblock.borrow_mut()) else {
                return Ok(());
            };
            if foreign.judge(suspects, heap, &mut superblock, path)? {
                // SAFETY: the region_set maps page 0 writable, and a raw object's root is not there.
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
        self.region_set.follow(&mut self.file, self.engine.object());
        Ok(committed)
    }

    /// Has commits look for words that lead out of the object.
    ///
    /// # Errors
    /// `Damaged` for a record of code that cannot be read.
    pub(crate) fn look_for_foreign(
        &mut self,
        action: ForeignPointers,
        space: Arc<AddressSpace>,
    ) -> Result<()> {
        if action == ForeignPointers::Allow {
            return Ok(());
        }
        self.engine.look_for_suspects(Suspects::new(space.arenas()));
        self.foreign = Some(ForeignCheck::new(action, space));
        self.allow_registered_code()
    }

    /// Makes pointers legal that lead into the code which the head has as registered, and no others.
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

    /// What decides about words that lead out of the object.
    pub(crate) fn foreign(&mut self) -> Option<&mut ForeignCheck> {
        self.foreign.as_mut()
    }

    /// Pointers out of the object that were reported since the last call.
    pub(crate) fn foreign_pointers(&mut self) -> Vec<ForeignPointer> {
        self.foreign.as_mut().map(ForeignCheck::take).unwrap_or_default()
    }

    /// Which builds of programs the object's pointers lead into.
    ///
    /// # Errors
    /// `Damaged`, `NewerFormat`.
    pub(crate) fn code(&self) -> Result<Option<Code>> {
        Code::of(self.file.path(), &self.superblock)
    }

    /// Makes pointers into this program legal, which has to have a fixed address, and records its
    /// build with the next commit; or takes the record of all builds away.
    ///
    /// # Errors
    /// `Unsupported` for a program that lies elsewhere in each process.
    pub(crate) fn register_code(&mut self, register: bool) -> Result<()> {
        // In a forked child page 0 takes no stores.
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

    /// Makes everything committed so far durable, whatever the level.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.engine.sync()
    }

    /// Commits even when only the superblock's own fields changed.
    pub(crate) fn commit_superblock(&mut self) -> Result<bool> {
        let protector = self.protector.clone();
        let _open = opened(protector.as_deref())?;
        let file_length = self.superblock.file_length;
        self.superblock.seal(&self.region_set.records(), file_length);
        // SAFETY: the region_set maps page 0 writable, and nobody else refers to its head.
        unsafe { self.superblock.lay_at(self.region_set.base()) };
        self.commit()
    }

    /// Goes back to the last commit. Not after a failed flush: the last commit is unknown then, and its
    /// record, which may be in the log, needs the memory that taking growth back would cut off.
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

    /// Makes the object file durable and empties the log.
    /// False while readers are in the way.
    pub(crate) fn checkpoint(&mut self) -> Result<bool> {
        let protector = self.protector.clone();
        let _open = opened(protector.as_deref())?;
        self.engine.checkpoint()
    }

    /// Gives the disk space of free chunks back, where at least `chunks_min` of them follow one
    /// another. Commits what was stored meanwhile. Gives the bytes; 0 while readers of an older
    /// commit are there, or where the file system has no holes.
    ///
    /// The order: a commit says that these chunks are holes and that their checksums mean nothing;
    /// then they are punched, and that is flushed before anything is taken for zeros.
    pub(crate) fn give_back(&mut self, chunks_min: usize) -> Result<u64> {
        let holes = self.heap.mark_holes(chunks_min);
        if holes.is_empty() {
            return Ok(0);
        }
        if mutated(Mutant::HolesBeforeCommit) {
            self.engine.punch_holes(&holes)?;
        }
        self.superblock.features_incompatible |= FEATURE_HOLES;
        self.commit_growth(Growth {
            given_back: self.region_set.pages_of(&holes),
            ..self.region_set.growth()
        })?;
        let bytes = holes.iter().map(|(_, bytes)| bytes).sum();
        Ok(if self.engine.punch_holes(&holes)? { bytes } else { 0 })
    }

    /// Compares every page of the last commit with its checksum.
    pub(crate) fn verify(&self) -> Result<()> {
        verify_now(&*self.file, self.superblock.regions(), self.engine.overlay())
    }

    /// The same in a thread. A writer that could not apply what its predecessor left compares now:
    /// the file alone is no commit.
    pub(crate) fn verify_in_background(&self) -> Result<Option<BackgroundVerification>> {
        if !self.engine.overlay().is_empty() {
            return self.verify().map(|()| None);
        }
        let (file, regions) = (Arc::clone(&self.file), self.superblock.regions().to_vec());
        let applies = Some(Arc::clone(self.engine.applies()));
        BackgroundVerification::start(file, regions, Overlay::default(), applies).map(Some)
    }

    /// Ends the session, giving back what growing left unused at the file's end, and large holes.
    pub(crate) fn close(&mut self) -> Result<()> {
        let protector = self.protector.clone();
        let _open = opened(protector.as_deref())?;
        if self.reserved {
            return self.engine.close();
        }
        if self.grew {
            self.grew = false;
            self.trim(u64::MAX, worth_cutting)?;
        }
        if self.superblock.commit_sequence > self.opened_at {
            let free = self.heap.free_bytes(HOLE_CHUNKS_MIN);
            if free > self.superblock.file_length / GIVE_BACK_BEYOND_PART {
                self.give_back(HOLE_CHUNKS_MIN)?;
            }
        }
        self.engine.close()
    }

    /// Commits, and gives back all the disk space that the object does not need, with the bytes of
    /// it. Readers of older commits keep theirs.
    pub(crate) fn shrink(&mut self) -> Result<u64> {
        let protector = self.protector.clone();
        let _open = opened(protector.as_deref())?;
        let before = self.file.disk_bytes()?;
        self.commit()?;
        self.trim(u64::MAX, |_, _| true)?;
        self.give_back(1)?;
        self.reserved = false;
        Ok(before.saturating_sub(self.file.disk_bytes()?))
    }

    /// Makes room for a block of so many bytes, or for smaller ones.
    pub(crate) fn make_room(&self, bytes: u64) -> Result<()> {
        self.region_set.make_room(|| self.heap.reserve(bytes))
    }

    /// Room was reserved: closing leaves it with the object.
    pub(crate) fn reserved(&mut self) {
        self.reserved = true;
    }

    /// Commits, and cuts up to `bytes_max` of the file's unused end off. Gives the bytes.
    pub(crate) fn release(&mut self, bytes_max: u64) -> Result<u64> {
        let protector = self.protector.clone();
        let _open = opened(protector.as_deref())?;
        self.commit()?;
        let before = self.superblock.file_length;
        self.trim(bytes_max, |_, _| true)?;
        Ok(before.saturating_sub(self.superblock.file_length))
    }

    /// Gives back the unused end of the file, but no more than `bytes_max`, if so many bytes of such a
    /// file are `worth` it. Everything is committed.
    fn trim(&mut self, bytes_max: u64, worth: impl Fn(u64, u64) -> bool) -> Result<()> {
        let mut used = self.heap.flush_and_measure();
        let records = self.region_set.records();
        let spare = match (records.last(), used.last_mut()) {
            (Some(record), Some(used)) => {
                let data = record.length - record.meta_length;
                *used = data - (data - *used).min(bytes_max / PAGE_BYTES * PAGE_BYTES);
                data - *used
            }
            _ => 0,
        };
        if spare == 0 || !worth(spare, self.superblock.file_length) {
            return Ok(());
        }
        // Who reads a longer commit uses what would be cut, or given out again by later sessions:
        // the object gets shorter only while nobody reads it.
        let file = Arc::clone(&self.file);
        let Some(alone) = locks::hold_alone(&*file)? else { return Ok(()) };
        // The shorter length is committed before the file is cut: a cut file with a superblock
        // that speaks of more would be taken for damage.
        let mut shorter = records;
        if let Some(last) = shorter.last_mut() {
            last.length -= spare;
        }
        let length = shorter.iter().map(|r| r.file_offset + r.length).max().unwrap_or(0);
        if mutated(Mutant::TrimBeforeCommit) {
            self.file.set_length(length)?;
        }
        self.superblock.seal(&shorter, length);
        // SAFETY: as in `commit_superblock`.
        unsafe { self.superblock.lay_at(self.region_set.base()) };
        let superblock = &mut self.superblock;
        let growth = Growth {
            fresh: Vec::new(),
            file_length: length,
            regions: shorter.clone(),
            given_back: Vec::new(),
            unreserved: Arc::clone(self.region_set.unreserved()),
        };
        let seal = |number, page: &mut _| superblock.seal_commit(number, page, &shorter, length);
        self.engine.commit(growth, |_| Ok(()), seal)?;
        self.engine.sync()?;
        drop(alone);
        if !self.engine.forget_behind(length)? {
            return Ok(());
        }
        self.engine.shorten(&shorter);
        if let Err(error) = self.region_set.trim(&used) {
            warn!(%error, "could not give back the unused end of the object file");
        }
        // SAFETY: as in `rollback`: the regions are mapped as the last commit has them.
        unsafe { self.heap.reload(&self.region_set.records()) };
        Ok(())
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

/// What the library stores into a protected object, it stores in a scope of its own.
fn opened(protector: Option<&Protector>) -> Result<Opened<'_>> {
    protector.map_or_else(|| Ok(Opened::always()), Protector::open_for_library)
}

/// Puts the root area of a head into page 0 in memory.
///
/// # Safety
/// Page 0 is mapped writable at `base`, and nobody refers to its root area.
unsafe fn lay_root_area(superblock: &Superblock, base: u64) {
    let to = (base + ROOT_AREA_OFFSET as u64) as *mut u8;
    // SAFETY: as the caller promises; the area ends with the page.
    unsafe {
        to.copy_from_nonoverlapping(superblock.root_area.as_ptr(), superblock.root_area.len())
    };
}

/// Page 0 as it is in memory.
fn read_head(base: u64) -> Superblock {
    // SAFETY: `base` is the mapped page 0 and any bytes are a superblock.
    unsafe { (base as *const Superblock).read() }
}
