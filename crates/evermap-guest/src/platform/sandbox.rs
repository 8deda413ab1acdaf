//! Guests in a sandbox: the host maps objects into the guest's memory.
//!
//! An object's superblock is the page at its address. The guest writes only the root in it:
//! address, bytes, tag and description. The host copies and checks them at a commit. The rest of
//! the page belongs to the host.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use evermap::__guest::{
    CHUNK_BYTES, ChunkSource, RegionRecord, RootRecord, flush_thread_caches, heap_over, read_root,
    write_root,
};
use evermap::Heap;

use crate::error::{Code, Error, Result};
use crate::imports::{Level, commit_object, map_object, regions_of, unmap_object};
use crate::root::{RawRoot, View};

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
        let memory = Arc::new(HostMemory {
            name: name.to_string(),
            regions: Mutex::default(),
            refused: Mutex::default(),
        });
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

    /// Returns the error of an allocation: the host's error if the host refused.
    pub(crate) fn allocation_error(&self, error: &evermap::Error) -> Error {
        let refused = lock(&self.memory.refused).take();
        refused.unwrap_or_else(|| Error::of(error, &self.memory.name))
    }

    /// # Safety
    /// Same requirements as `Heap::set_root_raw`.
    pub(crate) unsafe fn set_root(&mut self, root: &RawRoot) -> Result<()> {
        self.mapped_mut()?.mapping.set_root(root);
        Ok(())
    }

    pub(crate) fn commit(&mut self) -> Result<bool> {
        let mapped = self.mapped_mut()?;
        flush_thread_caches(&mut mapped.heap);
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
        let RootRecord { address, bytes, tag, description } =
            unsafe { read_root(self.superblock()) };
        let address = std::ptr::with_exposed_provenance_mut(address as usize);
        RawRoot { address, bytes, tag, description }
    }

    fn set_root(&mut self, root: &RawRoot) {
        let (bytes, tag, description) = (root.bytes, root.tag, root.description.clone());
        let address = root.address.expose_provenance() as u64;
        let record = RootRecord { address, bytes, tag, description };
        // SAFETY: the page is mapped while this value lives, and the borrow is exclusive.
        unsafe { write_root(self.superblock(), &record) };
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
    /// The host's last error.
    refused: Mutex<Option<Error>>,
}

impl HostMemory {
    fn map(self: &Arc<Self>) -> Result<Mapped> {
        let mapping = Mapping::of(&self.name, Level::Write)?;
        let regions = regions_of(mapping.address, &self.name)?;
        let memory = Arc::clone(self);
        // SAFETY: the host has mapped the regions writable at these addresses, and maps regions
        // that it adds. They stay mapped until `Mapped` is closed or dropped, which drops the heap
        // first. A program opens an object only once, so no other heap uses its metadata.
        let heap = unsafe { heap_over(memory, &regions) };
        *lock(&self.regions) = regions;
        Ok(Mapped { heap, mapping })
    }

    /// Asks the host for `data_bytes` bytes of data in all regions together, and updates the
    /// regions.
    fn grow(&self, regions: &mut Vec<RegionRecord>, data_bytes: u64) -> evermap::Result<()> {
        let grown = u32::try_from(data_bytes)
            .map_err(|_| {
                let why = format!("a guest cannot address {data_bytes} bytes");
                Error::new(Code::OutOfAddresses, &self.name, why)
            })
            .and_then(|bytes| map_object(&self.name, bytes, Level::Write))
            .and_then(|address| regions_of(address, &self.name));
        match grown {
            Ok(grown) => {
                *regions = grown;
                Ok(())
            }
            Err(error) => {
                let allocator_error = growth_error(&error, data_bytes);
                *lock(&self.refused) = Some(error);
                Err(allocator_error)
            }
        }
    }

    fn too_few_bytes(&self, bytes: u64) -> evermap::Error {
        let why = "the host provided fewer bytes than requested".to_string();
        evermap::Error::OutOfAddresses { what: self.name.clone(), bytes, why }
    }
}

impl ChunkSource for HostMemory {
    fn extend(&self, region: usize, data_bytes: u64) -> evermap::Result<u64> {
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

    fn refill(&self, _region: usize, _offset: u64, _bytes: u64) -> evermap::Result<()> {
        // A guest's object has no holes.
        Ok(())
    }

    fn add_region(&self, chunks: u64) -> evermap::Result<RegionRecord> {
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

/// Converts the host's error for the allocator and the containers.
fn growth_error(error: &Error, bytes: u64) -> evermap::Error {
    let what = error.object().to_string();
    match error.code() {
        Code::DiskFull => evermap::Error::DiskFull {
            path: what.into(),
            doing: "growing the object",
            needed_bytes: bytes,
        },
        Code::Quota | Code::OutOfAddresses => {
            evermap::Error::OutOfAddresses { what, bytes, why: error.message().to_string() }
        }
        _ => evermap::Error::Io {
            path: what.into(),
            doing: "growing the object",
            source: std::io::Error::other(error.message().to_string()),
        },
    }
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
