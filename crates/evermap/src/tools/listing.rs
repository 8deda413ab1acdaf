//! Reads the catalog's contents from an image that may be damaged.
//!
//! `catalog` does the same for a mapped catalog. Here every pointer is looked up in the allocator's
//! metadata before its target is read, and every count is compared with the block's size. The walk
//! also counts the reachable blocks, so leaked blocks of the catalog are noticed. The structs must
//! match the layout of the persistent types; `const` assertions check that.

use std::collections::HashSet;
use std::mem::offset_of;

use bytemuck::{Pod, Zeroable};

use crate::catalog::{Arena, Catalog, Entry, Found, Lease, check_name};
use crate::error::Result;
use crate::persist::{PMap, PString, PVec, PersistHash};

use super::heap;
use super::image::Image;
use super::report::{Findings, quantity};
use super::strings::StringPlace;

/// Layout of `PVec` in a file, and of a `PString` whose text is in a block.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct RawVec {
    elements: u64,
    len: u64,
    capacity: u64,
}
const _: () = assert!(size_of::<RawVec>() == size_of::<PVec<u8>>());
const _: () = assert!(size_of::<RawVec>() == size_of::<PString>());

/// Layout of `PMap` in a file.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct RawMap {
    entries: u64,
    cells: u64,
    seed: u64,
    used: u32,
    live: u32,
    bits: u32,
    reserved: u32,
}
const _: () = assert!(size_of::<RawMap>() == size_of::<PMap<PString, Entry>>());

/// Layout of an entry in the map of objects.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct RawEntry {
    hash: u64,
    name: RawVec,
    uuid: [u8; 16],
    created_ns: u64,
    leases: RawVec,
}
const _: () = assert!(size_of::<RawEntry>() == 8 + size_of::<PString>() + size_of::<Entry>());
const _: () = assert!(offset_of!(RawEntry, uuid) == 32 + offset_of!(Entry, uuid));
const _: () = assert!(offset_of!(RawEntry, created_ns) == 32 + offset_of!(Entry, created_ns));
const _: () = assert!(offset_of!(RawEntry, leases) == 32 + offset_of!(Entry, leases));

/// Layout of the catalog's root.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct RawCatalog {
    arenas: RawVec,
    objects: RawMap,
    doomed: RawVec,
}
const _: () = assert!(size_of::<RawCatalog>() == size_of::<Catalog>());
const _: () = assert!(offset_of!(RawCatalog, arenas) == offset_of!(Catalog, arenas));
const _: () = assert!(offset_of!(RawCatalog, objects) == offset_of!(Catalog, objects));
const _: () = assert!(offset_of!(RawCatalog, doomed) == offset_of!(Catalog, doomed));

/// Contents of the catalog.
#[derive(Clone, Debug, Default)]
pub(super) struct Listing {
    pub(super) store_uuid: [u8; 16],
    /// Number of the catalog's commit.
    pub(super) sequence: u64,
    pub(super) arenas: Vec<Arena>,
    pub(super) objects: Vec<(String, Found)>,
    pub(super) doomed: Vec<[u8; 16]>,
    /// Number of blocks reached.
    pub(super) blocks: u64,
}

/// Reads the catalog. Reports damaged parts as findings and leaves them out.
pub(super) fn read(image: &Image, findings: &mut Findings) -> Result<Listing> {
    let s = image.superblock();
    let mut listing =
        Listing { store_uuid: s.store_uuid, sequence: s.commit_sequence, ..Listing::default() };
    let Some(root) = image.value::<RawCatalog>(s.root_address)? else {
        findings.damage("the root", format!("{:#x}", s.root_address), "an address in the catalog");
        return Ok(listing);
    };
    let mut walk = Walk { image, findings, reached: HashSet::new() };
    // A root that is too large for the superblock's page is in a block.
    if heap::block_at(image, s.root_address)?.is_some() {
        walk.reached.insert(s.root_address);
    }
    listing.arenas = walk.list(&root.arenas, "the arenas", |bytes: [u64; 3]| Arena {
        base: bytes[0],
        length: bytes[1],
        high_water: bytes[2],
    })?;
    listing.doomed = walk.list(&root.doomed, "the objects to be removed", |uuid: [u8; 16]| uuid)?;
    listing.objects = walk.objects(&root.objects)?;
    listing.blocks = walk.reached.len() as u64;
    Ok(listing)
}

struct Walk<'a> {
    image: &'a Image,
    findings: &'a mut Findings,
    reached: HashSet<u64>,
}

impl Walk<'_> {
    /// Returns true if an allocated block of at least `bytes` begins here and has no other owner.
    /// Otherwise reports the damage. `None` stands for an overflow.
    fn owns(&mut self, address: u64, bytes: Option<u64>, what: &str) -> Result<bool> {
        let found = match heap::block_at(self.image, address)? {
            None => format!("a pointer to {address:#x}, where nothing is allocated"),
            Some(block) if bytes.is_none_or(|bytes| bytes > block) => {
                format!("a block of {} at {address:#x}", quantity(block, "byte"))
            }
            Some(_) if !self.reached.insert(address) => {
                format!("the block at {address:#x}, which something else owns too")
            }
            Some(_) => return Ok(true),
        };
        let expected = match bytes {
            Some(bytes) => format!("a separate block of {}", quantity(bytes, "byte")),
            None => "a possible size".to_string(),
        };
        self.findings.damage(what, found, expected);
        Ok(false)
    }

    /// Returns the bytes of a vector's elements. Reports damage and then returns none.
    fn elements(&mut self, vec: &RawVec, element_bytes: u64, what: &str) -> Result<Vec<u8>> {
        let counted = match vec.elements {
            0 => vec.len == 0 && vec.capacity == 0,
            _ => vec.len <= vec.capacity && vec.capacity > 0,
        };
        if !counted {
            let (len, capacity) = (quantity(vec.len, "element"), vec.capacity);
            let found = format!("{len}, a capacity of {capacity}, at {:#x}", vec.elements);
            self.findings.damage(what, found, "at most as many elements as the capacity");
            return Ok(Vec::new());
        }
        let capacity = vec.capacity.checked_mul(element_bytes);
        if vec.elements == 0 || !self.owns(vec.elements, capacity, what)? {
            return Ok(Vec::new());
        }
        // The length is bounded by the block, which is inside the file.
        let mut bytes = vec![0; (vec.len * element_bytes) as usize];
        self.image.read(vec.elements, &mut bytes)?;
        Ok(bytes)
    }

    /// Returns the bytes of a string. Reports damage and then returns none.
    fn text(&mut self, string: &RawVec, what: &str) -> Result<Vec<u8>> {
        match StringPlace::of(string.capacity) {
            StringPlace::Block => self.elements(string, 1, what),
            StringPlace::Here(length) => Ok(bytemuck::bytes_of(string)[..length as usize].to_vec()),
            StringPlace::Damaged => {
                let found = format!("a length of {}", string.capacity >> 56);
                self.findings.damage(what, found, "at most 23 bytes in place");
                Ok(Vec::new())
            }
        }
    }

    fn list<R: bytemuck::AnyBitPattern, T>(
        &mut self,
        vec: &RawVec,
        what: &str,
        make: impl Fn(R) -> T,
    ) -> Result<Vec<T>> {
        let bytes = self.elements(vec, size_of::<R>() as u64, what)?;
        let values = bytes.chunks_exact(size_of::<R>()).map(bytemuck::pod_read_unaligned);
        Ok(values.map(make).collect())
    }

    fn objects(&mut self, map: &RawMap) -> Result<Vec<(String, Found)>> {
        let what = "the map of objects";
        if map.bits == 0 {
            if bytemuck::bytes_of(map) != [0; size_of::<RawMap>()] {
                self.findings.damage(what, "contents without an index", "an empty map");
            }
            return Ok(Vec::new());
        }
        if !(3..=31).contains(&map.bits) {
            self.findings.damage(what, format!("an index of 2^{} cells", map.bits), "2^3 to 2^31");
            return Ok(Vec::new());
        }
        let limit = 3u64 << (map.bits - 2);
        if u64::from(map.used) > limit || map.live > map.used {
            let found = format!("{} used entries, {} of them live", map.used, map.live);
            self.findings.damage(what, found, format!("at most {limit}"));
            return Ok(Vec::new());
        }
        let entry_bytes = size_of::<RawEntry>() as u64;
        let entries_owned = self.owns(map.entries, Some(limit * entry_bytes), what)?;
        let cells_owned = self.owns(map.cells, Some(4 << map.bits), "the index of the map")?;
        if !entries_owned {
            return Ok(Vec::new());
        }
        let mut bytes = vec![0; map.used as usize * size_of::<RawEntry>()];
        self.image.read(map.entries, &mut bytes)?;
        let entries: Vec<RawEntry> =
            bytes.chunks_exact(size_of::<RawEntry>()).map(bytemuck::pod_read_unaligned).collect();
        let live = entries.iter().filter(|e| e.hash != 0).count();
        if live != map.live as usize {
            self.findings.damage("the map's count", map.live.to_string(), live.to_string());
        }
        if cells_owned {
            self.check_cells(map, &entries)?;
        }
        let mut objects = Vec::with_capacity(live);
        for entry in entries.iter().filter(|entry| entry.hash != 0) {
            objects.extend(self.object(map, entry)?);
        }
        Ok(objects)
    }

    /// Checks that a search for its hash finds each entry, and that each cell leads to an entry.
    fn check_cells(&mut self, map: &RawMap, entries: &[RawEntry]) -> Result<()> {
        let mut bytes = vec![0; 4 << map.bits];
        self.image.read(map.cells, &mut bytes)?;
        let cells: Vec<u32> = bytes.chunks_exact(4).map(bytemuck::pod_read_unaligned).collect();
        let mask = cells.len() - 1;
        let (empty, removed) = (0, 1);
        // A cell holds the tag of an entry's hash and the entry's position.
        let cell_of =
            |at: usize| !((entries[at].hash >> 32) as u32 & (u32::MAX << map.bits) | at as u32);
        let is_stray = |cell: u32| {
            let at = !cell as usize & mask;
            entries.get(at).is_none_or(|entry| entry.hash == 0 || cell != cell_of(at))
        };
        let taken = || cells.iter().copied().filter(|&cell| cell != empty && cell != removed);
        let live = entries.iter().filter(|entry| entry.hash != 0).count();
        let stray = taken().any(is_stray) || taken().count() != live;
        let lost = (0..entries.len()).filter(|&at| entries[at].hash != 0).any(|at| {
            let (start, wanted) = (entries[at].hash as usize & mask, cell_of(at));
            let on_the_way = (0..cells.len()).map(|step| cells[(start + step) & mask]);
            !on_the_way.take_while(|cell| *cell != empty).any(|cell| cell == wanted)
        });
        let open = cells.contains(&empty);
        if stray || lost || !open {
            let found = match (stray, lost) {
                (true, _) => "an extra cell, or a cell without an entry",
                (_, true) => "an entry that a search does not find",
                _ => "no empty cell",
            };
            self.findings.damage("the index of the map", found, "one cell per entry");
        }
        Ok(())
    }

    /// Reads one object's entry. Returns `None` if its name is invalid.
    fn object(&mut self, map: &RawMap, entry: &RawEntry) -> Result<Option<(String, Found)>> {
        let uuid = crate::object::hex(&entry.uuid);
        let bytes = self.text(&entry.name, &format!("the name of {uuid}"))?;
        let leases =
            self.list(&entry.leases, &format!("the addresses of {uuid}"), |lease: [u64; 2]| {
                Lease { base: lease[0], bytes: lease[1] }
            })?;
        let Some(name) = String::from_utf8(bytes).ok().filter(|name| check_name(name).is_ok())
        else {
            let expected = "a valid name: 1 to 255 bytes of UTF-8";
            self.findings.damage(format!("the name of {uuid}"), "an invalid name", expected);
            return Ok(None);
        };
        let hash = name.as_str().persist_hash(map.seed).max(1);
        if hash != entry.hash {
            let (found, expected) = (format!("{:#x}", entry.hash), format!("{hash:#x}"));
            self.findings.damage(format!("the hash of `{name}`"), found, expected);
        }
        let found = Found { uuid: entry.uuid, created_ns: entry.created_ns, leases };
        Ok(Some((name, found)))
    }
}
