//! Guests in a sandbox: the host maps objects into the guest's memory.
//!
//! An object's superblock is the page at its address. The guest writes only the root in it:
//! address, bytes, tag and description. The host copies and checks them at a commit. The rest of
//! the page belongs to the host.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use evermap_heap::alloc::ChunkSource;
use evermap_heap::format::{CHUNK_BYTES, RegionRecord};
use evermap_heap::{Heap, HeapError};

use crate::error::{Code, Error, Result};
use crate::imports::{Level, commit_object, map_object, regions_of, unmap_object};
use crate::root::{RawRoot, View};
use crate::root_entry::{read_root, write_root};

/// An object open for writing.
pub(crate) struct Writer {
    memory: Arc<HostMemory>,
    /// `None` after a rollback that failed.
    mapped: Option<Mapped>,
}

struct Mapped {
    // Dropped before the mapping, because it uses the mapped memory.
    heap: Heap,
    mapping: Mapping,
}

impl Writer {
    pub(crate) fn open(name: &str) -> Result<Writer> {
        let memory = Arc::new(HostMemory { name: name.to_string(), regions: Mutex::default() });
        let mapped = Some(memory.map()?);
        Ok(Writer { memory, mapped })
    }

    fn mapped(&self) -> Result<&Mapped> {
        self.mapped.as_ref().ok_or_else(|| not_mapped(&self.memory.name))
    }

    fn mapped_mut(&mut self) -> Result<&mut Mapped> {
        self.mapped.as_mut().ok_or_else(|| not_mapped(&self.memory.name))
    }

    pub(crate) fn heap(&self) -> Result<&Heap> {
        Ok(&self.mapped()?.heap)
    }

    /// # Safety
    /// Same requirements as `Heap::set_root_raw`.
    pub(crate) unsafe fn set_root(&mut self, root: &RawRoot) -> Result<()> {
        self.mapped_mut()?.mapping.set_root(root);
        Ok(())
    }

    pub(crate) fn commit(&mut self) -> Result<bool> {
        let mapped = self.mapped_mut()?;
        mapped.heap.flush_thread_caches();
        commit_object(mapped.mapping.address, &mapped.mapping.name)
    }

    pub(crate) fn rollback(&mut self) -> Result<()> {
        let mapped = self.mapped.take().ok_or_else(|| not_mapped(&self.memory.name))?;
        mapped.close()?;
        self.mapped = Some(self.memory.map()?);
        Ok(())
    }

    pub(crate) fn close(mut self) -> Result<()> {
        self.mapped.take().map_or(Ok(()), Mapped::close)
    }
}

impl Mapped {
    fn close(self) -> Result<()> {
        drop(self.heap);
        self.mapping.end()
    }
}

impl View for Writer {
    fn name(&self) -> &str {
        &self.memory.name
    }

    fn root(&self) -> Result<RawRoot> {
        Ok(self.mapped()?.mapping.root())
    }

    fn contains(&self, address: usize, length: usize) -> bool {
        contains_range(&lock(&self.memory.regions), address, length)
    }
}

/// The last commit of an object.
pub(crate) struct Reader {
    mapping: Mapping,
    regions: Vec<RegionRecord>,
}

impl Reader {
    pub(crate) fn open(name: &str) -> Result<Reader> {
        let mapping = Mapping::of(name, Level::Snapshot)?;
        let regions = regions_of(mapping.address, name)?;
        Ok(Reader { mapping, regions })
    }

    pub(crate) fn close(self) -> Result<()> {
        self.mapping.end()
    }
}

impl View for Reader {
    fn name(&self) -> &str {
        &self.mapping.name
    }

    fn root(&self) -> Result<RawRoot> {
        Ok(self.mapping.root())
    }

    fn contains(&self, address: usize, length: usize) -> bool {
        contains_range(&self.regions, address, length)
    }
}

/// Addresses of mapped objects. An application's own object has two names, `NAME` and `OWNER:NAME`,
/// but one address.
static MAPPED: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// A mapped object, unmapped when dropped. The owner must not drop it while anything refers to the
/// object's memory.
struct Mapping {
    address: u32,
    name: String,
}

impl Mapping {
    fn of(name: &str, level: Level) -> Result<Mapping> {
        let mut mapped = lock(&MAPPED);
        let address = map_object(name, 0, level)?;
        if mapped.contains(&address) {
            // This call did not map anything.
            let why = "this program already has it open under its other name; close it first";
            return Err(Error::new(Code::Busy, name, why));
        }
        mapped.push(address);
        Ok(Mapping { address, name: name.to_string() })
    }

    fn end(self) -> Result<()> {
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: the owner keeps no references into the memory; `this` is not dropped, so it runs
        // once.
        unsafe { this.unmap() }
    }

    /// # Safety
    /// Nothing refers to the object's memory. Call this once.
    unsafe fn unmap(&self) -> Result<()> {
        let mut mapped = lock(&MAPPED);
        mapped.retain(|address| *address != self.address);
        // SAFETY: the caller keeps no references into the object's memory.
        unsafe { unmap_object(self.address, &self.name) }
    }

    fn superblock(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.address as usize)
    }

    fn root(&self) -> RawRoot {
        // SAFETY: the page is mapped while this value lives. Only `set_root` writes its root, and
        // it borrows the value exclusively.
        unsafe { read_root(self.superblock()) }
    }

    fn set_root(&mut self, root: &RawRoot) {
        // SAFETY: the page is mapped while this value lives, and the borrow is exclusive.
        unsafe { write_root(self.superblock(), root) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the owner keeps no references into the memory, and a value is dropped once.
        let _ = unsafe { self.unmap() };
    }
}

/// The source of a heap's memory: the host, which maps more of the object.
struct HostMemory {
    name: String,
    regions: Mutex<Vec<RegionRecord>>,
}

impl HostMemory {
    fn map(self: &Arc<Self>) -> Result<Mapped> {
        let mapping = Mapping::of(&self.name, Level::Write)?;
        let regions = regions_of(mapping.address, &self.name)?;
        let memory = Arc::clone(self);
        // SAFETY: the host has mapped the regions writable at these addresses, and maps regions
        // that it adds. They stay mapped until `Mapped` is closed or dropped, which drops the heap
        // first. A program opens an object only once, so no other heap uses its metadata.
        let heap = unsafe { Heap::new(memory, &regions) };
        *lock(&self.regions) = regions;
        Ok(Mapped { heap, mapping })
    }

    /// Asks the host for `data_bytes` bytes of data in all regions together, and updates the
    /// regions.
    fn grow(&self, regions: &mut Vec<RegionRecord>, data_bytes: u64) -> Result<(), HeapError> {
        let grown = u32::try_from(data_bytes)
            .map_err(|_| {
                let why = format!("a guest cannot address {data_bytes} bytes");
                Error::new(Code::OutOfAddresses, &self.name, why)
            })
            .and_then(|bytes| map_object(&self.name, bytes, Level::Write))
            .and_then(|address| regions_of(address, &self.name));
        *regions = grown.map_err(|error| HeapError::Source(Box::new(error)))?;
        Ok(())
    }

    fn too_few_bytes(&self, bytes: u64) -> HeapError {
        let why = "the host provided fewer bytes than requested".to_string();
        HeapError::OutOfAddresses { what: self.name.clone(), bytes, why }
    }
}

impl ChunkSource for HostMemory {
    fn extend(&self, region: usize, data_bytes: u64) -> Result<u64, HeapError> {
        let mut regions = lock(&self.regions);
        // The host can have backed more than requested, and does so when it adds a region.
        let backed = |regions: &[RegionRecord]| regions.get(region).map_or(0, data_bytes_of);
        if backed(&regions) < data_bytes {
            let others: u64 = regions.iter().map(data_bytes_of).sum::<u64>() - backed(&regions);
            self.grow(&mut regions, others + data_bytes)?;
        }
        let backed = backed(&regions);
        if backed < data_bytes { Err(self.too_few_bytes(data_bytes)) } else { Ok(backed) }
    }

    fn refill(&self, _region: usize, _offset: u64, _bytes: u64) -> Result<(), HeapError> {
        // A guest's object has no holes.
        Ok(())
    }

    fn add_region(&self, chunks: u64) -> Result<RegionRecord, HeapError> {
        let mut regions = lock(&self.regions);
        let before = regions.len();
        // A region is backed to its capacity before another is added.
        let full: u64 = regions.iter().map(|r| r.capacity - r.meta_length).sum();
        let bytes = chunks * CHUNK_BYTES;
        self.grow(&mut regions, full + bytes)?;
        let added = regions.get(before).copied();
        added.ok_or_else(|| self.too_few_bytes(bytes))
    }
}

fn data_bytes_of(region: &RegionRecord) -> u64 {
    region.length - region.meta_length
}

fn not_mapped(name: &str) -> Error {
    Error::new(Code::NotMapped, name, "a failed rollback has unmapped it; open it again")
}

fn contains_range(regions: &[RegionRecord], address: usize, length: usize) -> bool {
    let (address, length) = (address as u64, length as u64);
    regions.iter().any(|region| {
        let (first, end) = (region.base + region.meta_length, region.base + region.length);
        address >= first && address + length <= end
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
