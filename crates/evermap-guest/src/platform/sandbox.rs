//! A guest: the host maps objects into this memory.
//!
//! An object's superblock is the page at its address. Of it the guest has the root: it writes
//! address, bytes, tag and description there, and the host copies and checks them at a commit.
//! Everything else there is the host's.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use evermap::__guest::{
    CHUNK_BYTES, ChunkSource, RegionRecord, RootRecord, flush_thread_caches, heap_over, read_root,
    write_root,
};
use evermap::Heap;

use crate::error::{Code, Error, Result};
use crate::imports::{Level, commit_object, map_object, regions_of, unmap_object};
use crate::root::{RawRoot, View};

/// An object that is open for writing.
pub(crate) struct Writer {
    grounds: Arc<Grounds>,
    /// `None` after a rollback that failed.
    mapped: Option<Mapped>,
}

struct Mapped {
    // Dropped before the memory goes that it is over.
    heap: Heap,
    mapping: Mapping,
}

impl Writer {
    pub(crate) fn open(name: &str) -> Result<Writer> {
        let grounds = Arc::new(Grounds {
            name: name.to_string(),
            regions: Mutex::default(),
            refused: Mutex::default(),
        });
        let mapped = Some(grounds.map()?);
        Ok(Writer { grounds, mapped })
    }

    fn mapped(&self) -> Result<&Mapped> {
        self.mapped.as_ref().ok_or_else(|| not_mapped(&self.grounds.name))
    }

    fn mapped_mut(&mut self) -> Result<&mut Mapped> {
        self.mapped.as_mut().ok_or_else(|| not_mapped(&self.grounds.name))
    }

    pub(crate) fn heap(&self) -> Result<&Heap> {
        Ok(&self.mapped()?.heap)
    }

    /// The error of an allocation: the host's own, if it was the host who refused.
    pub(crate) fn allocation_error(&self, error: &evermap::Error) -> Error {
        let refused = lock(&self.grounds.refused).take();
        refused.unwrap_or_else(|| Error::of(error, &self.grounds.name))
    }

    /// # Safety
    /// As `Heap::set_root_raw`.
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
        let mapped = self.mapped.take().ok_or_else(|| not_mapped(&self.grounds.name))?;
        mapped.close()?;
        self.mapped = Some(self.grounds.map()?);
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
        &self.grounds.name
    }

    fn root(&self) -> Result<RawRoot> {
        Ok(self.mapped()?.mapping.root())
    }

    fn contains(&self, address: usize, length: usize) -> bool {
        lies_in(&lock(&self.grounds.regions), address, length)
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
        lies_in(&self.regions, address, length)
    }
}

/// Where objects are mapped. An application's own object has two names, `NAME` and `OWNER:NAME`, but
/// one address.
static MAPPED: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// An object in memory; unmapped when dropped. Who has one sees to it that nothing refers to the
/// object's memory then.
struct Mapping {
    address: u32,
    name: String,
}

impl Mapping {
    fn of(name: &str, level: Level) -> Result<Mapping> {
        let mut mapped = lock(&MAPPED);
        let address = map_object(name, 0, level)?;
        if mapped.contains(&address) {
            // Nothing was mapped by this call.
            let why = "it is open in this program already, under its other name; close that first";
            return Err(Error::new(Code::Busy, name, why));
        }
        mapped.push(address);
        Ok(Mapping { address, name: name.to_string() })
    }

    fn end(self) -> Result<()> {
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: see above; `this` is not dropped.
        unsafe { this.unmap() }
    }

    /// # Safety
    /// Nothing refers to the object's memory, and this is called once.
    unsafe fn unmap(&self) -> Result<()> {
        let mut mapped = lock(&MAPPED);
        mapped.retain(|address| *address != self.address);
        // SAFETY: the caller's promise.
        unsafe { unmap_object(self.address, &self.name) }
    }

    fn superblock(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.address as usize)
    }

    fn root(&self) -> RawRoot {
        // SAFETY: the page is mapped while this value lives; its root is written by `set_root`
        // alone, which borrows the value exclusively.
        let RootRecord { address, bytes, tag, description } =
            unsafe { read_root(self.superblock()) };
        let address = std::ptr::with_exposed_provenance_mut(address as usize);
        RawRoot { address, bytes, tag, description }
    }

    fn set_root(&mut self, root: &RawRoot) {
        let (bytes, tag, description) = (root.bytes, root.tag, root.description.clone());
        let address = root.address.expose_provenance() as u64;
        let record = RootRecord { address, bytes, tag, description };
        // SAFETY: as in `root`, and the borrow is exclusive.
        unsafe { write_root(self.superblock(), &record) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: see above.
        let _ = unsafe { self.unmap() };
    }
}

/// What a heap's memory comes from: the host, which maps more of the object.
struct Grounds {
    name: String,
    regions: Mutex<Vec<RegionRecord>>,
    /// The host's last refusal.
    refused: Mutex<Option<Error>>,
}

impl Grounds {
    fn map(self: &Arc<Self>) -> Result<Mapped> {
        let mapping = Mapping::of(&self.name, Level::Write)?;
        let regions = regions_of(mapping.address, &self.name)?;
        let ground = Arc::clone(self);
        // SAFETY: the host has mapped the regions writable where it says, and maps what it adds; all
        // stays until `Mapped` is closed or dropped, heap first. An object is open once in a
        // program, so its metadata is this heap's alone.
        let heap = unsafe { heap_over(ground, &regions) };
        *lock(&self.regions) = regions;
        Ok(Mapped { heap, mapping })
    }

    /// Has the host give the object this many bytes for data in all, and learns where they are.
    fn grow(&self, regions: &mut Vec<RegionRecord>, data_bytes: u64) -> evermap::Result<()> {
        let grown = u32::try_from(data_bytes)
            .map_err(|_| {
                let why = format!("{data_bytes} bytes are more than a guest can address");
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
                let told = growth_error(&error, data_bytes);
                *lock(&self.refused) = Some(error);
                Err(told)
            }
        }
    }

    fn too_little(&self, bytes: u64) -> evermap::Error {
        let why = "the host gave less than it was asked for".to_string();
        evermap::Error::OutOfAddresses { what: self.name.clone(), bytes, why }
    }
}

impl ChunkSource for Grounds {
    fn extend(&self, region: usize, data_bytes: u64) -> evermap::Result<u64> {
        let mut regions = lock(&self.regions);
        // The host may have backed more than was asked for, and did when it added a region.
        let backed = |regions: &[RegionRecord]| regions.get(region).map_or(0, data_bytes_of);
        if backed(&regions) < data_bytes {
            let others: u64 = regions.iter().map(data_bytes_of).sum::<u64>() - backed(&regions);
            self.grow(&mut regions, others + data_bytes)?;
        }
        let backed = backed(&regions);
        if backed < data_bytes { Err(self.too_little(data_bytes)) } else { Ok(backed) }
    }

    fn refill(&self, _region: usize, _offset: u64, _bytes: u64) -> evermap::Result<()> {
        // Nobody makes holes in a guest's object.
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
        added.ok_or_else(|| self.too_little(bytes))
    }
}

fn data_bytes_of(region: &RegionRecord) -> u64 {
    region.length - region.meta_length
}

/// The host's refusal, as the allocator and the containers pass it on.
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
    Error::new(Code::NotMapped, name, "it was lost in a rollback that failed; open it again")
}

fn lies_in(regions: &[RegionRecord], address: usize, length: usize) -> bool {
    let (address, length) = (address as u64, length as u64);
    regions.iter().any(|region| {
        let (first, end) = (region.base + region.meta_length, region.base + region.length);
        address >= first && address + length <= end
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
