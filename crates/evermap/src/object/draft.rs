//! An object under construction: a file that is not yet in the catalog, written in place.
//!
//! No other process sees a draft before it is published, so it needs no log. Its memory is the
//! file's page cache, and one flush makes it durable. The superblock and the checksum tables are
//! written last, by [`Draft::finish`].

use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

use super::region_set::{Backing, FIRST_CHUNKS, RegionSet};
use super::superblock::blank;
use super::{Displacement, Environment, WRITER_BYTE};
use crate::alloc::Heap;
use crate::commit::{Log, write_tables};
use crate::error::{Error, Result};
use crate::format::{
    CHUNK_BYTES, FEATURE_GUEST, FEATURE_PAGE_CHECKSUMS, GuestRecord, PAGE_BYTES, ROOT_AREA_BYTES,
    ROOT_AREA_OFFSET, Superblock,
};
use crate::storage::{File, LockKind, OpenMode};

/// Larger than any arena. A larger request fails with the same error as one of this size.
const ROOM_BYTES_MAX: u64 = 1 << 45;

/// Properties of a new object.
#[derive(Clone, Debug, Default)]
pub(crate) struct DraftOptions {
    pub(crate) name: String,
    pub(crate) store_uuid: [u8; 16],
    pub(crate) object_uuid: [u8; 16],
    pub(crate) application_key: [u8; 16],
    pub(crate) kind: u32,
    pub(crate) arena: (u64, u64),
    /// Bytes of data that the object will have, if known; its first region is sized for them.
    pub(crate) expected_bytes: Option<u64>,
    /// Bytes of room to reserve, for an object whose data is stored later: that much disk space,
    /// and twice that many addresses. If not zero, `expected_bytes` is ignored.
    pub(crate) room_bytes: u64,
    /// Set for a guest object.
    pub(crate) guest: Option<GuestDraft>,
}

/// Additional properties of a guest object.
#[derive(Clone, Debug)]
pub(crate) struct GuestDraft {
    pub(crate) record: GuestRecord,
    /// Bytes of data addresses in its first region.
    pub(crate) capacity_bytes: u64,
}

/// Size, alignment and type of a root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RootType<'a> {
    pub(crate) bytes: usize,
    pub(crate) align: usize,
    pub(crate) type_id: [u8; 16],
    pub(crate) schema: &'a str,
}

/// An object under construction. Dropping it leaves the file for the caller to remove.
pub(crate) struct Draft {
    file: Arc<dyn File>,
    heap: Heap,
    region_set: Arc<RegionSet>,
    superblock: Box<Superblock>,
    has_room: bool,
    here: Displacement,
}

impl Draft {
    /// Creates the file and maps its first region.
    pub(crate) fn create(
        environment: &Environment,
        path: &Path,
        options: &DraftOptions,
    ) -> Result<Draft> {
        let file = environment.storage.open(path, OpenMode::CreateNew)?;
        // Shows a check that the creating process is alive.
        file.try_lock(LockKind::Exclusive, WRITER_BYTE, 1)?;
        let has_room = options.room_bytes > 0;
        let chunks_of = |bytes: u64| bytes.div_ceil(CHUNK_BYTES).max(1);
        let (chunks, backing) = match options.expected_bytes {
            // The capacity is the guest's address space, and the guest has its own allocator.
            _ if let Some(guest) = &options.guest => {
                (chunks_of(guest.capacity_bytes), Backing::Metadata)
            }
            // A caller that reserves room is likely to use more: with spare addresses it needs no
            // further region, and so no change of the catalog.
            _ if has_room => {
                let chunks = chunks_of(options.room_bytes.min(ROOM_BYTES_MAX));
                let data_bytes = chunks.saturating_mul(CHUNK_BYTES);
                let capacity = chunks.saturating_mul(2).max(FIRST_CHUNKS);
                (capacity, Backing::Room(data_bytes))
            }
            Some(bytes) => {
                let data_bytes = bytes.next_multiple_of(PAGE_BYTES);
                (chunks_of(bytes), Backing::Data(data_bytes))
            }
            None => (FIRST_CHUNKS, Backing::Metadata),
        };
        let region_set = Arc::new(RegionSet::create(
            Arc::clone(&file),
            Arc::clone(&environment.space),
            Arc::clone(&environment.addresses),
            environment.region_plan(),
            (chunks, backing),
        )?);
        let source = Arc::clone(&region_set);
        // SAFETY: the region set maps the region writable and is owned by the heap itself; no other
        // process knows the file yet.
        let heap = unsafe { Heap::new(source, &region_set.records()) };
        let mut superblock = Box::new(blank());
        superblock.store_uuid = options.store_uuid;
        superblock.object_uuid = options.object_uuid;
        superblock.application_key = options.application_key;
        superblock.kind = options.kind;
        (superblock.arena_base, superblock.arena_length) = options.arena;
        superblock.created_ns = now_ns();
        superblock.commit_sequence = 1;
        superblock.set_name(&options.name);
        superblock.features_read_only_compatible = FEATURE_PAGE_CHECKSUMS;
        if let Some(guest) = &options.guest {
            superblock.features_incompatible |= FEATURE_GUEST;
            superblock.guest = guest.record;
        }
        let here = environment.displacement();
        Ok(Draft { file, heap, region_set, superblock, has_room, here })
    }

    /// The allocator.
    pub(crate) fn heap(&self) -> &Heap {
        &self.heap
    }

    /// The file.
    pub(crate) fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// Allocates the root, in the superblock's page if it is small. The memory is zero.
    pub(crate) fn place_root(&mut self, root: RootType<'_>) -> Result<NonNull<u8>> {
        let small = root.bytes <= ROOT_AREA_BYTES && root.align <= ROOT_AREA_BYTES;
        let place = if small {
            let address = self.region_set.base() + ROOT_AREA_OFFSET as u64;
            NonNull::new(address as *mut u8).ok_or(Error::BadAllocation {
                bytes: root.bytes as u64,
                align: root.align as u64,
                why: "the object begins at address zero",
            })?
        } else {
            self.heap.allocate_zeroed(root.bytes, root.align)?
        };
        self.superblock.root_address = place.as_ptr() as u64;
        self.superblock.root_bytes = root.bytes as u64;
        self.superblock.root_type_id = root.type_id;
        self.superblock.set_schema(root.schema);
        Ok(place)
    }

    /// Trims the file to the used part, or keeps its reserved room, and writes the superblock and
    /// the checksum tables. After that only a flush is missing. Creates the permanent log too, if
    /// one is asked for. Returns the leases that the object occupies; none for a guest object.
    pub(crate) fn finish(
        &mut self,
        environment: &Environment,
        permanent_log: Option<&Path>,
    ) -> Result<Vec<(u64, u64)>> {
        let mut used = self.heap.flush_and_measure();
        if self.has_room {
            used.clear();
        }
        let length = self.region_set.trim(&used)?;
        if let Some(path) = permanent_log {
            let (uuid, sequence) = (self.superblock.object_uuid, self.superblock.commit_sequence);
            Log::create(&*environment.storage, path, uuid, sequence)?;
            self.superblock.require_log();
        }
        let root_area = (self.region_set.base() + ROOT_AREA_OFFSET as u64) as *const u8;
        // SAFETY: the region set maps page 0, and no other process knows the object.
        self.superblock
            .seal_root(unsafe { std::slice::from_raw_parts(root_area, ROOT_AREA_BYTES) });
        let records = self.region_set.records();
        self.superblock.seal(&self.here.records_in_file(&records), length);
        // SAFETY: the region set maps page 0 writable, and no other process knows the object.
        unsafe { self.superblock.lay_at(self.region_set.base()) };
        // SAFETY: the region set maps the regions writable, and no other process knows the object.
        unsafe { write_tables(&*self.file, &records)? };
        // The catalog does not track addresses of guests.
        let leases = match self.superblock.is_guest() {
            true => Vec::new(),
            false => self.region_set.new_leases(),
        };
        Ok(leases)
    }

    /// Notes that the object is in the catalog, which now records its addresses.
    pub(crate) fn published(&self) {
        self.region_set.mark_committed();
    }
}

/// Nanoseconds since 1970.
pub(crate) fn now_ns() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map(|d| d.as_nanos() as u64).unwrap_or(0)
}
