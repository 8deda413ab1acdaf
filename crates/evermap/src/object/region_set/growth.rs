//! Growth: backing a region further, up to its capacity, and adding regions.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use evermap_heap::HeapError;
use tracing::debug;

use super::shape::{RegionShape, lead_bytes};
use super::{Backing, FIRST_CHUNKS, MappedRegion, RegionSet};
use crate::address::Sharing;
use crate::alloc::ChunkSource;
use crate::commit::Deferral;
use crate::error::{Error, Result};
use crate::format::{
    CHUNK_BYTES, HUGE_BYTES, LARGE_REGION_BYTES, PAGE_BYTES, REGIONS_MAX, RegionRecord,
};

/// Minimum and maximum step by which the file grows beyond the requested size.
const GROW_STEP_BYTES: (u64, u64) = (CHUNK_BYTES, 64 << 20);
/// Gained memory is populated at once up to this size: it is about to be written, and populating
/// costs a third less than page faults (12.9 ns for a node of 64 bytes instead of 17.9).
const POPULATED_BYTES_MAX: u64 = 2 << 20;
/// From this size on an object grows by whole huge pages, and the kernel is asked for huge pages.
/// Filling 320 MB with nodes of 64 bytes took 5,000 faults and 20 ns a node; with steps that end
/// anywhere it took 37,000 faults and 32 to 57 ns.
const HUGE_STEPS_FROM_BYTES: u64 = 4 << 20;
/// Growth by at least this much is written back while it is being filled: steps of objects from 256
/// MiB on, and large blocks. With 320 MB and two threads, filling took a third longer, and the
/// commit gained as much.
const WRITTEN_BEHIND_BYTES_MIN: u64 = 32 << 20;
/// Below this many existing chunks (256 MiB), a further region has `RegionPlan::factor` times as
/// many as exist, and from there on as many as exist. Few regions open quickly: each costs a
/// mapping and a lock.
const REGION_FACTOR_SMALL_CHUNKS: u64 = 4096;

impl RegionSet {
    /// Returns the shape of a region with at least `chunks` chunks. The rest of the last granule
    /// becomes chunks, too.
    fn shape(&self, first: bool, chunks: u64) -> RegionShape {
        let mut shape = RegionShape::of(first, chunks, self.checksums);
        let lease = shape.lease_bytes().next_multiple_of(self.plan.granule_bytes);
        let mut more = chunks + (lease - shape.lease_bytes()) / CHUNK_BYTES;
        // More chunks need more metadata, which may take a chunk itself.
        while more > shape.chunks {
            let larger = RegionShape::of(first, more, self.checksums);
            if larger.lease_bytes() <= lease {
                shape = larger;
                break;
            }
            more -= 1;
        }
        shape
    }

    /// Grows the object's regions to at least `data_bytes` of data, for callers with their own
    /// allocator. Backs the last region further, up to its capacity, then adds another one.
    pub(crate) fn grow_to(&self, data_bytes: u64) -> Result<()> {
        loop {
            let records = self.records();
            let backed: u64 = records.iter().map(|r| r.length - r.meta_length).sum();
            let Some(missing) = data_bytes.checked_sub(backed).filter(|missing| *missing > 0)
            else {
                return Ok(());
            };
            match records.last() {
                Some(last) if last.length < last.capacity => {
                    let room = last.capacity - last.length;
                    let data = last.length - last.meta_length + missing.min(room);
                    self.extend(records.len() - 1, data)?;
                }
                _ => {
                    self.add_region(missing.div_ceil(CHUNK_BYTES))?;
                }
            }
        }
    }

    /// Adds a region that the file backs as `backing` says.
    pub(super) fn add_region_at(
        &self,
        held: &mut Vec<MappedRegion>,
        chunks: u64,
        backing: Backing,
    ) -> Result<RegionRecord> {
        let index = held.len();
        if index == REGIONS_MAX {
            return Err(Error::OutOfAddresses {
                what: self.file().path().display().to_string(),
                bytes: chunks * CHUNK_BYTES,
                why: format!("the object has {REGIONS_MAX} regions already"),
            });
        }
        let shape = self.shape(index == 0, chunks);
        let RegionShape { chunks, meta, table, align } = shape;
        let large = align == HUGE_BYTES;
        let file_end = held.last().map_or(0, |h| h.record.file_offset + h.record.capacity);
        let bytes = shape.lease_bytes();
        let lease = self.addresses.lease(bytes)?;
        let base = lease + lead_bytes(meta) - meta;
        let backed = match backing {
            Backing::HugePage if large => meta.next_multiple_of(HUGE_BYTES),
            Backing::Metadata | Backing::HugePage => meta,
            Backing::Data(bytes) | Backing::Room(bytes) => meta + bytes,
        };
        let record = RegionRecord {
            base,
            capacity: meta + chunks * CHUNK_BYTES,
            length: backed.next_multiple_of(PAGE_BYTES),
            file_offset: file_end.next_multiple_of(align),
            meta_length: meta,
            checksums: if table == 0 { 0 } else { base + meta - table },
        };
        let file = self.file();
        debug!(path = %file.path().display(), base = record.base, bytes, "new region");
        let (offset, length) = (record.file_offset, record.length);
        let mapped = file.allocate(offset, length).and_then(|()| {
            let mapping = Arc::new(self.space.claim(base, record.capacity)?);
            if let Some(key) = self.key.get() {
                mapping.set_protection_key(key, 0, true)?;
            }
            mapping.map(&*file, base, length, offset, Sharing::SharedWritable)?;
            match backing {
                // Only the superblock is touched. As a part of a huge page it would be written to
                // disk with the whole huge page. Without the advice the kernel reads around it, up
                // to 8 MiB on some disks.
                Backing::Room(_) => mapping.advise_random(base, length),
                _ if large => mapping.advise_huge(base, length),
                _ => {}
            }
            if matches!(backing, Backing::Data(1..)) {
                mapping.populate(base + meta, (length - meta).min(POPULATED_BYTES_MAX));
            }
            Ok(mapping)
        });
        match mapped {
            Ok(mapping) => {
                held.push(MappedRegion {
                    record,
                    committed: 0,
                    private: 0,
                    deferred: Vec::new(),
                    mapping,
                });
                Ok(record)
            }
            Err(error) => {
                self.addresses.release(lease, bytes);
                // The file may have grown; the commit corrects its length where it matters.
                Err(error)
            }
        }
    }
}

impl ChunkSource for RegionSet {
    fn extend(&self, region: usize, data_bytes: u64) -> Result<u64, HeapError> {
        self.extend_region(region, data_bytes).map_err(Error::of_source)
    }

    fn refill(&self, region: usize, offset: u64, bytes: u64) -> Result<(), HeapError> {
        self.refill_region(region, offset, bytes).map_err(Error::of_source)
    }

    fn add_region(&self, chunks: u64) -> Result<RegionRecord, HeapError> {
        self.append_region(chunks).map_err(Error::of_source)
    }
}

impl RegionSet {
    fn extend_region(&self, region: usize, data_bytes: u64) -> Result<u64> {
        self.refuse_in_child()?;
        let file = self.file();
        let mut held = self.lock();
        let total: u64 = held.iter().map(|h| h.record.length).sum();
        let h = &mut held[region];
        let record = h.record;
        let wanted = (record.meta_length + data_bytes).next_multiple_of(PAGE_BYTES);
        let wanted = wanted.min(record.capacity);
        if self.is_to_be_deferred(&*file, wanted.saturating_sub(record.length)) {
            self.defer(&*file, h, wanted - record.length)?;
            h.record.length = wanted;
            return Ok(wanted - record.meta_length);
        }
        let step = (total / 8).clamp(GROW_STEP_BYTES.0, GROW_STEP_BYTES.1);
        let huge = total >= HUGE_STEPS_FROM_BYTES && record.capacity >= LARGE_REGION_BYTES;
        let end = record.base + wanted.max(record.length + step);
        let end = end.next_multiple_of(if huge { HUGE_BYTES } else { PAGE_BYTES });
        let generous = (end - record.base).min(record.capacity);
        let mut length = generous;
        let at = record.file_offset + record.length;
        let mut reserved = file.allocate(at, generous - record.length);
        if reserved.as_ref().is_err_and(Error::is_lack_of_room) && wanted < generous {
            length = wanted;
            reserved = file.allocate(at, wanted - record.length);
        }
        reserved?;
        let (base, gained) = (record.base + record.length, length - record.length);
        h.mapping.map(&*file, base, gained, at, Sharing::SharedWritable)?;
        let touched = !self.for_room.load(Ordering::Relaxed);
        if gained > Deferral::DEFAULT.from_bytes && touched {
            // The program may use only few places of a block this large, and the kernel would read
            // 8 MiB of zeros around each.
            h.mapping.advise_random(base, gained);
        } else if huge {
            h.mapping.advise_huge(base, gained);
        } else if touched {
            h.mapping.populate(base, gained.min(POPULATED_BYTES_MAX));
        }
        if touched && gained >= WRITTEN_BEHIND_BYTES_MIN && !file.is_direct() {
            self.write_behind.follow(file, at, gained);
        }
        h.record.length = length;
        Ok(length - record.meta_length)
    }

    fn refill_region(&self, region: usize, offset: u64, bytes: u64) -> Result<()> {
        self.refuse_in_child()?;
        let record = self.lock()[region].record;
        self.file().allocate(record.file_offset + record.meta_length + offset, bytes)
    }

    fn append_region(&self, chunks: u64) -> Result<RegionRecord> {
        self.refuse_in_child()?;
        let mut held = self.lock();
        let have: u64 = held.iter().map(|h| h.record.capacity / CHUNK_BYTES).sum();
        let factor = if have < REGION_FACTOR_SMALL_CHUNKS { self.plan.factor } else { 1 };
        let generous = chunks.max(have * factor).max(FIRST_CHUNKS);
        let length: u64 = held.iter().map(|h| h.record.length).sum();
        let backing =
            match length >= HUGE_STEPS_FROM_BYTES && !self.for_room.load(Ordering::Relaxed) {
                true => Backing::HugePage,
                false => Backing::Metadata,
            };
        match self.add_region_at(&mut held, generous, backing) {
            Err(Error::OutOfAddresses { .. } | Error::AddressQuota { .. }) if chunks < generous => {
                self.add_region_at(&mut held, chunks, backing)
            }
            Err(error) if error.is_lack_of_room() && backing == Backing::HugePage => {
                self.add_region_at(&mut held, generous, Backing::Metadata)
            }
            other => other,
        }
    }
}
