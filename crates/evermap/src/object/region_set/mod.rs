//! The regions of an object that a writer has mapped: growth, and undoing growth.
//!
//! Up to its committed length a region is mapped private. Memory gained since is mapped shared,
//! directly over the file. The file is reserved first, so a full disk is an error of the allocation
//! and never a signal. A region grows in place up to its capacity; then the object gets another
//! region, at least as large as all existing ones together if the store has that many addresses.
//! Large growth takes no disk space at first, see `deferred`.
//!
//! A fork makes gained memory private, see `fork`; the commit writes its pages to the file.

mod deferred;
mod fork;
mod growth;
mod shape;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::write_behind::WriteBehind;
use crate::address::{AddressSpace, Key, Mapping, Sharing};
use crate::at_fork;
use crate::commit::{Growth, MappedFile, Span, Unreserved, locks};
use crate::error::{Error, Result};
use crate::format::{CHUNK_BYTES, PAGE_BYTES, RegionRecord};
use crate::storage::File;
pub(super) use fork::LockedForFork;
pub(crate) use shape::{RegionPlan, lease_of};

/// Chunks of a first region when the object's size is not known: 1 MiB.
pub(crate) const FIRST_CHUNKS: u64 = 16;

/// Source of an object's addresses: its store.
pub(crate) trait Addresses: Send + Sync {
    /// Leases `bytes` of addresses for this process, chunk-aligned, or aligned like a huge page if
    /// they are many. No other process gets them, unless they are released, or this process ends
    /// before the catalog records them.
    fn lease(&self, bytes: u64) -> Result<u64>;
    /// Releases a lease that was not recorded.
    fn release(&self, base: u64, bytes: u64);
}

/// The mapped regions of one object.
pub(crate) struct RegionSet {
    file: MappedFile,
    space: Arc<AddressSpace>,
    addresses: Arc<dyn Addresses>,
    plan: RegionPlan,
    /// New regions keep page checksums. Either all regions of an object do, or none.
    checksums: bool,
    /// Minimum file length: readers of an older commit have the file mapped up to here.
    length_min: AtomicU64,
    state: Mutex<Vec<MappedRegion>>,
    write_behind: WriteBehind,
    /// Protection key for new regions.
    key: OnceLock<Arc<Key>>,
    /// Memory gained now is reserved room, and not about to be written.
    for_room: AtomicBool,
    /// Growth by more than this many bytes at once is deferred, see `deferred`.
    deferred_from: Option<u64>,
    /// Parts of the file without disk space.
    unreserved: Arc<Unreserved>,
    /// Stores fault except in scopes. Changed under the lock of `state`.
    closed: AtomicBool,
    /// No other process reads the file while the object is open.
    locked: AtomicBool,
}

/// Parts of a new region that the file backs at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backing {
    /// Metadata only.
    Metadata,
    /// In a large region, also data up to the end of the huge page in which the metadata ends. A
    /// second mapping that began inside of that page would prevent the huge page.
    HugePage,
    /// Also this many bytes of chunks, which are about to be written.
    Data(u64),
    /// Also this many bytes of chunks, as reserved room.
    Room(u64),
}

/// A region with its mapping.
#[derive(Debug)]
pub(super) struct MappedRegion {
    pub(super) record: RegionRecord,
    /// Bytes from the base that the last commit has; 0 for a region that is not committed yet.
    committed: u64,
    /// Bytes from the base that are mapped private, if that is more than `committed`.
    private: u64,
    /// Uncommitted deferred parts: anonymous memory that is zero where the program stored nothing.
    /// Start and end, in bytes from the base.
    deferred: Vec<(u64, u64)>,
    pub(super) mapping: Arc<Mapping>,
}

impl RegionSet {
    /// Creates the region set of a new object, with its first region.
    pub(crate) fn create(
        file: Arc<dyn File>,
        space: Arc<AddressSpace>,
        addresses: Arc<dyn Addresses>,
        plan: RegionPlan,
        (chunks, backing): (u64, Backing),
    ) -> Result<RegionSet> {
        let region_set = RegionSet::of(file, space, addresses, plan, Vec::new());
        region_set.note_locked();
        region_set.add_region_at(&mut region_set.lock(), chunks, backing)?;
        Ok(region_set)
    }

    /// Maps the regions of an object privately, as its last commit has them.
    pub(crate) fn open(
        file: Arc<dyn File>,
        space: Arc<AddressSpace>,
        addresses: Arc<dyn Addresses>,
        plan: RegionPlan,
        records: &[RegionRecord],
    ) -> Result<RegionSet> {
        let mut held = Vec::new();
        for record in records {
            let mapping = Arc::new(space.claim(record.base, record.capacity)?);
            let (base, length) = (record.base, record.length);
            mapping.map(&*file, base, length, record.file_offset, Sharing::PrivateWritable)?;
            mapping.advise_random(base, length);
            held.push(MappedRegion {
                record: *record,
                committed: length,
                private: 0,
                deferred: Vec::new(),
                mapping,
            });
        }
        Ok(RegionSet::of(file, space, addresses, plan, held))
    }

    fn of(
        file: Arc<dyn File>,
        space: Arc<AddressSpace>,
        addresses: Arc<dyn Addresses>,
        plan: RegionPlan,
        held: Vec<MappedRegion>,
    ) -> RegionSet {
        RegionSet {
            file: Arc::new(Mutex::new(file)),
            space,
            addresses,
            plan,
            checksums: held.iter().all(|h| h.record.checksums != 0),
            length_min: AtomicU64::new(0),
            state: Mutex::new(held),
            write_behind: WriteBehind::default(),
            key: OnceLock::new(),
            for_room: AtomicBool::new(false),
            deferred_from: None,
            unreserved: Arc::default(),
            closed: AtomicBool::new(false),
            locked: AtomicBool::new(false),
        }
    }

    /// Gains memory as reserved room: it is not populated, and not written back early.
    pub(crate) fn make_room<R>(&self, gain: impl FnOnce() -> R) -> R {
        self.for_room.store(true, Ordering::Relaxed);
        let gained = gain();
        self.for_room.store(false, Ordering::Relaxed);
        gained
    }

    /// Puts all present and future mappings under a protection key.
    pub(crate) fn set_protection_key(&self, key: &Arc<Key>) -> Result<()> {
        let held = self.lock();
        if self.key.set(Arc::clone(key)).is_err() {
            return Err(Error::Unsupported { why: "the object has a key already".to_string() });
        }
        held.iter().try_for_each(|h| h.mapping.set_protection_key(key, h.record.length, true))
    }

    /// Write-protects all current mappings.
    pub(crate) fn close_to_stores(&self) -> Result<()> {
        let held = self.lock();
        self.closed.store(true, Ordering::Relaxed);
        held.iter().try_for_each(|h| h.mapping.protect_read_only(h.record.base, h.record.length))
    }

    /// Makes all current mappings writable again.
    pub(crate) fn open_to_stores(&self) -> Result<()> {
        let held = self.lock();
        self.closed.store(false, Ordering::Relaxed);
        held.iter().try_for_each(|h| h.mapping.protect_writable(h.record.base, h.record.length))
    }

    /// Notes that any of the data may lack disk space: the file is a copy, or earlier sessions left
    /// holes.
    pub(crate) fn unreserve_data(&self) {
        for h in self.lock().iter() {
            let at = h.record.file_offset;
            self.unreserved.add(at + h.record.meta_length, at + h.record.length);
        }
    }

    /// Returns the parts of the file without disk space.
    pub(crate) fn unreserved(&self) -> &Arc<Unreserved> {
        &self.unreserved
    }

    /// Keeps the file at least this long from now on.
    pub(crate) fn keep_length(&self, length: u64) {
        self.length_min.store(length, Ordering::Relaxed);
    }

    /// Cuts the file after the last region. Parts that must stay become zeros.
    pub(crate) fn cut(&self) -> Result<()> {
        self.cut_to(file_length(&self.lock()))
    }

    fn cut_to(&self, length: u64) -> Result<()> {
        static ZEROS: [u8; CHUNK_BYTES as usize] = [0; CHUNK_BYTES as usize];
        let file = self.file();
        let mut length_min = self.length_min.load(Ordering::Relaxed);
        let mut at = length;
        let longest = file.length()?;
        if longest > length.max(length_min) && !self.is_exclusive(&*file)? {
            // Truncation removes the pages beyond the new end from every mapping, including a
            // child's private copies. A hole leaves those.
            if file.punch_hole(length, longest - length)? {
                return Ok(());
            }
            length_min = longest;
        }
        while at < length_min {
            let step = (length_min - at).min(CHUNK_BYTES);
            file.write_at(&ZEROS[..step as usize], at)?;
            at += step;
        }
        let length = length.max(length_min);
        let there = file.length()?;
        // Another process truncated the file while it was mapped. Zeros in place of the lost part
        // would hide that.
        if there < length {
            return Err(Error::Damaged {
                path: file.path().to_path_buf(),
                what: "the file's length",
                found: format!("{there} bytes"),
                expected: format!("{length} bytes: it was truncated while it was open"),
            });
        }
        // Setting an unchanged length updates the file's times on ext4, and the next flush would
        // wait for the journal.
        if there == length { Ok(()) } else { file.set_length(length) }
    }

    /// Notes that the engine replaced the object file by a copy with the same contents.
    pub(crate) fn file_replaced(&self) {
        // A copy has disk space only for the data that was copied.
        self.unreserved.file_replaced();
        self.unreserve_data();
        self.length_min.store(0, Ordering::Relaxed);
        self.write_behind.stop();
    }

    /// The file that the memory is mapped from. The engine replaces it.
    pub(crate) fn mapped(&self) -> MappedFile {
        Arc::clone(&self.file)
    }

    /// Fails in a forked child, which must not change the file.
    fn refuse_in_child(&self) -> Result<()> {
        at_fork::refuse_in_child(|| "the object's memory".to_string())
    }

    /// Returns true if no other process has the file mapped.
    fn is_exclusive(&self, file: &dyn File) -> Result<bool> {
        // A session that holds the content lock until it ends must not release it here.
        Ok(self.locked.load(Ordering::Relaxed) || locks::lock_exclusively(file)?.is_some())
    }

    /// Notes that the content is locked for as long as the object is open, or that no other process
    /// knows the file.
    pub(crate) fn note_locked(&self) {
        self.locked.store(true, Ordering::Relaxed);
    }

    fn file(&self) -> Arc<dyn File> {
        Arc::clone(&self.file.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<MappedRegion>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Address of the superblock.
    pub(crate) fn base(&self) -> u64 {
        self.lock().first().map_or(0, |held| held.record.base)
    }

    /// The current region records.
    pub(crate) fn records(&self) -> Vec<RegionRecord> {
        self.lock().iter().map(|held| held.record).collect()
    }

    /// Leases of uncommitted regions: base and bytes.
    pub(crate) fn new_leases(&self) -> Vec<(u64, u64)> {
        let held = self.lock();
        held.iter().filter(|h| h.committed == 0).map(|h| lease_of(&h.record)).collect()
    }

    /// The committed parts, for the engine.
    pub(crate) fn committed(&self) -> Vec<Span> {
        let held = self.lock();
        held.iter().filter(|h| h.committed > 0).map(|h| h.span(0, h.committed)).collect()
    }

    /// The growth that the next commit adds.
    pub(crate) fn growth(&self) -> Growth {
        let held = self.lock();
        debug_assert!(held.iter().all(|h| h.committed <= h.record.length
            && h.record.length <= h.record.capacity
            && h.record.length.is_multiple_of(PAGE_BYTES)));
        let fresh = held
            .iter()
            .filter(|h| h.record.length > h.committed)
            .map(|h| h.span(h.committed, h.record.length))
            .collect();
        let regions = held.iter().map(|h| h.record).collect();
        let (file_length, unreserved) = (file_length(&held), Arc::clone(&self.unreserved));
        Growth { fresh, file_length, regions, given_back: Vec::new(), unreserved }
    }

    /// The pages of the file at address ranges: first page number and page count.
    pub(crate) fn pages_of(&self, ranges: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let held = self.lock();
        let place = |&(address, bytes): &(u64, u64)| {
            let within = |h: &&MappedRegion| address.wrapping_sub(h.record.base) < h.record.length;
            let record = held.iter().find(within)?.record;
            let offset = record.file_offset + (address - record.base);
            Some((offset / PAGE_BYTES, bytes / PAGE_BYTES))
        };
        ranges.iter().filter_map(place).collect()
    }

    /// Writes gained memory that is not in the file yet: what a fork made private, and deferred
    /// memory. The next commit flushes it. No thread may store there during the call. Returns true
    /// if there is deferred memory.
    ///
    /// # Errors
    /// `DiskFull` and other I/O errors. Nothing is lost, and the call can be repeated.
    pub(crate) fn write_gained(&self) -> Result<bool> {
        let (mut is_private, mut is_deferred) = (false, false);
        for h in self.lock().iter() {
            is_private |= h.private > h.committed;
            is_deferred |= !h.deferred.is_empty();
        }
        if is_private {
            self.write_private()?;
        }
        if is_deferred {
            self.write_deferred()?;
        }
        Ok(is_deferred)
    }

    /// Notes that the last commit has everything.
    pub(crate) fn mark_committed(&self) {
        self.write_behind.stop();
        for held in self.lock().iter_mut() {
            debug_assert!(held.committed <= held.record.length);
            (held.committed, held.private) = (held.record.length, 0);
            held.deferred.clear();
        }
    }

    /// Releases everything gained since the last commit.
    pub(crate) fn rollback(&self) -> Result<()> {
        self.write_behind.stop();
        let mut held = self.lock();
        for h in held.iter_mut() {
            let gained = h.record.length - h.committed;
            h.mapping.clear(h.record.base + h.committed, gained)?;
            (h.record.length, h.private) = (h.committed, 0);
            h.deferred.clear();
        }
        while let Some(last) = held.pop_if(|h| h.committed == 0) {
            let (base, bytes) = lease_of(&last.record);
            self.addresses.release(base, bytes);
        }
        self.unreserved.shorten(file_length(&held));
        // The next growth must not see data that was written there.
        self.cut_to(file_length(&held))
    }

    /// Trims the last region to its used data, for a draft or for an unused end. Returns the file's
    /// length.
    pub(crate) fn trim(&self, used_data_bytes: &[u64]) -> Result<u64> {
        let mut held = self.lock();
        if let (Some(last), Some(used)) = (held.last_mut(), used_data_bytes.last()) {
            let length = last.record.meta_length + used;
            if length < last.record.length {
                let (base, old) = (last.record.base, last.record.length);
                last.mapping.clear(base + length, old - length)?;
                last.record.length = length;
                last.committed = last.committed.min(length);
                self.unreserved.shorten(file_length(&held));
                self.cut_to(file_length(&held))?;
            }
        }
        Ok(file_length(&held))
    }
}

impl Drop for RegionSet {
    fn drop(&mut self) {
        if at_fork::is_child() {
            return;
        }
        for h in self.lock().iter().filter(|h| h.committed == 0) {
            let (base, bytes) = lease_of(&h.record);
            self.addresses.release(base, bytes);
        }
    }
}

impl MappedRegion {
    /// The parts that are mapped shared: start and end in bytes from the base, ascending.
    fn shared(&self) -> Vec<(u64, u64)> {
        self.not_deferred(self.committed.max(self.private), self.record.length)
    }

    /// The parts of a range that are not deferred: start and end in bytes from the base, ascending.
    fn not_deferred(&self, mut at: u64, end: u64) -> Vec<(u64, u64)> {
        let mut parts = Vec::new();
        for (from, to) in self.deferred.iter().chain([&(end, end)]) {
            let from = end.min(*from);
            if at < from {
                parts.push((at, from));
            }
            at = at.max(*to);
        }
        parts
    }

    fn span(&self, from: u64, to: u64) -> Span {
        Span {
            mapping: Arc::clone(&self.mapping),
            address: self.record.base + from,
            file_offset: self.record.file_offset + from,
            length: to - from,
        }
    }
}

fn file_length(held: &[MappedRegion]) -> u64 {
    held.iter().map(|h| h.record.file_offset + h.record.length).max().unwrap_or(0)
}
